"""Metrics, dashboard and alerts against what trainers, Ray and KubeRay really write."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import AsyncIterator
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from ray.dashboard.modules.job import cli
from ray.dashboard.modules.job.common import JobStatus

from training.common.config import EXIT_CODE
from training.gemma3_vision import train


@pytest.mark.parametrize(
    ("changes", "gone"),
    [
        ({"gemma:dashboard": False}, {"Dashboard"}),
        ({"gemma:alerts": {"enabled": False}}, {"AlertPolicy", "NotificationChannel"}),
        (
            {"gemma:alerts": {"enabled": False}, "gemma:dashboard": False},
            {"AlertPolicy", "NotificationChannel", "Dashboard", "Metric"},
        ),
    ],
)
def test_observability_is_optional(declare, changes, gone):
    kinds = {r.type.rpartition(":")[2] for r in declare("prod", changes).resources}
    everything = {r.type.rpartition(":")[2] for r in declare("prod").resources}
    assert everything - kinds == gone


def test_each_alert_is_optional_and_tells_the_given_people(declare):
    alerts = {"emails": ["a@example.com", "b@example.com"], "stalledMinutes": 0, "idleMinutes": 0}
    declared = declare(changes={"gemma:alerts": alerts})
    policy = declared.one("AlertPolicy")
    assert policy.name == "run-failed"
    assert policy.inputs["notificationChannels"] == ["email-0-id", "email-1-id"]


def test_metrics_read_the_progress_line_of_the_trainers(declare):
    line = "step 12/180  loss 1.234  lr 2.0e-04  1234 tok/s  eta 3m10s"
    other = "step 24/24  held-out loss 2.3456"
    values = {}
    for metric in declare().of("logging/metric:Metric"):
        pattern = re.search(r'textPayload=~"(.*)"$', metric.inputs["filter"])
        assert re.search(unquoted(pattern[1]), line)
        assert not re.search(unquoted(pattern[1]), other)
        value = re.fullmatch(
            r'REGEXP_EXTRACT\(textPayload, "(.*)"\)', metric.inputs["valueExtractor"]
        )
        values[metric.name] = float(re.search(unquoted(value[1]), line)[1])
    assert values == {"loss": 1.234, "tokens_per_second": 1234}


def unquoted(text: str) -> str:
    return json.loads(f'"{text}"')


class RayJob:
    """What Ray's command line asks of a job server, of a job that has ended."""

    def __init__(self, status: str) -> None:
        self.status = JobStatus(status)

    def get_version(self) -> str:
        return "4"

    async def tail_job_logs(self, _: str) -> AsyncIterator[str]:
        yield "step 12/180  loss 1.234  lr 2.0e-04  1234 tok/s  eta 3m10s\n"

    def get_job_info(self, _: str) -> SimpleNamespace:
        return SimpleNamespace(status=self.status, message="exit code 1")


def wanted_of_a_submitter(declare) -> str:
    condition = declare().one("AlertPolicy", "run-failed").inputs["conditions"][0]
    query = condition["conditionMatchedLog"]["filter"]
    assert query.count("(") == query.count(")")
    return re.search(r'container_name="ray-job-submitter" AND textPayload=~"(.*?)"', query)[1]


@pytest.mark.parametrize(
    ("status", "told"), [("SUCCEEDED", False), ("FAILED", True), ("STOPPED", False)]
)
def test_a_failed_ray_run_raises_no_alert(declare, monkeypatch, status, told):
    # `ray job logs --follow`, which KubeRay runs in the submitter, ends with 0 however the job did:
    # once it does not, the Job's own events suffice.
    monkeypatch.setattr(cli, "_get_sdk_client", lambda *_, **__: RayJob(status))
    done = CliRunner().invoke(cli.logs, ["--address", "http://head:8265", "--follow", "vision-x"])
    assert done.exit_code == 0
    assert bool(re.search(wanted_of_a_submitter(declare), done.output)) == told


def test_a_ray_run_that_stops_itself_raises_no_alert(declare, monkeypatch, tmp_path, capsys):
    stopped = SimpleNamespace(stop_own_job=lambda: None)
    monkeypatch.setitem(sys.modules, "training.gemma3_vision.failures", stopped)
    (tmp_path / "run.yaml").write_text("sft: {learning_rat: 1}")
    monkeypatch.setattr(sys, "argv", ["train", "--config", str(tmp_path / "run.yaml")])
    assert train.main() == EXIT_CODE
    assert re.search(wanted_of_a_submitter(declare), capsys.readouterr().err)


def test_a_shared_cluster_that_trains_is_no_stalled_run(declare):
    condition = declare().one("AlertPolicy", "run-stalled").inputs["conditions"][0]
    query = condition["conditionPrometheusQueryLanguage"]["query"]
    wanted, shared = (re.search(rf'pod_name{op}"(.*?)"', query)[1] for op in ("=~", "!~"))

    def watched(pod: str) -> bool:
        return bool(re.fullmatch(wanted, pod)) and not re.fullmatch(shared, pod)

    def worker(cluster: str) -> str:  # as KubeRay's utils.PodName has it
        return f"{f'{cluster}-workers'[:50]}-worker-lz55z"

    for length in range(1, 43):
        assert not watched(worker(f"{'c' * length}-0123456789")), length
    for length in range(1, 37):
        name = f"{'r' * length}-a123456789"
        for pod in (worker(f"{name}-wxzvb"), worker(f"{name}-22c5n"), f"{name}-r4lg5"):
            assert watched(pod), pod
            assert re.fullmatch(wanted, pod)[1] == "r" * length


def test_stalled_run_is_told_from_one_that_has_ended_by_the_gpus_it_holds(declare):
    declared = declare()
    condition = declared.one("AlertPolicy", "run-stalled").inputs["conditions"][0]
    query = condition["conditionPrometheusQueryLanguage"]["query"]
    assert "logging_googleapis_com:user_gemma_dev_loss_count" in query
    assert query.count("(") == query.count(")")
    # The run's name in a pod's name, as the RayJob's workers and the Job's pods have it.
    pattern = re.search(r'"pod_name", "(.*?)"', query)[1]
    run = declared.exports["runs"]["text-to-sql"]["object"]
    for pod in (f"{run}-r4lg5", f"{run}-22c5n-workers-worker-lz55z"):
        assert re.fullmatch(pattern, pod)[1] == "text-to-sql"


def test_dashboard_charts_what_is_measured_and_its_tiles_do_not_overlap(declare):
    board = json.loads(declare().one("Dashboard").inputs["dashboardJson"])
    text = json.dumps(board)
    for metric in (
        "gemma-dev/loss",
        "gemma-dev/tokens_per_second",
        "GPU_UTIL",
        "FB_USED",
        "NVLINK",
    ):
        assert metric in text
    taken = set()
    for tile in board["mosaicLayout"]["tiles"]:
        cells = {
            (tile.get("xPos", 0) + x, tile.get("yPos", 0) + y)
            for x in range(tile["width"])
            for y in range(tile["height"])
        }
        assert not cells & taken
        assert max(x for x, _ in cells) < board["mosaicLayout"]["columns"]
        taken |= cells
