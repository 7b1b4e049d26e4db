// Package kubernetes holds the only part of pulumi-kubernetes' Go SDK that the plugin needs.
//
// The plugin uses the SDK for one call (register an object of any kind, see yaml/v2) and for two
// types (see helm/v4). The SDK as published has a Go type for each field of each Kubernetes kind:
// 28 MB of source, more than half of the time it takes to build the plugin.
package kubernetes

import "reflect"

// UntypedArgs are the fields of a Kubernetes object, as parsed from YAML.
type UntypedArgs map[string]any

// ElementType makes UntypedArgs a pulumi.Input.
func (UntypedArgs) ElementType() reflect.Type {
	return reflect.TypeFor[map[string]any]()
}
