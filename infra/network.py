"""The network of the nodes: a VPC of their own, or one that exists."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from infra import schema

PODS = "pods"
SERVICES = "services"


@dataclass(frozen=True, kw_only=True)
class NetworkArgs:
    """
    Attributes:
        project: where a new network is made.
        region: of the subnetwork and the router.
        name: of a new network and what belongs to it.
        settings: an existing network, or the ranges of a new one.
    """

    project: str
    region: str
    name: str
    settings: schema.Network


class Network(pulumi.ComponentResource):
    """Network, subnetwork and the names of its secondary ranges.

    A new VPC has Private Google Access, so that pulls and uploads stay inside Google, and, for
    private nodes, a Cloud NAT, which the Hugging Face Hub is reached through. No firewall rule is
    made: GKE brings its own and nothing else needs to come in.

    Attributes:
        network, subnetwork: ids, or the names that the configuration gave.
        pods_range, services_range: names; None where GKE is to make the ranges.
    """

    network: pulumi.Output[str]
    subnetwork: pulumi.Output[str]
    pods_range: str | None
    services_range: str | None

    def __init__(
        self, name: str, args: NetworkArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gemma:infra:Network", name, None, opts)
        if args.settings.name and args.settings.subnetwork:
            self.network = pulumi.Output.from_input(args.settings.name)
            self.subnetwork = pulumi.Output.from_input(args.settings.subnetwork)
            self.pods_range = args.settings.pods_range
            self.services_range = args.settings.services_range
        else:
            self._make(name, args)
        self.register_outputs({"network": self.network, "subnetwork": self.subnetwork})

    def _make(self, name: str, args: NetworkArgs) -> None:
        child = pulumi.ResourceOptions(parent=self)
        network = gcp.compute.Network(
            name,
            name=args.name,
            project=args.project,
            auto_create_subnetworks=False,
            routing_mode="REGIONAL",
            opts=child,
        )
        subnetwork = gcp.compute.Subnetwork(
            name,
            name=args.name,
            project=args.project,
            region=args.region,
            network=network.id,
            ip_cidr_range=args.settings.cidr,
            private_ip_google_access=True,
            secondary_ip_ranges=[
                gcp.compute.SubnetworkSecondaryIpRangeArgs(
                    range_name=PODS, ip_cidr_range=args.settings.pods_cidr
                ),
                gcp.compute.SubnetworkSecondaryIpRangeArgs(
                    range_name=SERVICES, ip_cidr_range=args.settings.services_cidr
                ),
            ],
            opts=child,
        )
        if args.settings.private_nodes:
            router = gcp.compute.Router(
                name,
                name=args.name,
                project=args.project,
                region=args.region,
                network=network.id,
                opts=child,
            )
            gcp.compute.RouterNat(
                name,
                name=args.name,
                project=args.project,
                region=args.region,
                router=router.name,
                nat_ip_allocate_option="AUTO_ONLY",
                source_subnetwork_ip_ranges_to_nat="ALL_SUBNETWORKS_ALL_IP_RANGES",
                # Otherwise 64 connections to one address for a whole machine, and a closed one
                # counts for two minutes more: a download of weights opens more than that.
                enable_dynamic_port_allocation=True,
                min_ports_per_vm=64,
                max_ports_per_vm=8192,
                log_config=gcp.compute.RouterNatLogConfigArgs(enable=True, filter="ERRORS_ONLY"),
                opts=child,
            )
        self.network = network.id
        self.subnetwork = subnetwork.id
        self.pods_range = PODS
        self.services_range = SERVICES
