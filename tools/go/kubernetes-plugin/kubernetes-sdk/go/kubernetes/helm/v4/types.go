// Package v4 has the two input types of the Helm v4 Chart component, field for field as in the
// published SDK.
package v4

import (
	"context"
	"reflect"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// PostRenderer is a program that edits the rendered manifests.
type PostRenderer struct {
	Args    []string `pulumi:"args"`
	Command string   `pulumi:"command"`
}

// PostRendererArgs is PostRenderer with inputs.
type PostRendererArgs struct {
	Args    pulumi.StringArrayInput `pulumi:"args"`
	Command pulumi.StringInput      `pulumi:"command"`
}

// PostRendererInput accepts PostRendererArgs and PostRendererOutput.
type PostRendererInput interface {
	pulumi.Input
	ToPostRendererOutput() PostRendererOutput
	ToPostRendererOutputWithContext(context.Context) PostRendererOutput
}

// PostRendererOutput is a PostRenderer that may be known later.
type PostRendererOutput struct{ *pulumi.OutputState }

func (PostRendererArgs) ElementType() reflect.Type { return reflect.TypeFor[PostRenderer]() }

func (PostRendererOutput) ElementType() reflect.Type { return reflect.TypeFor[PostRenderer]() }

func (a PostRendererArgs) ToPostRendererOutput() PostRendererOutput {
	return a.ToPostRendererOutputWithContext(context.Background())
}

func (a PostRendererArgs) ToPostRendererOutputWithContext(ctx context.Context) PostRendererOutput {
	return pulumi.ToOutputWithContext(ctx, a).(PostRendererOutput)
}

func (o PostRendererOutput) ToPostRendererOutput() PostRendererOutput { return o }

func (o PostRendererOutput) ToPostRendererOutputWithContext(context.Context) PostRendererOutput {
	return o
}

// RepositoryOpts says which chart repository to use and how to sign in.
type RepositoryOpts struct {
	CaFile   pulumi.AssetOrArchive `pulumi:"caFile"`
	CertFile pulumi.AssetOrArchive `pulumi:"certFile"`
	KeyFile  pulumi.AssetOrArchive `pulumi:"keyFile"`
	Password *string               `pulumi:"password"`
	Repo     *string               `pulumi:"repo"`
	Username *string               `pulumi:"username"`
}

// RepositoryOptsArgs is RepositoryOpts with inputs.
type RepositoryOptsArgs struct {
	CaFile   pulumi.AssetOrArchiveInput `pulumi:"caFile"`
	CertFile pulumi.AssetOrArchiveInput `pulumi:"certFile"`
	KeyFile  pulumi.AssetOrArchiveInput `pulumi:"keyFile"`
	Password pulumi.StringPtrInput      `pulumi:"password"`
	Repo     pulumi.StringPtrInput      `pulumi:"repo"`
	Username pulumi.StringPtrInput      `pulumi:"username"`
}

// RepositoryOptsInput accepts RepositoryOptsArgs and RepositoryOptsOutput.
type RepositoryOptsInput interface {
	pulumi.Input
	ToRepositoryOptsOutput() RepositoryOptsOutput
	ToRepositoryOptsOutputWithContext(context.Context) RepositoryOptsOutput
}

// RepositoryOptsOutput is a RepositoryOpts that may be known later.
type RepositoryOptsOutput struct{ *pulumi.OutputState }

func (RepositoryOptsArgs) ElementType() reflect.Type { return reflect.TypeFor[RepositoryOpts]() }

func (RepositoryOptsOutput) ElementType() reflect.Type { return reflect.TypeFor[RepositoryOpts]() }

func (a RepositoryOptsArgs) ToRepositoryOptsOutput() RepositoryOptsOutput {
	return a.ToRepositoryOptsOutputWithContext(context.Background())
}

func (a RepositoryOptsArgs) ToRepositoryOptsOutputWithContext(
	ctx context.Context,
) RepositoryOptsOutput {
	return pulumi.ToOutputWithContext(ctx, a).(RepositoryOptsOutput)
}

func (o RepositoryOptsOutput) ToRepositoryOptsOutput() RepositoryOptsOutput { return o }

func (o RepositoryOptsOutput) ToRepositoryOptsOutputWithContext(
	context.Context,
) RepositoryOptsOutput {
	return o
}

func init() {
	pulumi.RegisterInputType(reflect.TypeFor[PostRendererInput](), PostRendererArgs{})
	pulumi.RegisterInputType(reflect.TypeFor[RepositoryOptsInput](), RepositoryOptsArgs{})
	pulumi.RegisterOutputType(PostRendererOutput{})
	pulumi.RegisterOutputType(RepositoryOptsOutput{})
}
