"""The stand-in gcp provider under the real engine: what the real one does, and its bad days."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox import Sandbox
from sandbox.cloud import set_faults
from sandbox.cloud.gcp.store import Store

CLUSTER = "gcp:container/cluster:Cluster"
PROJECT = "proj-standin"

PROGRAM = """
import json
import pulumi, pulumi_gcp as gcp

config = pulumi.Config()
labels = {"team": config.get("team") or "ml"}
region = "us-central1"
needed = ["compute", "container", "iam", "storage"]
apis = [gcp.projects.Service(api, service=f"{api}.googleapis.com") for api in needed]
first = pulumi.ResourceOptions(depends_on=apis)
network = gcp.compute.Network("net", name="standin", auto_create_subnetworks=False, opts=first)
subnetwork = gcp.compute.Subnetwork(
    "sub", name="standin", network=network.id, ip_cidr_range="10.10.0.0/20", region=region,
    secondary_ip_ranges=[{"range_name": "pods", "ip_cidr_range": "10.20.0.0/16"}])
account = gcp.serviceaccount.Account("trainer", account_id="standin-trainer", opts=first)
bucket = gcp.storage.Bucket(
    "runs", name="standin-runs", location=region, labels=labels, opts=first,
    force_destroy=config.get_bool("force") is not False,
    lifecycle_rules=[{"action": {"type": "Delete"}, "condition": {"age": 30}}])
cluster = gcp.container.Cluster(
    "cluster", name="standin", location=region, enable_autopilot=True, network=network.id,
    subnetwork=subnetwork.id, deletion_protection=config.get_bool("protect") or False,
    ip_allocation_policy={"cluster_secondary_range_name": "pods"}, resource_labels=labels,
    addons_config={"gcs_fuse_csi_driver_config": {"enabled": True}}, opts=first)
gcp.storage.BucketIAMMember(
    "write", bucket=bucket.name, role="roles/storage.objectUser", member=account.member)
gcp.serviceaccount.IAMMember(
    "identity", service_account_id=account.name, role="roles/iam.workloadIdentityUser",
    member=cluster.workload_identity_config.workload_pool.apply(
        lambda pool: f"serviceAccount:{pool}[gemma/trainer]"))
"""

REST = """
needed = ["cloudresourcemanager", "artifactregistry", "secretmanager", "logging", "monitoring"]
first = pulumi.ResourceOptions(
    depends_on=[gcp.projects.Service(api, service=f"{api}.googleapis.com") for api in needed])
router = gcp.compute.Router("router", name="standin", network=network.id, region=region)
gcp.compute.RouterNat(
    "nat", name="standin", router=router.name, region=region,
    nat_ip_allocate_option="AUTO_ONLY",
    source_subnetwork_ip_ranges_to_nat="ALL_SUBNETWORKS_ALL_IP_RANGES")
gcp.projects.IAMMember(
    "log", project=pulumi.Config("gcp").require("project"), role="roles/logging.logWriter",
    member=account.member, opts=first)
repository = gcp.artifactregistry.Repository(
    "images", repository_id="standin", location=region, format="DOCKER", labels=labels, opts=first)
gcp.artifactregistry.RepositoryIamMember(
    "pull", repository=repository.name, location=region, role="roles/artifactregistry.reader",
    member=account.member)
secret = gcp.secretmanager.Secret(
    "token", secret_id="standin", replication={"auto": {}}, opts=first)
gcp.secretmanager.SecretVersion(
    "value", secret=secret.id, secret_data=pulumi.Output.secret("hf_not_to_be_seen"))
gcp.secretmanager.SecretIamMember(
    "read", secret_id=secret.id, role="roles/secretmanager.secretAccessor", member=account.member)
gcp.logging.Metric("loss", name="standin/loss", filter="severity>=INFO", opts=first)
gcp.monitoring.Dashboard("board", dashboard_json=json.dumps({"displayName": "x"}), opts=first)
channel = gcp.monitoring.NotificationChannel(
    "mail", type="email", labels={"email_address": "a@example.com"}, opts=first)
gcp.monitoring.AlertPolicy(
    "alert", display_name="x", combiner="OR", notification_channels=[channel.name],
    conditions=[{"display_name": "c", "condition_absent": {"duration": "300s", "filter": "x"}}])
