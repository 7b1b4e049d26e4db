// Package v2 registers Kubernetes objects of any kind with the Pulumi engine.
package v2

import (
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// RegisterResource registers the object under the type token kubernetes:GROUP/VERSION:KIND, with
// "core" for the group that has no name.
//
// The published SDK picks a Go struct for each known kind here, and does what is below for all
// others (custom resources). Engine and state see the same token and properties either way; only
// the Go struct differs, and the plugin's callers use it as a pulumi.CustomResource.
func RegisterResource(ctx *pulumi.Context, apiVersion, kind, name string, props pulumi.Input,
	opts ...pulumi.ResourceOption,
) (pulumi.CustomResource, error) {
	var res pulumi.CustomResourceState
	if apiVersion == "v1" {
		apiVersion = "core/v1"
	}
	token := fmt.Sprintf("kubernetes:%s:%s", apiVersion, kind)
	if err := ctx.RegisterResource(token, name, props, &res, opts...); err != nil {
		return nil, err
	}
	return &res, nil
}
