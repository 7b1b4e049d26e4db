"""Every manifest, for every accelerator and capacity, against the real API server and CRDs.

The namespace enforces Pod Security's `restricted` profile, and unknown fields are errors.
"""

from __future__ import annotations

import pytest

from tests.engine.workloads.simulation import NAMESPACE, manifests, runs_of, wait_until
from workloads.accelerators import ACCELERATORS
from workloads.network_policy import spec

OWNED = "projects/owner-project/reservations/r1/reservationBlocks/b1"
RUNS = {
    "vision": {"workload": "gemma3-vision", "nodes": 2},
    "elastic": {"workload": "gemma3-vision", "nodes": 3, "min_nodes": 1},
    "queued": {"workload": "gemma3-vision", "queue": "gpus"},
    "shared": {"workload": "gemma3-vision", "cluster": "lab"},
    "text": {"workload": "gemma4-text"},
    "wide": {"workload": "gemma4-text", "nodes": 2, "queue": "gpus"},
}
CASES = [(row.name, capacity) for row in ACCELERATORS.values() for capacity in row.capacities]


def test_every_manifest_is_admitted(simulation):
    bodies = [body for _, run in everything() for body in manifests(run)]
    assert len(bodies) > 4 * len(CASES)
    simulation.apply(*bodies, dry_run=True)


def test_every_pod_template_passes_restricted(simulation):
    """A Job's or RayJob's template is only warned about, so its pods are created themselves."""
    pods = []
    for case, run in everything():
        found = [template for body in manifests(run) for template in templates(body)]
        # Trainer; or head, worker and submitter.
        assert len(found) == (1 if run.kind == "Job" else 3), (case, run.name)
        for number, template in enumerate(found):
            spec = {"restartPolicy": "Never", **template["spec"]}
            meta = {"name": f"{run.object_name}-{number}", "namespace": NAMESPACE}
            pods.append({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    assert len(pods) > 4 * len(CASES)
    simulation.apply(*pods, dry_run=True)


def everything():
    """Every kind of run on every accelerator under each of its capacities, by that case."""
    for number, (accelerator, capacity) in enumerate(CASES):
        keys = {"accelerator": accelerator, "capacity": capacity}
        keys["reservation"] = OWNED if capacity == "reservation" else None
        for run in runs_of({f"{name}-{number}": run for name, run in RUNS.items()}, **keys):
            yield (accelerator, capacity), run


def test_the_operators_own_pods_pass_restricted(cluster):
    """KubeRay adds init containers, an autoscaler and /dev/shm to what we declare."""
    cluster.add_nodes(1, labels={"cloud.google.com/reservation-name": "r1",
                                 "cloud.google.com/reservation-affinity": "specific"})  # fmt: skip
    run = {"workload": "gemma3-vision", "nodes": 2, "min_nodes": 1}
    (elastic,) = runs_of({"elastic": run})
    cluster.apply(*manifests(elastic))
    # The submitter comes as soon as the cluster is ready.
    pods = wait_until("three pods", lambda: len(found := cluster.pods()) == 3 and found)
    names = {container["name"] for pod in pods for container in pod["spec"]["containers"]}
    assert names == {"ray-head", "autoscaler", "ray-worker", "ray-job-submitter"}
    mounts = {
        mount["mountPath"]
        for pod in pods
        for container in pod["spec"]["containers"]
        for mount in container["volumeMounts"]
    }
    assert {"/tmp", "/dev/shm", "/scratch", "/etc/gemma"} <= mounts


def test_network_policy_is_admitted(simulation):
    simulation.apply(
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": "runs", "namespace": NAMESPACE},
            "spec": spec(),
        },
        dry_run=True,
    )


def test_restricted_is_really_enforced(simulation):
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "root", "namespace": NAMESPACE},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    with pytest.raises(Exception, match="violates PodSecurity"):
        simulation.apply(pod, dry_run=True)


def templates(body):
    """The pod templates in a manifest."""
    if isinstance(body, dict):
        if "containers" in body.get("spec", {}):
            yield body
        else:
            for value in body.values():
                yield from templates(value)
    elif isinstance(body, list):
        for value in body:
            yield from templates(value)
