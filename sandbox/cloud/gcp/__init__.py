"""The stand-in `gcp` resource plugin: the real provider's checks, diffs and outputs, no Google.

`pulumi-resource-gcp` (written into the sandbox's Pulumi home by `sandbox.cloud.install`) runs
`plugin.main`. What each resource type does is in `kinds/`; which properties it has, and which of
them are required, computed or immutable, is in `resources.json`, taken from the schema of the real
provider.
"""
