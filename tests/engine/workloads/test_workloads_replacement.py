"""A run that moves to other machines, by the real engine: same name, the old object gone first."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.engine.workloads.simulation import NAMESPACE, Simulation, wait_until

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


def test_runs_that_move_are_replaced_in_order(cluster, tmp_path):
    cluster.add_nodes(2, prefix="spot", labels={"cloud.google.com/gke-spot": "true"})
    runs = {"sql": {"workload": "gemma4-text"}, "vision": {"workload": "gemma3-vision"}}
    up(cluster, tmp_path, runs, **ON_SPOT)
    (pod,) = wait_until("the Job's pod", lambda: trainers(cluster))
    (ray_job,) = wait_until("the operator's finalizer", lambda: finalized(cluster))
    assert up(cluster, tmp_path, runs, **ON_SPOT) == {}

    shorter = {name: {**run, "max_hours": 1} for name, run in runs.items()}
    assert up(cluster, tmp_path, shorter, **ON_SPOT) == {"update": 2}

    # As if a checkpoint were being written in the grace period.
    name, job = pod["metadata"]["name"], pod["metadata"]["ownerReferences"][0]
    patch = ["patch", "pod", name, "-n", NAMESPACE, "--type=merge", "-p"]
    cluster.kubectl(*patch, '{"metadata": {"finalizers": ["gemma.test/checkpoint"]}}')
    moving = start(cluster, tmp_path, shorter, **RESERVED)
    wait_until(
        "the old Job's deletion",
        lambda: cluster.get("job", job["name"])["metadata"].get("deletionTimestamp"),
    )
    with pytest.raises(subprocess.TimeoutExpired):
        moving.wait(5)
    cluster.kubectl(*patch, '{"metadata": {"finalizers": null}}')
    output, errors = moving.communicate(timeout=300)
    assert moving.returncode == 0, output[-3000:] + errors

    moved = cluster.get("job", job["name"])
    assert moved["metadata"]["uid"] != job["uid"]
    assert "deletionTimestamp" not in moved["metadata"]
    selector = moved["spec"]["template"]["spec"]["nodeSelector"]
    assert selector["cloud.google.com/reservation-name"] == "r1"
    # KubeRay ignores changes of a RayJob's cluster: only a new object brings them about.
    moved = cluster.get("rayjob", ray_job["metadata"]["name"])
    assert moved["metadata"]["uid"] != ray_job["metadata"]["uid"]


def trainers(cluster: Simulation) -> list[dict]:
    """The pods of Jobs (not of Ray) that have a machine."""
    return [pod for pod in cluster.gpu_pods() if "ray.io/cluster" not in pod["metadata"]["labels"]]


def finalized(cluster: Simulation) -> list[dict]:
    found = cluster.sandbox.objects("rayjobs", "-n", NAMESPACE)
    return [job for job in found if job["metadata"].get("finalizers")]