pulumi.export("endpoint", cluster.endpoint)
"""


class Stack:
    """The first program above as a stack of its own in the shared sandbox."""

    def __init__(self, sandbox: Sandbox, folder: Path) -> None:
        self.sandbox, self.folder = sandbox, folder
        self.cloud = sandbox.folder.cloud
        folder.mkdir(exist_ok=True)
        (folder / "Pulumi.yaml").write_text("name: standin\nruntime: python\n")
        (folder / "__main__.py").write_text(PROGRAM)
        self.pulumi("stack", "init", folder.parent.name)
        self.pulumi("config", "set", "gcp:project", PROJECT)
        self.pulumi("config", "set", "gcp:region", "us-central1")

    def pulumi(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self.sandbox.run(
            ["pulumi", *arguments, "--non-interactive"], cwd=self.folder, check=check, timeout=240
        )

    def up(self, check: bool = True) -> tuple[dict[str, int], str]:
        """Number of resources by operation, and what was said about Google's resources."""
        done = self.pulumi("up", "--yes", "--skip-preview", "--json", check=check)
        counts: dict[str, int] = {}
        said: list[str] = []
        for line in done.stdout.splitlines():
            event = json.loads(line) if line.startswith("{") else {}
            counts |= (event.get("summaryEvent") or {}).get("resourceChanges") or {}
            diagnostic = event.get("diagnosticEvent") or {}
            if "gcp:" in diagnostic.get("urn", ""):
                said.append(diagnostic["message"])
        return counts, "\n".join(said)

    def config(self, key: str, value: str) -> None:
        self.pulumi("config", "set", f"standin:{key}", value)

    def resources(self) -> list[dict[str, Any]]:
        exported = json.loads(self.pulumi("stack", "export").stdout)
        return exported["deployment"].get("resources", [])

    def mine(self) -> list[dict[str, Any]]:
        """What exists of this program in the stand-in cloud."""
        return [r for r in self.sandbox.cloud_state() if "::standin::" in r["urn"]]


@pytest.fixture
def stack(sandbox: Sandbox, tmp_path: Path) -> Iterator[Stack]:
    made = Stack(sandbox, tmp_path / "program")
    try:
        yield made
    finally:
        set_faults(made.cloud)
        made.pulumi("destroy", "--yes", "--skip-preview", "--remove", check=False)
        left = made.mine()
        for record in left:  # the other tests must not suffer from it
            Store(made.cloud).remove(record["type"], record["id"])
        assert left == []


def test_everything_comes_changes_and_goes(stack: Stack) -> None:
    (stack.folder / "__main__.py").write_text(PROGRAM + REST)
    counts, _ = stack.up()
    assert set(counts) == {"create"}
    assert len(stack.mine()) == counts["create"] - 1  # the stack itself is no resource of Google's

    assert stack.up()[0] == {"same": counts["create"]}

    stack.config("team", "research")
    assert stack.up()[0] == {"same": counts["create"] - 3, "update": 3}

    assert "hf_not_to_be_seen" not in stack.pulumi("stack", "export").stdout
    stack.pulumi("refresh", "--yes", "--skip-preview", "--expect-no-changes")
    stack.pulumi("destroy", "--yes", "--skip-preview")
    assert stack.mine() == []
    assert not list((stack.sandbox.folder.root / "storage").glob("standin-runs"))


def test_a_refusal_keeps_what_was_made_and_the_next_up_goes_on(stack: Stack) -> None:
    for fault, words in (
        ({"type": "gcp:compute/network:Network", "fault": "api"}, "has not been used in project"),
        ({"type": CLUSTER, "fault": "quota"}, "Quota exceeded"),
        ({"name": "identity", "fault": "account"}, "Service account .* does not exist"),
    ):
        set_faults(stack.cloud, {"operation": "create", **fault})
        _, text = stack.up(check=False)
        assert re.search(words, text), text
        assert "Traceback" not in text
        made = {r["urn"] for r in stack.mine()}
        assert made
        assert made <= {r["urn"] for r in stack.resources()}
    counts, _ = stack.up()
    assert counts == {"create": 1, "same": len(stack.mine())}


def test_a_cluster_half_made_by_a_stock_out_is_taken_for_good_by_the_next_up(stack: Stack) -> None:
    """The trap of the real provider: who looks at the exit code alone does not notice."""
    set_faults(stack.cloud, {"type": CLUSTER, "operation": "create", "fault": "late"})
    _, text = stack.up(check=False)
    assert "does not have enough resources" in text
    (cluster,) = [r for r in stack.resources() if r["type"] == CLUSTER]
    assert cluster["id"] == "projects/proj-standin/locations/us-central1/clusters/standin"
    assert "does not have enough resources" in cluster["initErrors"][0]
    counts, _ = stack.up()
    assert counts["update"] == 1


def test_what_must_not_be_lost_refuses_to_go(stack: Stack) -> None:
    stack.config("protect", "true")
    stack.config("force", "false")
    stack.up()
    code = (
        "from google.cloud import storage\n"
        "storage.Client().bucket('standin-runs').blob('a/b').upload_from_string('x')\n"
    )
    stack.sandbox.run(["python", "-c", code])
    done = stack.pulumi("destroy", "--yes", "--skip-preview", check=False)
    text = done.stdout + done.stderr
    assert done.returncode != 0
    assert "Cannot destroy cluster because deletion_protection is set to true" in text
    stack.config("protect", "false")
    stack.up()
    done = stack.pulumi("destroy", "--yes", "--skip-preview", check=False)
    text = done.stdout + done.stderr
    assert "Error trying to delete bucket standin-runs without `force_destroy` set to true" in text
    assert {r["type"].split(":")[-1] for r in stack.mine()} == {"Bucket", "Service"}
    stack.config("force", "true")
    stack.up()
