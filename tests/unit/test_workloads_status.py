"""What `status` makes of a cluster's objects: phase, machines, progress, the table."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.unit.objects import FOLDER, LABELS, PENDING, RUNNING, config_map, job, only, pod, ray_job
from workloads import status
from workloads.client import Snapshot
from workloads.overview import overview
from workloads.status import duration, table


def test_running_shows_node_and_progress():
    log = "loading\nstep 11/180  loss 2.000\nstep 12/180  loss 1.234  lr 2.0e-04  eta 3m10s\nnoise"
    run = only(pod(state=RUNNING), log=log)
    assert (run.phase, run.why) == ("Running", "")
    assert run.machines == (("node-1",), 1)
    assert run.progress == "step 12/180  loss 1.234  lr 2.0e-04  eta 3m10s"


def test_each_pod_with_a_node_counts_and_a_node_is_named_once():
    run = only(pod("a", state=RUNNING), pod("b", state=RUNNING), pod("c", **PENDING))
    assert "2/3 node-1\n" in table([run], datetime(2026, 11, 30, 12, 30, tzinfo=UTC))


def test_a_run_whose_pod_has_done_its_work_is_ending():
    over = pod(phase="Succeeded", state={"terminated": {"exitCode": 0}})
    assert (only(over).phase, only(over).why) == ("Ending", "")


def test_queue():
    queued = job()
    queued["spec"]["suspend"] = True
    queued["metadata"] = {**queued["metadata"],
                          "labels": {**LABELS, "kueue.x-k8s.io/queue-name": "gpus"}}  # fmt: skip
    run = only(of=queued)
    assert (run.phase, run.why) == ("Queued", "waiting for its turn in Kueue's queue gpus")


@pytest.mark.parametrize(
    ("status", "phase"),
    [
        ({}, "Starting"),
        ({"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}, "Succeeded"),
        ({"jobDeploymentStatus": "Failed", "reason": "DeadlineExceeded"}, "Failed"),
        ({"jobDeploymentStatus": "Retrying", "reason": "AppFailed"}, "Starting"),
        ({"jobDeploymentStatus": "ValidationFailed", "message": "bad"}, "Failed"),
    ],
)
def test_ray_phases(status, phase):
    assert only(of=ray_job(**status)).phase == phase


def test_ray_cluster_forms_before_it_runs():
    head = pod("head", container="ray-head", state=RUNNING)
    worker = pod("worker", container="ray-worker", state=RUNNING, node="node-2")
    submitter = pod("submit", container="ray-job-submitter", state=RUNNING)
    assert only(head, worker, of=ray_job()).why == "the Ray cluster is forming"
    run = only(head, worker, submitter, of=ray_job(jobDeploymentStatus="Running"))
    assert run.phase == "Running"
    assert run.machines == (("node-2",), 1)


def test_a_run_on_a_shared_cluster_is_told_by_the_clusters_pods():
    def shared(name: str, container: str, **more: Any) -> dict[str, Any]:
        labels = {"ray.io/cluster": "lab-1", "gemma.run/cluster": "lab"}
        return pod(name, container=container, metadata={"labels": labels}, **more)

    run = ray_job(jobDeploymentStatus="Running")
    run["spec"] = {"clusterSelector": {"ray.io/cluster": "lab-1"}}
    submitter = pod("submit", container="ray-job-submitter", state=RUNNING)
    head = shared("head", "ray-head", state=RUNNING)
    worker = shared("worker", "ray-worker", state=RUNNING, node="node-2")
    other = shared("other", "ray-worker", state=RUNNING, node="node-3")
    other["metadata"]["labels"] = {**other["metadata"]["labels"], "ray.io/cluster": "lab-2"}
    found = only(head, worker, other, submitter, of=run, log="step 1/2  loss 1.0")
    assert (found.phase, found.machines) == ("Running", (("node-2",), 1))
    assert found.progress == "step 1/2  loss 1.0"
    waiting = shared("worker", "ray-worker", **PENDING)
    assert "no capacity in reservation r1" in only(head, waiting, of=run).why


def test_table():
    now = datetime(2026, 11, 30, 12, 30, tzinfo=UTC)
    text = table([only(pod(**PENDING)), only(pod(state=RUNNING), log="step 1/2  loss 1.0")], now)
    assert text.splitlines()[0].split() == ["RUN", "ID", "KIND", "PHASE", "AGE", "MACHINES"]
    assert "sql  a123456789  Job   Waiting  30m  0/1" in text
    assert "why: no capacity in reservation r1" in text
    assert "deadline in 1h30m" in text
    assert "step 1/2  loss 1.0" in text
    assert "No runs" in table([], now)


@pytest.mark.parametrize("ended", [{}, {"conditions": [{"type": "Complete", "status": "True"}]}])
def test_where_the_results_are_stands_below_the_run(ended: dict[str, Any]):
    run = only(of=job(**ended))
    assert run.folder == FOLDER
    lines = table([run], datetime(2026, 11, 30, 12, 30, tzinfo=UTC)).splitlines()
    assert f"    results: {FOLDER}" in lines
    assert max(map(len, lines)) <= 120


def test_a_run_whose_config_map_is_gone_is_shown_without_its_folder():
    (run,) = overview(Snapshot([job()]))
    assert run.folder == ""
    assert "results" not in table([run], datetime(2026, 11, 30, 12, 30, tzinfo=UTC))


def test_programs_are_told_the_folder_too(monkeypatch: pytest.MonkeyPatch, capsys: Any):
    class Cluster:
        def __init__(self, *_: object) -> None: ...

        def snapshot(self) -> Snapshot:
            return Snapshot([job()], configs=[config_map()])

        def tail(self, pod: str, container: str) -> str:
            return ""

    monkeypatch.setattr(status, "Cluster", Cluster)
    assert status.main(["--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert told["folder"] == FOLDER


def test_the_deadline_of_a_retried_ray_run_counts_from_its_last_start():
    # KubeRay 1.5 begins to count anew, however long ago the run was submitted
    now = datetime(2026, 11, 30, 15, 30, tzinfo=UTC)
    retried = ray_job(jobDeploymentStatus="Running", startTime="2026-11-30T15:00:00Z")
    assert "deadline in 1h30m" in table([only(of=retried)], now)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (59, "59s"), (190, "3m10s"), (3600, "1h"), (18120, "5h2m"), (90000, "1d1h")],
)
def test_duration(seconds, text):
    assert duration(seconds) == text
