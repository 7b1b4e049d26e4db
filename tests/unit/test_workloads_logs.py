"""Whose log is read, and how `logs` follows a run through its restarts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.objects import PENDING, RUNNING, failed, job, pod
from workloads import client, logs
from workloads.client import Position, Snapshot, UnreachableError
from workloads.overview import log_source


def test_log_is_that_of_rank_0():
    def ranked(rank: str) -> dict[str, Any]:
        annotations = {"batch.kubernetes.io/job-completion-index": rank}
        return pod(f"p{rank}", state=RUNNING, metadata={"annotations": annotations})

    assert log_source([ranked("0"), ranked("1")]) == ("p0", "trainer")
    assert log_source([ranked("1")]) is None


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


def test_a_log_is_shown_to_its_end_though_the_stream_was_cut_off(monkeypatch, capsys):
    monkeypatch.setattr(logs, "INTERVAL", 0)
    complete = job(conditions=[{"type": "Complete", "status": "True"}])
    cluster: Any = Cluster(
        Snapshot([job()], [pod("p1", state=RUNNING)]),
        Snapshot([complete], [pod("p1", phase="Succeeded", state={"terminated": {"exitCode": 0}})]),
    )
    written = [["first"], ["last"]]
    cluster.follow = lambda *_: written.pop(0) if written else []
    assert logs.follow(cluster, "sql") == 0
    assert capsys.readouterr().out.splitlines() == ["first", "last"]


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
    assert "Failed. the trainer refused its configuration" in capsys.readouterr().err
