// The Kubernetes resource plugin of Pulumi. Its own main package embeds two files that are
// generated at release time and absent from the published module, hence this one.
package main

import (
	_ "embed"

	"github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/provider"
)

// Version is what the engine asks plugins for; the build sets it with -ldflags -X.
var version = "4.34.2"

//go:embed schema.json
var schema []byte

//go:embed terraform-mapping.json
var mapping []byte

func main() {
	provider.Serve("kubernetes", version, schema, mapping)
}
