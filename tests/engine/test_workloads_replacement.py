"""A run that moves to other machines, by the real engine: same name, the old object gone first."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.engine.simulation import NAMESPACE, Simulation, wait_until

PROGRAM = """
import json, os
import pulumi, pulumi_kubernetes as k8s
from infra.schema import Settings
from workloads import Surroundings, deploy, plan

settings = Settings.model_validate(json.loads(os.environ["SETTINGS"]), by_name=True)
around = Surroundings(image="host/i@sha256:" + "0" * 64, image_key="key", bucket="b", project="p")
options = pulumi.ResourceOptions(provider=k8s.Provider("cluster"))
pulumi.export("runs", deploy(plan(settings, "key"), around, options))
"""
STACK = {"project": "my-project", "region": "r", "stack": "dev"}
ON_SPOT = {"capacity": "spot"}
RESERVED = {"capacity": "reservation", "reservation": "r1"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Simulation(tmp_path_factory.mktemp("replacement")) as simulation:
        simulation.add_nodes(2, prefix="spot", labels={"cloud.google.com/gke-spot": "true"})
        yield simulation


def start(cluster: Simulation, folder: Path, runs: dict, **keys: str) -> subprocess.Popen[str]:
    """`pulumi up` of these runs, under way."""
    settings = json.dumps({**STACK, **keys, "runs": runs})
    (folder / "Pulumi.yaml").write_text("name: runs\nruntime: python\n")
    (folder / "__main__.py").write_text(PROGRAM)
    cluster.sandbox.run(["pulumi", "stack", "select", "--create", folder.name], cwd=folder)
    return cluster.sandbox.popen(
        ["pulumi", "up", "--yes", "--skip-preview", "--non-interactive", "--json"],
        cwd=folder, env={"SETTINGS": settings},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def up(cluster: Simulation, folder: Path, runs: dict, **keys: str) -> dict[str, int]:
    """`pulumi up` to its end; what it changed."""
    process = start(cluster, folder, runs, **keys)
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, output[-3000:] + errors
    summary = [line for line in output.splitlines() if "resourceChanges" in line]
    changes = json.loads(summary[-1])["summaryEvent"]["resourceChanges"]
    return {kind: count for kind, count in changes.items() if kind != "same"}


def test_the_old_job_is_gone_before_the_new_one_of_its_name_comes(cluster, tmp_path):
    runs = {"sql": {"workload": "gemma4-text"}}
    up(cluster, tmp_path, runs, **ON_SPOT)
    assert up(cluster, tmp_path, runs, **ON_SPOT) == {}
    (pod,) = wait_until("its pod", cluster.gpu_pods)
    name, job = pod["metadata"]["name"], pod["metadata"]["ownerReferences"][0]
    # As if a checkpoint were being written in the grace period.
    patch = ["patch", "pod", name, "-n", NAMESPACE, "--type=merge", "-p"]
    cluster.kubectl(*patch, '{"metadata": {"finalizers": ["gemma.test/checkpoint"]}}')
    moving = start(cluster, tmp_path, runs, **RESERVED)
    wait_until(
        "the old job's deletion",
        lambda: cluster.get("job", job["name"])["metadata"].get("deletionTimestamp"),
    )
    with pytest.raises(subprocess.TimeoutExpired):
        moving.wait(8)
    cluster.kubectl(*patch, '{"metadata": {"finalizers": null}}')
    output, errors = moving.communicate(timeout=120)
    assert moving.returncode == 0, output[-3000:] + errors
    moved = cluster.get("job", job["name"])
    assert moved["metadata"]["uid"] != job["uid"]
    assert "deletionTimestamp" not in moved["metadata"]
    selector = moved["spec"]["template"]["spec"]["nodeSelector"]
    assert selector["cloud.google.com/reservation-name"] == "r1"


def test_a_ray_job_is_replaced_although_kuberay_ignores_changes(cluster, tmp_path):
    runs = {"vision": {"workload": "gemma3-vision"}}
    up(cluster, tmp_path, runs, **ON_SPOT)
    (before,) = cluster.sandbox.objects("rayjobs", "-n", NAMESPACE)
    wait_until("the operator's finalizer", lambda: cluster.sandbox.objects(
        "rayjobs", "-n", NAMESPACE)[0]["metadata"].get("finalizers"))  # fmt: skip
    assert up(cluster, tmp_path, runs, **ON_SPOT) == {}
    deadline = {"vision": {"workload": "gemma3-vision", "max_hours": 1}}
    assert up(cluster, tmp_path, deadline, **ON_SPOT) == {"update": 1}
    assert up(cluster, tmp_path, deadline, **RESERVED) == {"replace": 1}
    (after,) = cluster.sandbox.objects("rayjobs", "-n", NAMESPACE)
    assert after["metadata"]["name"] == before["metadata"]["name"]
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
