"""google_container_cluster: an Autopilot cluster whose API server is the sandbox's own."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
from typing import Any, ClassVar

from sandbox.cloud.gcp.check import Rules, matches, one_of
from sandbox.cloud.gcp.errors import CloudError, bad_request
from sandbox.cloud.gcp.schema import Property
from sandbox.cloud.gcp.store import Record, Values, write_atomically
from sandbox.cloud.gcp.values import Sensitive, empty
from sandbox.cloud.gcp.world import World

from .base import Kind, must_exist
from .compute import network_path

CLUSTER = "gcp:container/cluster:Cluster"
VERSION = "1.35.4-gke.1396002"  # the sandbox's kube-apiserver is 1.35.4
SCOPES = [
    "https://www.googleapis.com/auth/devstorage.read_only",
    "https://www.googleapis.com/auth/logging.write",
    "https://www.googleapis.com/auth/monitoring",
]
COMPONENTS = re.compile(
    "SYSTEM_COMPONENTS|APISERVER|SCHEDULER|CONTROLLER_MANAGER|STORAGE|HPA|POD|DAEMONSET|DEPLOYMENT"
    "|STATEFULSET|WORKLOADS|CADVISOR|KUBELET|DCGM|JOBSET|KCP_CONNECTION|KCP_SSHD|KCP_HPA"
)


class Cluster(Kind):
    token = CLUSTER
    service = "container.googleapis.com"
    rules: ClassVar[Rules] = {
        "name": matches(
            r"(?=.{1,40}$)[a-z](?:[-a-z0-9]*[a-z0-9])?",
            '"{name}" can only contain lowercase letters, numbers and hyphens, must start with a '
            "letter, must end with a letter or a number and must be at most 40 characters long",
        ),
        "releaseChannel.channel": one_of("UNSPECIFIED", "RAPID", "REGULAR", "STABLE", "EXTENDED"),
        "ipAllocationPolicy.stackType": one_of("IPV4", "IPV4_IPV6"),
        "dnsConfig.clusterDns": one_of(
            "PROVIDER_UNSPECIFIED", "PLATFORM_DEFAULT", "CLOUD_DNS", "KUBE_DNS"
        ),
        "dnsConfig.clusterDnsScope": one_of("DNS_SCOPE_UNSPECIFIED", "CLUSTER_SCOPE", "VPC_SCOPE"),
    }
    links = frozenset({"network", "subnetwork"})
    replaced = frozenset({"dnsConfig.additiveVpcScopeDnsDomain"})

    def identity(self, inputs: Values, world: World) -> str:
        location = world.location(inputs)
        return f"projects/{world.of(inputs)}/locations/{location}/clusters/{inputs['name']}"

    def title(self, inputs: Values, world: World) -> str:
        return f"Already exists: {self.identity(inputs, world)}."

    def accept(self, inputs: Values, world: World) -> None:
        project = world.of(inputs)
        if inputs.get("enableAutopilot") and not re.fullmatch(
            r"[a-z]+-[a-z]+\d+", world.location(inputs)
        ):
            raise bad_request("Autopilot clusters must be regional clusters.")
        network = inputs.get("network", "default")
        if network.rsplit("/", 1)[-1] != "default":
            path = network_path(network, project)
            missing = f'Network "{path}" does not exist.'
            must_exist(world, "gcp:compute/network:Network", path, missing)
        for block in ("monitoringConfig", "loggingConfig"):
            for component in (inputs.get(block) or {}).get("enableComponents") or []:
                if not COMPONENTS.fullmatch(component):
                    raise bad_request(f"Invalid value for component: {component}")
        wanted = inputs.get("minMasterVersion")
        if wanted and version(wanted) > version(VERSION):
            raise bad_request(f'Master version "{wanted}" is unsupported.')
        account = node_account(inputs)
        if account and not world.account_exists(f"serviceAccount:{account}"):
            raise bad_request(f"The user does not have access to service account '{account}'")
        self.check_labels(inputs)

    def computed(self, inputs: Values, world: World, id_: str) -> Values:
        project, location = world.of(inputs), world.location(inputs)
        endpoint, authority = api_server(world)
        out: Values = {
            "endpoint": endpoint,
            "labelFingerprint": hashlib.sha256(
                json.dumps(inputs.get("resourceLabels", {}), sort_keys=True).encode()
            ).hexdigest()[:8],
            "location": location,
            "masterAuth": {
                "clientCertificate": "",
                "clientCertificateConfig": {"issueClientCertificate": False},
                "clientKey": "",
                "clusterCaCertificate": authority,
            },
            "masterVersion": VERSION,
            "network": network_path(inputs.get("network", "default"), project),
            "nodeVersion": VERSION,
            "selfLink": f"https://container.googleapis.com/v1beta1/{id_}",
            "workloadIdentityConfig": {"workloadPool": f"{project}.svc.id.goog"},
        }
        points = dict(inputs.get("controlPlaneEndpointsConfig") or {})
        points["dnsEndpointConfig"] = {
            **(points.get("dnsEndpointConfig") or {}),
            "endpoint": endpoint,
        }
        out["controlPlaneEndpointsConfig"] = points
        return out | self._normalised(inputs)

    def _normalised(self, inputs: Values) -> Values:
        """What Autopilot makes of settings that are not the user's to choose.

        They come back different from what was asked for, so the next update shows a change: the
        reason why the program must leave them out.
        """
        if not inputs.get("enableAutopilot"):
            return {}
        out: Values = {}
        if node := inputs.get("nodeConfig"):
            out["nodeConfig"] = {**node, "oauthScopes": SCOPES}
        scaling = inputs.get("clusterAutoscaling") or {}
        if (defaults := scaling.get("autoProvisioningDefaults")) and defaults.get("oauthScopes"):
            defaults = {**defaults, "oauthScopes": SCOPES}
            out["clusterAutoscaling"] = {**scaling, "autoProvisioningDefaults": defaults}
        dns = {
            "additiveVpcScopeDnsDomain": "",
            "clusterDns": "CLOUD_DNS",
            "clusterDnsDomain": "cluster.local",
            "clusterDnsScope": "CLUSTER_SCOPE",
            **(inputs.get("dnsConfig") or {}),
        }
        if domain := dns["additiveVpcScopeDnsDomain"]:
            dns["additiveVpcScopeDnsDomain"] = domain.rstrip(".") + "."
        out["dnsConfig"] = dns
        return out

    def generated(self, inputs: Values, world: World, id_: str) -> Values:
        location = world.location(inputs)
        return {
            "clusterIpv4Cidr": "10.20.0.0/16",
            "datapathProvider": "ADVANCED_DATAPATH",
            "defaultMaxPodsPerNode": 110,
            "enableIntranodeVisibility": True,
            "enterpriseConfig": {"clusterTier": "STANDARD", "desiredTier": ""},
            "gatewayApiConfig": {"channel": "CHANNEL_STANDARD"},
            "loggingConfig": {"enableComponents": ["SYSTEM_COMPONENTS", "WORKLOADS"]},
            "loggingService": "logging.googleapis.com/kubernetes",
            "monitoringService": "monitoring.googleapis.com/kubernetes",
            "networkingMode": "VPC_NATIVE",
            "nodeLocations": [f"{location}-{zone}" for zone in "abc"],
            "releaseChannel": {"channel": "REGULAR"},
            "servicesIpv4Cidr": "10.30.0.0/20",
            "verticalPodAutoscaling": {"enabled": True},
        }

    def same(self, path: str, old: Any, new: Any) -> bool:
        # Autopilot has its own DNS: of its settings only the added domain is compared.
        if path.startswith("dnsConfig."):
            return not path.endswith("additiveVpcScopeDnsDomain")
        if path == "dnsConfig" and new is None:
            return True
        return super().same(path, old, new)

    def immutable(self, path: str, prop: Property, old: Any, new: Any) -> bool:
        if path == "nodeConfig" and isinstance(new, dict):
            return bool(new.get("oauthScopes"))  # of its fields only the scopes cannot change
        if path == "privateClusterConfig":
            return False
        return super().immutable(path, prop, old, new)

    def mark(self, state: Values) -> Values:
        marked = super().mark(state)
        if isinstance(auth := marked.get("masterAuth"), dict):
            marked["masterAuth"] = {**auth, "clientKey": Sensitive(auth.get("clientKey", ""))}
        return marked

    def created(self, record: Record, world: World) -> None:
        pools: list[str] = world.store.fact("identity-pools") or []
        pool = f"{world.of(record.inputs)}.svc.id.goog"
        if pool not in pools:
            world.store.set_fact("identity-pools", [*pools, pool])  # it outlives the cluster
        self.changed(record, world)

    def changed(self, record: Record, world: World) -> None:
        """Tells the sandbox's servers which add-ons the cluster has."""
        if world.folder is not None:
            addons = record.inputs.get("addonsConfig") or {}
            ray = any(item.get("enabled") for item in addons.get("rayOperatorConfigs") or [])
            told = {"id": record.id, "name": record.inputs["name"], "ray": ray}
            write_atomically(world.folder / "cluster.json", json.dumps(told))

    def deleting(self, record: Record, world: World) -> None:
        if record.state.get("deletionProtection", True):
            raise CloudError(
                "Cannot destroy cluster because deletion_protection is set to true. Set it to "
                "false to proceed with instance deletion."
            )
        if world.folder is not None:
            (world.folder / "cluster.json").unlink(missing_ok=True)
            # The sandbox (sandbox/cluster.py) removes this once the API server is empty again.
            deadline = time.monotonic() + 120
            while (world.folder / "cluster-objects").exists() and time.monotonic() < deadline:
                time.sleep(0.1)


def api_server(world: World) -> tuple[str, str]:
    """Address (HOST:PORT) and base64 CA certificate of the API server that plays the cluster's."""
    endpoint = world.store.fact("api-server")
    if world.folder is None or endpoint is None:
        return "198.51.100.1", "bm8gc2VydmVy"  # a documentation address: there is no server
    authority = (world.folder.parent / "pki" / "ca.crt").read_bytes()
    return endpoint, base64.b64encode(authority).decode()


def node_account(inputs: Values) -> str | None:
    scaling = inputs.get("clusterAutoscaling") or {}
    account = (scaling.get("autoProvisioningDefaults") or {}).get("serviceAccount")
    return None if empty(account) or account == "default" else str(account)


def version(text: str) -> tuple[int, ...]:
    """1.32.2-gke.1422000 as numbers that compare."""
    return tuple(int(number) for number in re.findall(r"\d+", text))
