"""What `status` and `logs` make of a cluster's objects, as the API server shows them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from training.common.config import ConfigError, Problem, refuse
from workloads import client, logs
from workloads.client import Position, Snapshot, UnreachableError
from workloads.overview import log_source, overview
from workloads.status import duration, table

LABELS = {"gemma.run/name": "sql", "gemma.run/id": "a123456789"}
CREATED = "2026-11-30T12:00:00Z"
SELECTOR = {
    "cloud.google.com/gke-accelerator": "nvidia-b200",
    "cloud.google.com/reservation-name": "r1",
}


def job(**status: Any) -> dict[str, Any]:
    return {
        "kind": "Job",
        "metadata": {"name": "sql-a123456789", "uid": "job", "labels": LABELS,
                     "creationTimestamp": CREATED},
        "spec": {"activeDeadlineSeconds": 7200},
        "status": status,
    }  # fmt: skip


def ray_job(**status: Any) -> dict[str, Any]:
    return {**job(**status), "kind": "RayJob"}


def pod(
    name: str = "p0",
    *,
    container: str = "trainer",
    node: str | None = "node-1",
    phase: str = "Running",
    state: dict[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    waiting = {"type": "PodScheduled", "status": "False", "message": more.pop("message", "")}
    status: dict[str, Any] = {"phase": phase, "conditions": [] if node else [waiting]}
    if state is not None:
        status["containerStatuses"] = [
            {"name": container, "image": "host/i@sha256:1", "state": state}
        ]
    status["conditions"] += more.pop("conditions", [])
    requests = {"nvidia.com/gpu": "8"} if container in ("trainer", "ray-worker") else {}
    return {
        "metadata": {"name": name, "uid": name, "labels": LABELS, "creationTimestamp": CREATED,
                     **more.pop("metadata", {})},
        "spec": {
            "nodeSelector": SELECTOR,
            "containers": [{"name": container, "resources": {"requests": requests}}],
            **({"nodeName": node} if node else {}),
        },
        "status": status,
    }  # fmt: skip


def event(reason: str, message: str, uid: str = "p0") -> dict[str, Any]:
    return {"reason": reason, "message": message, "involvedObject": {"uid": uid}}


RUNNING = {"running": {"startedAt": CREATED}}


def only(*pods: dict[str, Any], events: Any = (), of: Any = None, log: str = ""):
    snapshot = Snapshot(jobs=[of or job()], pods=list(pods), events=list(events))
    (found,) = overview(snapshot, lambda name, container: log)
    return found


def test_running_shows_node_and_progress():
    log = "loading\nstep 11/180  loss 2.000\nstep 12/180  loss 1.234  lr 2.0e-04  eta 3m10s\nnoise"
    run = only(pod(state=RUNNING), log=log)
    assert (run.phase, run.why) == ("Running", "")
    assert run.machines == (("node-1",), 1)
    assert run.progress == "step 12/180  loss 1.234  lr 2.0e-04  eta 3m10s"


PENDING = {"node": None, "phase": "Pending", "message": "0/3 nodes: 3 Insufficient nvidia.com/gpu."}


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([], ["no capacity in reservation r1", "8 x nvidia-b200", "Insufficient nvidia.com/gpu"]),
        ([event("TriggeredScaleUp", "pod triggered scale-up")], ["a new machine is on its way"]),
        (
            [
                event(
                    "FailedScaleUp",
                    "Node scale up in zones us-central1-b failed: GCE quota exceeded",
                )
            ],
            ["quota is used up", "us-central1-b"],
        ),
        (
            [event("FailedScaleUp", "Node scale up in zones z failed: GCE out of resources")],
            ["has none free", "8 x nvidia-b200"],
        ),
        (
            [
                event("FailedScaleUp", "GCE quota exceeded"),
                event("TriggeredScaleUp", "pod triggered scale-up"),
            ],
            ["a new machine is on its way"],
        ),
        ([event("FailedScaleUp", "GCE quota exceeded", uid="another")], ["no capacity"]),
    ],
)
def test_why_there_is_no_machine(events, words):
    run = only(pod(**PENDING), events=events)
    assert run.phase == "Waiting"
    for word in words:
        assert word in run.why


def test_who_holds_the_reservation_is_said_without_the_schedulers_asides():
    pending = {**PENDING, "message": f"{PENDING['message']} no new claims to deallocate, x: y."}
    waiting = pod(**pending)
    labels = {"gemma.run/name": "vision", "gemma.run/id": "b123456789"}
    holders = [pod(f"h{n}", node=f"node-{n}", metadata={"labels": labels}) for n in range(2)]
    holders[0]["status"]["phase"] = "Succeeded"
    assert only(waiting, *holders).why == (
        "no capacity in reservation r1 for a machine with 8 x nvidia-b200; of it vision holds "
        f"1 machine. ({PENDING['message']})"
    )


@pytest.mark.parametrize(
    ("reason", "message", "words"),
    [
        ("ImagePullBackOff", "not found", "cannot pull image host/i@sha256:1"),
        ("ErrImagePull", "403 Forbidden", "403 Forbidden"),
        (
            "CreateContainerConfigError",
            'secret "hugging-face-token" not found',
            "hugging-face-token",
        ),
    ],
)
def test_why_a_container_does_not_start(reason, message, words):
    waiting = {"waiting": {"reason": reason, "message": message}}
    run = only(pod(phase="Pending", state=waiting))
    assert run.phase == "Starting"
    assert words in run.why


def failed(reason: str, message: str = "") -> dict[str, Any]:
    return job(
        conditions=[{"type": "Failed", "status": "True", "reason": reason, "message": message}]
    )


@pytest.mark.parametrize(
    ("terminated", "log", "words"),
    [
        ({"exitCode": 1}, "torch.OutOfMemoryError: CUDA out of memory", "per_device_train_batch"),
        ({"exitCode": 78}, "", "configuration"),
        ({"exitCode": 137, "reason": "OOMKilled"}, "", "out of memory"),
        ({"exitCode": 3}, "", "exit code 3"),
    ],
)
def test_why_a_run_failed(terminated, log, words):
    ended = pod(phase="Failed", state={"terminated": terminated})
    run = only(ended, of=failed("BackoffLimitExceeded"), log=log)
    assert run.phase == "Failed"
    assert words in run.why
    assert "BackoffLimitExceeded" in run.why


GATED = Problem(
    "trainer.model.model_name_or_path",
    "google/gemma-3-4b-it",
    "a model whose licence the token's account has accepted: open https://page",
    "pulumi config set --secret gemma:huggingFaceToken",
)
OTHER = Problem("trainer.sft.max_length", 8, "16 or more")


@pytest.mark.parametrize(
    ("problems", "more"), [([GATED], ""), ([GATED, OTHER], ", and 1 more: see the end of its log")]
)
def test_a_refused_configuration_is_told_with_what_mends_it(capsys, problems, more):
    refuse(ConfigError(problems))
    log = f"loading\n{capsys.readouterr().err}Traceback, and what a launcher says of it\n"
    told = (
        "trainer.model.model_name_or_path is 'google/gemma-3-4b-it', allowed: a model whose "
        "licence the token's account has accepted: open https://page "
        "(`pulumi config set --secret gemma:huggingFaceToken`)"
    )
    ended = pod(phase="Failed", state={"terminated": {"exitCode": 78}})
    assert only(ended, of=failed("PodFailurePolicy"), log=log).why == (
        f"{told}{more}; PodFailurePolicy"
    )
    # A Ray job that ends itself looks as if a person had stopped it.
    stopped = {"jobDeploymentStatus": "Complete", "jobStatus": "STOPPED"}
    submitter = pod(
        phase="Succeeded", container="ray-job-submitter", state={"terminated": {"exitCode": 0}}
    )
    message = "Job was intentionally stopped."
    run = only(submitter, of=ray_job(**stopped, message=message), log=log)
    assert run.phase == "Failed"
    assert run.why.startswith(f"{told}{more}; not tried again")
    assert message not in run.why


def test_each_pod_with_a_node_counts_and_a_node_is_named_once():
    run = only(pod("a", state=RUNNING), pod("b", state=RUNNING), pod("c", **PENDING))
    assert "2/3 node-1\n" in table([run], datetime(2026, 11, 30, 12, 30, tzinfo=UTC))


def test_a_run_whose_pod_has_done_its_work_is_ending():
    over = pod(phase="Succeeded", state={"terminated": {"exitCode": 0}})
    assert (only(over).phase, only(over).why) == ("Ending", "")


def test_a_machine_that_was_taken_away_is_said():
    disrupted = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
    run = only(pod(phase="Failed", conditions=[disrupted]))
    assert run.phase == "Starting"
    assert "machine was taken away" in run.why


def test_pods_that_the_cluster_refuses_are_said():
    refusal = event("FailedCreate", "violates PodSecurity", uid="job")
    assert "violates PodSecurity" in only(events=[refusal]).why
    assert "refuses" not in only(events=[refusal, event("SuccessfulCreate", "", uid="job")]).why


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


def test_log_is_that_of_rank_0():
    def ranked(rank: str) -> dict[str, Any]:
        annotations = {"batch.kubernetes.io/job-completion-index": rank}
        return pod(f"p{rank}", state=RUNNING, metadata={"annotations": annotations})

    assert log_source([ranked("0"), ranked("1")]) == ("p0", "trainer")
    assert log_source([ranked("1")]) is None


def test_table():
    now = datetime(2026, 11, 30, 12, 30, tzinfo=UTC)
    text = table([only(pod(**PENDING)), only(pod(state=RUNNING), log="step 1/2  loss 1.0")], now)
    assert text.splitlines()[0].split() == ["RUN", "ID", "KIND", "PHASE", "AGE", "MACHINES"]
    assert "sql  a123456789  Job   Waiting  30m  0/1" in text
    assert "why: no capacity in reservation r1" in text
    assert "deadline in 1h30m" in text
    assert "step 1/2  loss 1.0" in text
    assert "No runs" in table([], now)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (59, "59s"), (190, "3m10s"), (3600, "1h"), (18120, "5h2m"), (90000, "1d1h")],
)
def test_duration(seconds, text):
    assert duration(seconds) == text


class Cluster:
    """A run that waits, then runs in one pod, is restarted in another, and succeeds."""

    namespace = "gemma"

    def __init__(self, *snapshots: Snapshot) -> None:
        self.snapshots = list(snapshots)

    def snapshot(self) -> Snapshot:
        return self.snapshots.pop(0) if len(self.snapshots) > 1 else self.snapshots[0]

    def tail(self, pod: str, container: str, lines: int = 60) -> str:
        return f"tail of {pod}\n"

    def follow(self, pod: str, container: str, seen: Position):
        if not seen.lines:
            seen.lines = 1
            yield f"log of {pod}"


def test_logs_follow_a_run_through_a_restart(monkeypatch, capsys):
    monkeypatch.setattr(logs, "INTERVAL", 0)
    complete = job(conditions=[{"type": "Complete", "status": "True"}])
    over = pod("p1", phase="Failed", state={"terminated": {"exitCode": 1}})
    cluster: Any = Cluster(
        Snapshot([job()], [pod(**PENDING)]),
        Snapshot([job()], [pod("p1", state=RUNNING)]),
        Snapshot([job()], [over]),
        Snapshot([job()], [over, pod("p2", state=RUNNING)]),
        Snapshot([complete], [over, pod("p2", state={"terminated": {"exitCode": 0}})]),
    )
    assert logs.follow(cluster, "sql") == 0
    out, said = capsys.readouterr()
    assert out.splitlines() == ["log of p1", "log of p2"]
    assert "no capacity in reservation r1" in said
    assert "exit code 1" in said
    assert said.splitlines()[-1] == "sql (a123456789): Succeeded"


def test_a_named_stack_is_asked_whatever_the_environment_says(tmp_path, monkeypatch):
    program = tmp_path / "pulumi"
    program.write_text('#!/bin/sh\necho "asked: $*" >&2; exit 1\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "another-cluster"))
    with pytest.raises(UnreachableError) as refused:
        client.Cluster(stack="prod")
    told = str(refused.value)
    assert "stack prod has none" in told
    assert "make status STACK=sandbox" in told
    assert told.endswith("asked: stack output --show-secrets kubeconfig --stack prod")


def test_logs_of_an_unknown_run_name_the_known_ones(capsys):
    cluster: Any = Cluster(Snapshot([job()]))
    assert logs.follow(cluster, "sqll") == 2
    assert "there are: sql" in capsys.readouterr().err
    assert logs.follow(cluster, "") == 2
    assert capsys.readouterr().err == "Which? make logs RUN=NAME; there are: sql\n"


def test_logs_of_a_failed_run(capsys):
    ended = pod("p1", phase="Failed", state={"terminated": {"exitCode": 78}})
    cluster: Any = Cluster(Snapshot([failed("PodFailurePolicy")], [ended]))
    assert logs.follow(cluster, "a123456789") == 1
    assert "Failed. the trainer cannot work with its configuration" in capsys.readouterr().err
