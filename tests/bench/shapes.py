"""Runs over several machines in the shapes that the demo does not have, with real trainers.

    pytest -q -s tests/bench/shapes.py        (about five minutes each on two cores)

A text run on two machines meets through the Job's headless service, also after one of them is lost.
Two vision runs share a RayCluster that scales between one and two machines and stays up.
"""

from __future__ import annotations

import time

import pytest

from tests.bench.lab import CPU, Lab, text, vision
from tests.engine.workloads.simulation import NAMESPACE, manifests, runs_of, wait_until

STEPS = 12


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with Lab(tmp_path_factory.mktemp("shapes")) as running:
        yield running


def test_text_on_two_machines(lab):
    began = time.monotonic()
    (run,) = lab.submit(text=text(STEPS, nodes=2, workers_per_node=1))
    wait_until("three steps", lambda: lab.attempts(run) and lab.attempts(run)[0][2:], 300)
    (second,) = lab.pods(**run.labels, **{"batch.kubernetes.io/job-completion-index": "1"})
    lab.kubectl("delete", "pod", second["metadata"]["name"], "-n", NAMESPACE)
    lab.check_end(run, STEPS)
    print(f"two machines, one of them lost: ended after {time.monotonic() - began:.0f} s")


def test_two_runs_share_a_cluster_that_scales(lab):
    began = time.monotonic()
    run = vision(STEPS, cluster="lab", min_nodes=1)
    runs = runs_of({"one": run, "two": run}, **CPU)
    bodies = [body for run in runs for body in manifests(run)]
    for body in bodies:
        if body["kind"] == "RayCluster":
            body["spec"]["autoscalerOptions"]["idleTimeoutSeconds"] = 20
    lab.apply(*bodies)

    def workers() -> int:
        found = lab.pods(**{"ray.io/node-type": "worker"})
        return sum(pod["status"]["phase"] == "Running" for pod in found)

    wait_until("the smallest cluster", lambda: workers() == 1, 300)
    wait_until("a machine more", lambda: workers() == 2, 300)
    print(f"scaled up after {time.monotonic() - began:.0f} s")
    for run in runs:
        lab.check_end(run, STEPS)
    print(f"both runs ended after {time.monotonic() - began:.0f} s")
    wait_until("a machine less", lambda: workers() == 1, 300)
    print(f"scaled down after {time.monotonic() - began:.0f} s")
    (head,) = lab.pods(**{"ray.io/node-type": "head"})
    assert head["status"]["phase"] == "Running"
