"""Networks: google_compute_network, _subnetwork, _router, _router_nat, _firewall."""

from __future__ import annotations

import ipaddress
from typing import Any, ClassVar

from sandbox.cloud.gcp.check import Rules, matches, one_of
from sandbox.cloud.gcp.errors import CloudError
from sandbox.cloud.gcp.schema import Property
from sandbox.cloud.gcp.store import Record, Values
from sandbox.cloud.gcp.world import World

from .base import Kind, must_exist, now, number

API = "https://www.googleapis.com/compute/v1/"
NAME = matches(r"(?:[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)")
NETWORK = "gcp:compute/network:Network"
SUBNETWORK = "gcp:compute/subnetwork:Subnetwork"
ROUTER = "gcp:compute/router:Router"


def cidr(value: Any) -> str | None:
    """The provider's check of an address range."""
    try:
        ipaddress.ip_network(str(value))
    except ValueError as error:
        return f'expected "{{name}}" to contain a valid network Value, got: {value} ({error})'
    return None


def network_path(reference: str, project: str) -> str:
    """`net`, `projects/P/global/networks/net` or the full address, as an id."""
    if "/" in reference:
        return reference.removeprefix(API).removeprefix(
            "https://compute.googleapis.com/compute/v1/"
        )
    return f"projects/{project}/global/networks/{reference}"


class Compute(Kind):
    service = "compute.googleapis.com"
    rules: ClassVar[Rules] = {"name": NAME}
    links = frozenset({"network", "subnetwork", "router"})

    def require_network(self, inputs: Values, world: World) -> str:
        path = network_path(inputs["network"], world.of(inputs))
        if not path.endswith("/default"):
            must_exist(world, NETWORK, path, f"The resource '{path}' was not found")
        return path

    def generated(self, inputs: Values, world: World, id_: str) -> Values:
        return {"creationTimestamp": now(), "selfLink": API + id_}


class Network(Compute):
    token = NETWORK
    updated = frozenset({"mtu"})

    def identity(self, inputs: Values, world: World) -> str:
        return f"projects/{world.of(inputs)}/global/networks/{inputs['name']}"

    def generated(self, inputs: Values, world: World, id_: str) -> Values:
        return {
            "bgpBestPathSelectionMode": "LEGACY",
            "mtu": inputs.get("mtu", 1460),
            "networkId": (identifier := number()),
            "numericId": identifier,
            "routingMode": "REGIONAL",
            "selfLink": API + id_,
        }

    def deleting(self, record: Record, world: World) -> None:
        for token in (SUBNETWORK, ROUTER, "gcp:compute/firewall:Firewall"):
            for user in world.store.list(token):
                if network_path(user.state["network"], record.state["project"]) == record.id:
                    raise CloudError(
                        "Error waiting for Deleting Network: The network resource "
                        f"'{record.id}' is already being used by '{user.id}'"
                    )


class Subnetwork(Compute):
    token = SUBNETWORK
    rules: ClassVar[Rules] = {
        "name": NAME,
        "ipCidrRange": cidr,
        "secondaryIpRanges.ipCidrRange": cidr,
    }

    def identity(self, inputs: Values, world: World) -> str:
        region = world.location(inputs)
        return f"projects/{world.of(inputs)}/regions/{region}/subnetworks/{inputs['name']}"

    def accept(self, inputs: Values, world: World) -> None:
        self.require_network(inputs, world)

    def computed(self, inputs: Values, world: World, id_: str) -> Values:
        network = network_path(inputs["network"], world.of(inputs))
        out: Values = {"network": API + network, "region": world.location(inputs)}
        if "ipCidrRange" in inputs:
            first = ipaddress.ip_network(inputs["ipCidrRange"], strict=False)[1]
            out["gatewayAddress"] = str(first)
        return out

    def generated(self, inputs: Values, world: World, id_: str) -> Values:
        return {
            **super().generated(inputs, world, id_),
            "privateIpv6GoogleAccess": "DISABLE_GOOGLE_ACCESS",
            "purpose": "PRIVATE",
            "stackType": "IPV4_ONLY",
            "subnetworkId": int(number(digits=15)),
        }

    def immutable(self, path: str, prop: Property, old: Any, new: Any) -> bool:
        if path == "ipCidrRange" and old and isinstance(new, str):
            # Google can widen a range in place, and only that.
            return not ipaddress.IPv4Network(old).subnet_of(ipaddress.IPv4Network(new))
        return super().immutable(path, prop, old, new)


class Router(Compute):
    token = ROUTER

    def identity(self, inputs: Values, world: World) -> str:
        region = world.location(inputs)
        return f"projects/{world.of(inputs)}/regions/{region}/routers/{inputs['name']}"

    def accept(self, inputs: Values, world: World) -> None:
        self.require_network(inputs, world)

    def computed(self, inputs: Values, world: World, id_: str) -> Values:
        network = network_path(inputs["network"], world.of(inputs))
        return {"network": API + network, "region": world.location(inputs)}


class RouterNat(Compute):
    token = "gcp:compute/routerNat:RouterNat"
    rules: ClassVar[Rules] = {
        "name": matches(
            r"(?:[a-z](?:[-a-z0-9]{0,61}[a-z0-9]))",
            '"{name}" must be between 2 and 63 characters long, in lower case',
        ),
        "natIpAllocateOption": one_of("MANUAL_ONLY", "AUTO_ONLY"),
        "sourceSubnetworkIpRangesToNat": one_of(
            "ALL_SUBNETWORKS_ALL_IP_RANGES",
            "ALL_SUBNETWORKS_ALL_PRIMARY_IP_RANGES",
            "LIST_OF_SUBNETWORKS",
        ),
    }

    def identity(self, inputs: Values, world: World) -> str:
        router = str(inputs["router"]).rsplit("/", 1)[-1]
        return f"{world.of(inputs)}/{world.location(inputs)}/{router}/{inputs['name']}"

    def accept(self, inputs: Values, world: World) -> None:
        router = str(inputs["router"]).rsplit("/", 1)[-1]
        path = f"projects/{world.of(inputs)}/regions/{world.location(inputs)}/routers/{router}"
        must_exist(world, ROUTER, path, f"The resource '{path}' was not found")

    def computed(self, inputs: Values, world: World, id_: str) -> Values:
        return {"region": world.location(inputs)}

    def generated(self, inputs: Values, world: World, id_: str) -> Values:
        return {"endpointTypes": ["ENDPOINT_TYPE_VM"]}


class Firewall(Compute):
    token = "gcp:compute/firewall:Firewall"
    updated = frozenset({"network"})

    def identity(self, inputs: Values, world: World) -> str:
        return f"projects/{world.of(inputs)}/global/firewalls/{inputs['name']}"

    def accept(self, inputs: Values, world: World) -> None:
        self.require_network(inputs, world)
        for value in inputs.get("sourceRanges") or []:
            if cidr(value):
                raise CloudError(
                    "googleapi: Error 400: Invalid value for field 'resource.sourceRanges': "
                    f"'{value}'. Must be a valid CIDR address range., invalid"
                )

    def computed(self, inputs: Values, world: World, id_: str) -> Values:
        return {"network": API + network_path(inputs["network"], world.of(inputs))}

    def generated(self, inputs: Values, world: World, id_: str) -> Values:
        return {**super().generated(inputs, world, id_), "direction": "INGRESS"}
