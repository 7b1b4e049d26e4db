"""The GKE Autopilot cluster, how to reach it, and the Kubernetes provider that does.

No field that Google fills in is set: `node_config` on Autopilot replaces the cluster on the second
`up` (pulumi-gcp#2247), `dns_config` when it is taken out (#1170), and a monitoring component that
Google sets itself shows a change for ever (terraform-provider-google#26839).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp
import pulumi_kubernetes as k8s

from infra import schema

SECRET_SYNC_VERSION = "1.34.0-gke.0"
"""GKE copies Secret Manager secrets into Kubernetes secrets from here on."""


@dataclass(frozen=True, kw_only=True)
class ClusterArgs:
    """
    Attributes:
        project, region: of the cluster.
        name: at most 40 characters.
        minimum_version: the first GKE version that the accelerator and the capacity work with.
        network, subnetwork: of the nodes.
        pods_range, services_range: names of secondary ranges; None: GKE makes them.
        private_nodes: nodes without public addresses.
        node_account: email of the nodes' Google service account.
        sync_secrets: Secret Manager secrets are copied to Kubernetes secrets.
        after: what must exist first; options of a component do not reach its children.
        labels: for cost reports; GKE's cost allocation adds namespaces and pod labels.
        settings: the rest.
    """

    project: str
    region: str
    name: str
    minimum_version: str
    network: pulumi.Input[str]
    subnetwork: pulumi.Input[str]
    pods_range: str | None
    services_range: str | None
    private_nodes: bool
    node_account: pulumi.Input[str]
    sync_secrets: bool
    after: Sequence[pulumi.Resource]
    labels: dict[str, str]
    settings: schema.Cluster


class Cluster(pulumi.ComponentResource):
    """The cluster with what the runs need: Ray operator, Cloud Storage FUSE, Secret Manager.

    Attributes:
        cluster: the GKE cluster.
        kubeconfig: secret; its user is whoever calls gke-gcloud-auth-plugin.
        provider: makes the Kubernetes objects.
    """

    cluster: gcp.container.Cluster
    kubeconfig: pulumi.Output[str]
    provider: k8s.Provider

    def __init__(
        self, name: str, args: ClusterArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gemma:infra:Cluster", name, None, opts)
        self.cluster = gcp.container.Cluster(
            name,
            name=args.name,
            project=args.project,
            location=args.region,
            enable_autopilot=True,
            deletion_protection=args.settings.deletion_protection,
            release_channel=gcp.container.ClusterReleaseChannelArgs(
                channel=args.settings.release_channel
            ),
            min_master_version=_minimum_version(args),
            network=args.network,
            subnetwork=args.subnetwork,
            ip_allocation_policy=_ranges(args),
            private_cluster_config=gcp.container.ClusterPrivateClusterConfigArgs(
                enable_private_nodes=args.private_nodes
            ),
            control_plane_endpoints_config=_endpoints(args.settings),
            master_authorized_networks_config=_authorized(args.settings),
            # On Autopilot the nodes' account can only be given here.
            cluster_autoscaling=gcp.container.ClusterClusterAutoscalingArgs(
                auto_provisioning_defaults=(
                    gcp.container.ClusterClusterAutoscalingAutoProvisioningDefaultsArgs(
                        service_account=args.node_account
                    )
                )
            ),
            addons_config=gcp.container.ClusterAddonsConfigArgs(
                ray_operator_configs=[
                    gcp.container.ClusterAddonsConfigRayOperatorConfigArgs(
                        enabled=True,
                        ray_cluster_logging_config=gcp.container.ClusterAddonsConfigRayOperatorConfigRayClusterLoggingConfigArgs(
                            enabled=True
                        ),
                        ray_cluster_monitoring_config=gcp.container.ClusterAddonsConfigRayOperatorConfigRayClusterMonitoringConfigArgs(
                            enabled=True
                        ),
                    )
                ],
                gcs_fuse_csi_driver_config=(
                    gcp.container.ClusterAddonsConfigGcsFuseCsiDriverConfigArgs(enabled=True)
                ),
            ),
            secret_manager_config=gcp.container.ClusterSecretManagerConfigArgs(enabled=True),
            secret_sync_config=_secret_sync() if args.sync_secrets else None,
            cost_management_config=gcp.container.ClusterCostManagementConfigArgs(enabled=True),
            maintenance_policy=_maintenance(args.settings.maintenance),
            resource_labels=args.labels,
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=list(args.after),
                protect=args.settings.deletion_protection,
                custom_timeouts=pulumi.CustomTimeouts(create="60m", update="60m", delete="60m"),
            ),
        )
        self.kubeconfig = pulumi.Output.secret(_kubeconfig(self.cluster, args))
        self.provider = k8s.Provider(
            name,
            kubeconfig=self.kubeconfig,
            # Without it a new certificate in the kubeconfig replaces every object
            # (pulumi-kubernetes#4019).
            cluster_identifier=f"{args.project}/{args.region}/{args.name}",
            # A cluster that somebody deleted by hand must not block `pulumi destroy` (#2463).
            delete_unreachable=True,
            enable_server_side_apply=True,
            # A renewed token is written in place; a replaced secret would be missing for a moment.
            enable_secret_mutable=True,
            opts=pulumi.ResourceOptions(
                parent=self,
                # The identifier stays when the cluster is replaced, but its objects are gone.
                replace_with=[self.cluster],
            ),
        )
        self.register_outputs({"name": self.cluster.name, "kubeconfig": self.kubeconfig})


def _minimum_version(args: ClusterArgs) -> str:
    wanted = [args.minimum_version] + [SECRET_SYNC_VERSION] * args.sync_secrets
    return max(wanted, key=lambda version: [int(part) for part in re.findall(r"\d+", version)])


def _secret_sync() -> gcp.container.ClusterSecretSyncConfigArgs:
    """Without rotation GKE copies a secret once, and a renewed token would never reach a pod."""
    return gcp.container.ClusterSecretSyncConfigArgs(
        enabled=True,
        rotation_config=gcp.container.ClusterSecretSyncConfigRotationConfigArgs(enabled=True),
    )


def _ranges(args: ClusterArgs) -> gcp.container.ClusterIpAllocationPolicyArgs:
    return gcp.container.ClusterIpAllocationPolicyArgs(
        cluster_secondary_range_name=args.pods_range,
        services_secondary_range_name=args.services_range,
    )


def _endpoints(
    settings: schema.Cluster,
) -> gcp.container.ClusterControlPlaneEndpointsConfigArgs:
    """The DNS endpoint needs no open address: IAM (container.clusters.connect) decides."""
    dns = settings.control_plane == "dns"
    return gcp.container.ClusterControlPlaneEndpointsConfigArgs(
        dns_endpoint_config=gcp.container.ClusterControlPlaneEndpointsConfigDnsEndpointConfigArgs(
            allow_external_traffic=dns
        ),
        ip_endpoints_config=gcp.container.ClusterControlPlaneEndpointsConfigIpEndpointsConfigArgs(
            enabled=not dns or bool(settings.authorized_networks)
        ),
    )


def _authorized(
    settings: schema.Cluster,
) -> gcp.container.ClusterMasterAuthorizedNetworksConfigArgs | None:
    if not settings.authorized_networks:
        return None
    return gcp.container.ClusterMasterAuthorizedNetworksConfigArgs(
        cidr_blocks=[
            gcp.container.ClusterMasterAuthorizedNetworksConfigCidrBlockArgs(
                cidr_block=network.cidr, display_name=network.name
            )
            for network in settings.authorized_networks
        ]
    )


def _maintenance(settings: schema.Maintenance) -> gcp.container.ClusterMaintenancePolicyArgs:
    return gcp.container.ClusterMaintenancePolicyArgs(
        recurring_window=gcp.container.ClusterMaintenancePolicyRecurringWindowArgs(
            start_time=settings.start, end_time=settings.end, recurrence=settings.recurrence
        ),
        maintenance_exclusions=[
            gcp.container.ClusterMaintenancePolicyMaintenanceExclusionArgs(
                exclusion_name=exclusion.name,
                start_time=exclusion.start,
                end_time=exclusion.end,
                exclusion_options=gcp.container.ClusterMaintenancePolicyMaintenanceExclusionExclusionOptionsArgs(
                    scope=exclusion.scope,
                    end_time_behavior=None if exclusion.end else "UNTIL_END_OF_SUPPORT",
                ),
            )
            for exclusion in settings.exclusions
        ],
    )


def _kubeconfig(cluster: gcp.container.Cluster, args: ClusterArgs) -> pulumi.Output[str]:
    """One context whose user asks gke-gcloud-auth-plugin (pulumi-kubernetes#3369)."""

    def render(values: list[str]) -> str:
        _, server, authority = values
        # The DNS endpoint has a public certificate; the cluster's own authority did not sign it.
        trust = {"certificate-authority-data": authority} if authority else {}
        user = {
            "exec": {
                "apiVersion": "client.authentication.k8s.io/v1beta1",
                "command": "gke-gcloud-auth-plugin",
                "installHint": "gcloud components install gke-gcloud-auth-plugin",
                "provideClusterInfo": True,
                "interactiveMode": "Never",
            }
        }
        return json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [
                    {"name": args.name, "cluster": {"server": f"https://{server}", **trust}}
                ],
                "users": [{"name": args.name, "user": user}],
                "contexts": [
                    {"name": args.name, "context": {"cluster": args.name, "user": args.name}}
                ],
                "current-context": args.name,
            }
        )

    if args.settings.control_plane == "dns":
        server = cluster.control_plane_endpoints_config.apply(
            lambda config: (
                (config.dns_endpoint_config and config.dns_endpoint_config.endpoint) or ""
            )
        )
        authority: pulumi.Output[str] = pulumi.Output.from_input("")
    else:
        server = cluster.endpoint
        authority = cluster.master_auth.apply(lambda auth: auth.cluster_ca_certificate or "")
    # With the id, all of it is unknown until the cluster exists.
    return pulumi.Output.all(cluster.id, server, authority).apply(render)
