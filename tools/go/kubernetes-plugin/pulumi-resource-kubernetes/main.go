// The Kubernetes resource plugin of Pulumi. Its own main package embeds two files that are
// generated at release time and absent from the published module, hence this one.
package main

import (
	_ "embed"

	"github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/provider"
)

// The version of the Python SDK that the plugin serves, set with -ldflags -X. The source is older
// than that SDK: no newer one is published as a Go module.
var version = "unstamped"

// Both files are taken from the module's folder while building (go build -overlay).
//
//go:embed schema.json
var schema []byte

//go:embed terraform-mapping.json
var mapping []byte

func main() {
	provider.Serve("kubernetes", version, schema, mapping)
}
