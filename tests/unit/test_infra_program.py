"""The program as a whole: its tree of components, its names and labels, its outputs."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from types import SimpleNamespace

import pytest

from infra import links, observability
from infra.schema import Settings
from tests.unit.program import Secret
from training.common.config import ConfigError
from training.common.hub_errors import UnreachableError
from training.gemma3_vision import train

UNLABELLED = {  # Google gives them no labels
    "Network", "Subnetwork", "Router", "RouterNat", "Account", "Service", "Metric", "Dashboard",
    "NotificationChannel", "IAMMember", "BucketIAMMember", "RepositoryIamMember",
}  # fmt: skip


def test_every_component_ends_with_its_outputs(declare):
    declared = declare()
    components = {r.urn for r in declared.resources if not r.request.custom}
    assert components >= {"gemma:infra:Cluster::cluster", "gemma:infra:Storage::storage"}
    assert components <= declared.outputs.keys()


def test_every_resource_of_google_belongs_to_a_component(declare):
    for resource in declare().resources:
        if resource.type.startswith(("gcp:", "pulumi:providers:")):
            assert resource.parent.startswith("gemma:"), resource.urn


def test_every_resource_that_can_has_the_stack_and_team_labels(declare):
    expected = {"app": "gemma", "environment": "dev", "stack": "dev", "team": "research"}
    for resource in declare().resources:
        kind = resource.type.rpartition(":")[2]
        if not resource.type.startswith("gcp:") or kind in UNLABELLED:
            continue
        inputs = resource.inputs
        labels = inputs.get("labels", inputs.get("resourceLabels", inputs.get("userLabels")))
        assert labels == expected, resource.urn


def test_our_labels_win_over_the_users(declare):
    changes = {"gemma:labels": {"app": "mine", "team": "x"}}
    assert declare(changes=changes).one("Bucket", "runs").inputs["labels"]["app"] == "gemma"


def test_stacks_of_one_project_do_not_share_a_name(declare):
    def names(stack: str) -> set[str]:
        keys = ("name", "accountId", "repositoryId")
        return {
            f"{r.type} {r.inputs[key]}"
            for r in declare(
                stack, secrets={"gemma:huggingFaceToken": "x"} if stack == "dev" else {}
            ).resources
            if r.type.startswith("gcp:")
            for key in keys
            if key in r.inputs
        }

    assert names("dev")
    assert not names("dev") & names("prod")


def test_dev_and_prod_make_the_same_resources(declare):
    # but for what their own config asks: the token's way and the alerts' addressee
    def kinds(stack, **changes):
        declared = declare(
            stack,
            {"gemma:huggingFaceSecret": None, "gemma:alerts": {}, **changes},
            {"gemma:huggingFaceToken": "hf_x"},
        )
        return sorted(r.urn for r in declared.resources)

    assert kinds("dev") == kinds("prod")


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


@pytest.fixture
def driver(monkeypatch, tmp_path):
    """The driver of a Ray run, which ends as the test says: with a number, or an exception."""

    def ends(end: Exception | int) -> int:
        def drive(*_: object, **__: object) -> int:
            if isinstance(end, Exception):
                raise end
            return end

        monkeypatch.setattr(train, "drive", drive)
        return train.main()

    (tmp_path / "run.yaml").write_text("{}")
    monkeypatch.setattr(sys, "argv", ["train", "--config", str(tmp_path / "run.yaml")])
    monkeypatch.setattr(train, "resolve", dict)
    stopped = SimpleNamespace(stop_own_job=lambda: None)
    monkeypatch.setitem(sys.modules, "training.gemma3_vision.failures", stopped)
    return ends


@pytest.mark.parametrize(
    "end", [ConfigError([]), UnreachableError("the Hub"), KeyError("a bug"), 1, 78]
)
def test_a_failed_ray_run_raises_no_alert(declare, driver, end, capsys):
    # Its submitter ends with 0 however the Ray job did, and KubeRay writes no event: the log tells.
    with contextlib.suppress(KeyError):
        assert driver(end) != 0
    last = capsys.readouterr().err.strip().splitlines()[-1]
    condition = declare().one("AlertPolicy", "run-failed").inputs["conditions"][0]
    query = condition["conditionMatchedLog"]["filter"]
    wanted = re.search(r'container_name="ray-job-submitter" AND textPayload:"(.*?)"', query)[1]
    assert wanted in last
    assert query.count("(") == query.count(")")


def test_a_ray_run_that_ends_well_raises_an_alert(driver, capsys):
    assert driver(0) == 0
    assert observability.FAILED not in capsys.readouterr().err


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


def test_outputs_are_what_a_person_needs_next(declare):
    outputs = declare().exports
    assert outputs.keys() == {
        "cluster", "kubeconfig", "bucket", "image", "runs", "links", "commands",
    }  # fmt: skip
    assert isinstance(outputs["kubeconfig"], Secret)
    assert outputs["bucket"] == "gs://test-project-gemma-dev"
    assert "@sha256:" in outputs["image"]
    assert outputs["runs"].keys() == {"vision", "text-to-sql"}
    for run in outputs["runs"].values():
        assert run["id"] in run["folder"]
        assert run["logs"].startswith("https://")
    assert all(
        link.startswith("https://console.cloud.google.com/") for link in outputs["links"].values()
    )
    assert "--dns-endpoint" in outputs["commands"]["kubectl"]


def test_links_hold_no_character_that_a_terminal_breaks_at():
    gpus = links.gpus("p", "r", "c")
    assert not set(gpus) & set(' "()<>|')
    assert links.folder("p", "gs://b/runs/x") == (
        "https://console.cloud.google.com/storage/browser/b/runs/x?project=p"
    )


def test_longest_allowed_stack_name_still_fits_everywhere():
    stack = "a" * 16
    settings = Settings(project="test-project", region="us-central1", stack=stack)
    assert len(settings.name) <= 40  # cluster
    assert 6 <= len(f"{settings.name}-trainer") <= 30  # service account
