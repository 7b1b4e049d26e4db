"""The stand-in gcp provider against what the real one was seen to do with one changed input.

The tables below are observations of the real provider (its 9.35 line), not of the stand-in: what
its preview refuses and accepts, which change replaces a resource, the ids that it gives.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pulumi.provider.experimental import provider as api

from sandbox.cloud.gcp.errors import CloudError
from sandbox.cloud.gcp.provider import Google
from sandbox.cloud.gcp.values import pack, unpack

CLUSTER = "gcp:container/cluster:Cluster"
PROJECT = "proj-sample"


class Cloud:
    """The provider of one project, called as the engine calls it."""

    def __init__(self, folder: Path) -> None:
        self.google = Google(folder, None)
        args = pack({"project": PROJECT, "region": "us-central1"})
        asyncio.run(self.google.configure(api.ConfigureRequest({}, args, True, False)))

    def check(self, type_: str, inputs: dict[str, Any], name: str = "it") -> api.CheckResponse:
        request = api.CheckRequest(urn(type_, name), {}, pack(inputs), b"seed")
        return asyncio.run(self.google.check(request))

    def failures(self, type_: str, inputs: dict[str, Any]) -> str:
        return "\n".join(f.reason for f in self.check(type_, inputs).failures or [])

    def create(self, type_: str, inputs: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        response = self.check(type_, inputs)
        assert not response.failures, [f.reason for f in response.failures]
        assert response.inputs is not None
        request = api.CreateRequest(urn(type_, "it"), response.inputs, 0, False)
        created = asyncio.run(self.google.create(request))
        assert created.resource_id is not None
        return created.resource_id, created.properties

    def change(self, type_: str, inputs: dict[str, Any], changed: dict[str, Any]) -> str:
        """same, update or replace: what changing some inputs of a new resource does."""
        id_, state = self.create(type_, inputs)
        checked = self.check(type_, {**inputs, **changed})
        if checked.failures:
            return "refuse"
        assert checked.inputs is not None
        request = api.DiffRequest(urn(type_, "it"), id_, state, checked.inputs, [])
        diff = asyncio.run(self.google.diff(request))
        return "replace" if diff.replaces else "update" if diff.changes else "same"


def urn(type_: str, name: str) -> str:
    return f"urn:pulumi:dev::gemma::gemma:infra:Some${type_}::{name}"


@pytest.fixture
def cloud(tmp_path: Path) -> Cloud:
    return Cloud(tmp_path)


BASE: dict[str, dict[str, Any]] = {
    CLUSTER: {
        "name": "ray",
        "location": "us-central1",
        "enableAutopilot": True,
        "ipAllocationPolicy": {"stackType": "IPV4"},
        "deletionProtection": False,
    },
    "gcp:storage/bucket:Bucket": {"name": "proj-sample-runs", "location": "US"},
    "gcp:serviceaccount/account:Account": {"accountId": "gemma-tuning"},
    "gcp:artifactregistry/repository:Repository": {"repositoryId": "gemma", "format": "DOCKER"},
    "gcp:secretmanager/secret:Secret": {"secretId": "hf-token", "replication": {"auto": {}}},
    "gcp:compute/network:Network": {"name": "net", "autoCreateSubnetworks": False},
    "gcp:compute/subnetwork:Subnetwork": {
        "name": "subnet",
        "network": "default",
        "ipCidrRange": "10.10.0.0/20",
        "region": "us-central1",
    },
    "gcp:compute/router:Router": {"name": "router", "network": "default"},
    "gcp:compute/firewall:Firewall": {"name": "fw", "network": "default"},
    "gcp:iam/workloadIdentityPool:WorkloadIdentityPool": {"workloadIdentityPoolId": "github-pool"},
    "gcp:projects/iAMMember:IAMMember": {
        "project": PROJECT,
        "role": "roles/monitoring.metricWriter",
        "member": "user:bob@example.com",
    },
    "gcp:projects/service:Service": {"service": "compute.googleapis.com"},
    "gcp:monitoring/dashboard:Dashboard": {"dashboardJson": '{"displayName": "a"}'},
    "gcp:monitoring/notificationChannel:NotificationChannel": {"type": "email"},
    "gcp:logging/metric:Metric": {"name": "train/steps", "filter": "a"},
    "gcp:monitoring/alertPolicy:AlertPolicy": {
        "displayName": "a",
        "combiner": "OR",
        "conditions": [{"displayName": "c"}],
    },
}

CHANGES = [
    (CLUSTER, "replace", {"name": "other"}),
    (CLUSTER, "replace", {"location": "us-east1"}),
    (CLUSTER, "replace", {"network": "other"}),
    (CLUSTER, "replace", {"subnetwork": "other"}),
    (CLUSTER, "replace", {"enableAutopilot": False}),
    (CLUSTER, "replace", {"ipAllocationPolicy": {"clusterIpv4CidrBlock": "/16"}}),
    (CLUSTER, "replace", {"initialNodeCount": 2}),
    (CLUSTER, "replace", {"description": "x"}),
    (CLUSTER, "replace", {"nodeConfig": {"oauthScopes": ["https://x/cloud-platform"]}}),
    (CLUSTER, "replace", {"datapathProvider": "LEGACY_DATAPATH"}),
    (CLUSTER, "replace", {"confidentialNodes": {"enabled": True}}),
    (CLUSTER, "replace", {"project": "proj-other"}),
    (CLUSTER, "replace", {"networkingMode": "ROUTES"}),
    (CLUSTER, "update", {"privateClusterConfig": {"enablePrivateNodes": True}}),
    (CLUSTER, "update", {"nodeConfig": {"machineType": "n2-standard-4"}}),
    (CLUSTER, "update", {"nodeLocations": ["us-central1-a"]}),
    (CLUSTER, "update", {"releaseChannel": {"channel": "RAPID"}}),
    (CLUSTER, "update", {"minMasterVersion": "1.33.1"}),
    (CLUSTER, "update", {"secretManagerConfig": {"enabled": True}}),
    (CLUSTER, "update", {"deletionProtection": True}),
    (CLUSTER, "update", {"allowNetAdmin": True}),
    (CLUSTER, "update", {"workloadIdentityConfig": {"workloadPool": "x.svc.id.goog"}}),
    (CLUSTER, "update", {"clusterAutoscaling": {"autoscalingProfile": "BALANCED"}}),
    (CLUSTER, "same", {"dnsConfig": {"clusterDnsScope": "VPC_SCOPE"}}),
    (CLUSTER, "refuse", {"clusterIpv4Cidr": "10.0.0.0/16"}),
    ("gcp:storage/bucket:Bucket", "replace", {"name": "other-bucket"}),
    ("gcp:storage/bucket:Bucket", "replace", {"location": "EU"}),
    ("gcp:storage/bucket:Bucket", "replace", {"hierarchicalNamespace": {"enabled": True}}),
    ("gcp:storage/bucket:Bucket", "replace", {"customPlacementConfig": {"dataLocations": ["US"]}}),
    ("gcp:storage/bucket:Bucket", "update", {"storageClass": "NEARLINE"}),
    ("gcp:storage/bucket:Bucket", "update", {"uniformBucketLevelAccess": True}),
    ("gcp:storage/bucket:Bucket", "update", {"publicAccessPrevention": "enforced"}),
    ("gcp:storage/bucket:Bucket", "update", {"labels": {"a": "b"}}),
    ("gcp:storage/bucket:Bucket", "update", {"forceDestroy": True}),
    ("gcp:storage/bucket:Bucket", "update", {"rpo": "ASYNC_TURBO"}),
    ("gcp:storage/bucket:Bucket", "same", {"location": "us"}),
    ("gcp:serviceaccount/account:Account", "replace", {"accountId": "gemma-other"}),
    ("gcp:serviceaccount/account:Account", "update", {"displayName": "x"}),
    ("gcp:artifactregistry/repository:Repository", "replace", {"format": "PYTHON"}),
    ("gcp:artifactregistry/repository:Repository", "replace", {"repositoryId": "other"}),
    ("gcp:artifactregistry/repository:Repository", "replace", {"location": "us-east1"}),
    ("gcp:artifactregistry/repository:Repository", "replace", {"mode": "REMOTE_REPOSITORY"}),
    ("gcp:artifactregistry/repository:Repository", "replace", {"kmsKeyName": "k"}),
    ("gcp:secretmanager/secret:Secret", "replace", {"secretId": "other"}),
    (
        "gcp:secretmanager/secret:Secret",
        "replace",
        {"replication": {"userManaged": {"replicas": [{"location": "us-east1"}]}}},
    ),
    ("gcp:secretmanager/secret:Secret", "update", {"ttl": "3600s"}),
    ("gcp:compute/network:Network", "replace", {"name": "other"}),
    ("gcp:compute/network:Network", "replace", {"autoCreateSubnetworks": True}),
    ("gcp:compute/network:Network", "replace", {"description": "x"}),
    ("gcp:compute/network:Network", "update", {"mtu": 1500}),
    ("gcp:compute/network:Network", "update", {"routingMode": "GLOBAL"}),
    ("gcp:compute/subnetwork:Subnetwork", "replace", {"ipCidrRange": "10.50.0.0/20"}),
    ("gcp:compute/subnetwork:Subnetwork", "replace", {"name": "other"}),
    ("gcp:compute/subnetwork:Subnetwork", "replace", {"region": "us-east1"}),
    ("gcp:compute/subnetwork:Subnetwork", "update", {"ipCidrRange": "10.10.0.0/19"}),
    ("gcp:compute/subnetwork:Subnetwork", "update", {"stackType": "IPV4_IPV6"}),
    ("gcp:compute/router:Router", "replace", {"network": "other"}),
    ("gcp:compute/router:Router", "update", {"bgp": {"asn": 64514}}),
    ("gcp:compute/firewall:Firewall", "replace", {"name": "other"}),
    ("gcp:compute/firewall:Firewall", "replace", {"direction": "EGRESS"}),
    ("gcp:compute/firewall:Firewall", "update", {"network": "other"}),
    ("gcp:compute/firewall:Firewall", "update", {"sourceRanges": ["10.0.0.0/8"]}),
    (
        "gcp:iam/workloadIdentityPool:WorkloadIdentityPool",
        "replace",
        {"workloadIdentityPoolId": "gitlab-pool"},
    ),
    ("gcp:iam/workloadIdentityPool:WorkloadIdentityPool", "update", {"disabled": True}),
    ("gcp:projects/iAMMember:IAMMember", "replace", {"role": "roles/viewer"}),
    ("gcp:projects/iAMMember:IAMMember", "replace", {"member": "user:ann@example.com"}),
    ("gcp:projects/service:Service", "replace", {"service": "container.googleapis.com"}),
    ("gcp:projects/service:Service", "update", {"disableOnDestroy": True}),
    ("gcp:monitoring/dashboard:Dashboard", "update", {"dashboardJson": '{"displayName": "b"}'}),
    ("gcp:monitoring/notificationChannel:NotificationChannel", "update", {"type": "sms"}),
    ("gcp:logging/metric:Metric", "update", {"filter": "b"}),
    ("gcp:monitoring/alertPolicy:AlertPolicy", "update", {"combiner": "AND"}),
]


@pytest.mark.parametrize(
    ("type_", "expected", "changed"),
    CHANGES,
    ids=[f"{t.split(':')[-1]}-{next(iter(c))}-{e}-{i}" for i, (t, e, c) in enumerate(CHANGES)],
)
def test_a_change_does_what_it_did_to_the_real_resource(
    cloud: Cloud, type_: str, expected: str, changed: dict[str, Any]
) -> None:
    assert cloud.change(type_, BASE[type_], changed) == expected


@pytest.mark.parametrize("type_", BASE)
def test_nothing_differs_without_a_change(cloud: Cloud, type_: str) -> None:
    assert cloud.change(type_, BASE[type_], {}) == "same"


IDS = {
    CLUSTER: "projects/proj-sample/locations/us-central1/clusters/ray",
    "gcp:storage/bucket:Bucket": "proj-sample-runs",
    "gcp:serviceaccount/account:Account": (
        "projects/proj-sample/serviceAccounts/gemma-tuning@proj-sample.iam.gserviceaccount.com"
    ),
    "gcp:artifactregistry/repository:Repository": (
        "projects/proj-sample/locations/us-central1/repositories/gemma"
    ),
    "gcp:secretmanager/secret:Secret": "projects/proj-sample/secrets/hf-token",
    "gcp:compute/network:Network": "projects/proj-sample/global/networks/net",
    "gcp:compute/subnetwork:Subnetwork": (
        "projects/proj-sample/regions/us-central1/subnetworks/subnet"
    ),
    "gcp:compute/router:Router": "projects/proj-sample/regions/us-central1/routers/router",
    "gcp:compute/firewall:Firewall": "projects/proj-sample/global/firewalls/fw",
    "gcp:projects/iAMMember:IAMMember": (
        "proj-sample/roles/monitoring.metricWriter/user:bob@example.com"
    ),
    "gcp:projects/service:Service": "proj-sample/compute.googleapis.com",
    "gcp:logging/metric:Metric": "train/steps",
}


@pytest.mark.parametrize("type_", IDS)
def test_ids_are_google_s(cloud: Cloud, type_: str) -> None:
    assert cloud.create(type_, BASE[type_])[0] == IDS[type_]


REFUSED = [
    (CLUSTER, {"releaseChannel": {"channel": "FAST"}}, "channel"),
    (CLUSTER, {"ipAllocationPolicy": {"stackType": "IPV6"}}, "stack_type"),
    (CLUSTER, {"dnsConfig": {"clusterDnsScope": "WORLD"}}, "cluster_dns_scope"),
    (CLUSTER, {"name": "a" * 41}, "at most 40"),
    (CLUSTER, {"name": "Ray"}, "lowercase"),
    (CLUSTER, {"nodePools": [{"name": "x"}]}, "conflicts with enable_autopilot"),
    (CLUSTER, {"removeDefaultNodePool": True}, "conflicts with enable_autopilot"),
    (CLUSTER, {"enableShieldedNodes": True}, "conflicts with enable_autopilot"),
    (CLUSTER, {"defaultMaxPodsPerNode": 32}, "conflicts with enable_autopilot"),
    (CLUSTER, {"enableIntranodeVisibility": True}, "conflicts with enable_autopilot"),
    (CLUSTER, {"addonsConfig": {"rayOperatorConfigs": [{}]}}, '"enabled" is required'),
    (CLUSTER, {"nodeConfigs": {}}, "Invalid or unknown key"),
    ("gcp:serviceaccount/account:Account", {"accountId": "short"}, "account_id"),
    ("gcp:serviceaccount/account:Account", {"accountId": "Gemma-Tuning"}, "account_id"),
    ("gcp:projects/service:Service", {"service": "compute"}, "domain"),
    ("gcp:projects/iAMMember:IAMMember", {"member": "bob"}, "IAM members must have"),
    ("gcp:compute/subnetwork:Subnetwork", {"ipCidrRange": "10.0.0.0/40"}, "ip_cidr_range"),
    ("gcp:monitoring/dashboard:Dashboard", {"dashboardJson": "{"}, "invalid JSON"),
    (
        "gcp:iam/workloadIdentityPool:WorkloadIdentityPool",
        {"workloadIdentityPoolId": "gcp-pool"},
        "gcp-",
    ),
]


@pytest.mark.parametrize(("type_", "changed", "words"), REFUSED)
def test_preview_refuses(cloud: Cloud, type_: str, changed: dict[str, Any], words: str) -> None:
    assert words in cloud.failures(type_, {**BASE[type_], **changed})


ACCEPTED_AND_REFUSED_LATER = [
    ("gcp:storage/bucket:Bucket", {"name": "Upper_Case"}),
    ("gcp:storage/bucket:Bucket", {"storageClass": "FAST"}),
    ("gcp:storage/bucket:Bucket", {"publicAccessPrevention": "always"}),
    ("gcp:storage/bucket:Bucket", {"labels": {"Team": "ml"}}),
    ("gcp:artifactregistry/repository:Repository", {"format": "FLOPPY"}),
    ("gcp:projects/iAMMember:IAMMember", {"role": "viewer"}),
    (CLUSTER, {"location": "us-central1-a"}),
    (CLUSTER, {"monitoringConfig": {"enableComponents": ["EVERYTHING"]}}),
]


@pytest.mark.parametrize(("type_", "changed"), ACCEPTED_AND_REFUSED_LATER)
def test_only_google_refuses(cloud: Cloud, type_: str, changed: dict[str, Any]) -> None:
    inputs = {**BASE[type_], **changed}
    assert not cloud.failures(type_, inputs)
    with pytest.raises(CloudError, match="Error 400"):
        cloud.create(type_, inputs)


@pytest.mark.parametrize("name", ["effectiveLabels", "pulumiLabels"])
def test_label_outputs_are_secret_and_merged(cloud: Cloud, name: str) -> None:
    _, state = cloud.create(
        "gcp:storage/bucket:Bucket",
        {**BASE["gcp:storage/bucket:Bucket"], "labels": {"owner": "bob"}},
    )
    assert state[name].is_secret
    assert unpack(state)[0][name] == {"goog-pulumi-provisioned": "true", "owner": "bob"}


def test_scopes_on_autopilot_replace_the_cluster_on_every_up(cloud: Cloud) -> None:
    inputs = {**BASE[CLUSTER], "nodeConfig": {"oauthScopes": ["https://x/cloud-platform"]}}
    assert cloud.change(CLUSTER, inputs, {}) == "replace"


def test_a_name_is_made_up_only_once(cloud: Cloud) -> None:
    first, _ = unpack(cloud.check("gcp:compute/network:Network", {}).inputs or {})
    assert first["name"].startswith("it-")
    request = api.CheckRequest(urn("gcp:compute/network:Network", "it"), pack(first), {}, b"other")
    again, _ = unpack(asyncio.run(cloud.google.check(request)).inputs or {})
    assert again["name"] == first["name"]
