"""Runs: identity by content, sizes, shared clusters."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.unit.run_stack import TEXT, VISION, stack
from workloads import plan, problems
from workloads.raycluster import shared_cluster_name
from workloads.sizes import disk_gib


def only(run: dict[str, Any], key: str = "image", **keys: object):
    (found,) = plan(stack({"one": run}, **keys), key)
    return found


def test_plan_places_enabled_runs_in_order():
    runs = plan(stack({"vision": VISION, "off": {**TEXT, "enabled": False}, "sql": TEXT}), "image")
    assert [(run.name, run.kind, run.nodes, run.workers_per_node) for run in runs] == [
        ("vision", "RayJob", 2, 8),
        ("sql", "Job", 1, 8),
    ]
    assert [run.device for run in runs] == ["cuda", "cuda"]
    assert runs[0].path == f"runs/gemma3-vision/{runs[0].id}"


def test_same_inputs_same_id():
    assert only(VISION).id == only(dict(VISION)).id
    assert len(only(VISION).id) == 10
    int(only(VISION).id, 16)


@pytest.mark.parametrize(
    "change",
    [
        {"trainer": {"sft": {"learning_rate": 1e-4}}},
        {"trainer": {"model": {"model_revision": "abc"}}},
        {"trainer": {"data": {"dataset_revision": "abc"}}},
        {"nodes": 3},
        {"attempt": 2},
    ],
)
def test_what_decides_the_result_decides_the_id(change):
    assert only({**VISION, **change}).id != only(VISION).id


def test_image_and_accelerator_decide_the_id():
    assert only(VISION, "other").id != only(VISION).id
    assert only(VISION, accelerator="nvidia-h200-141gb").id != only(VISION).id


def test_a_value_equal_to_the_default_changes_nothing():
    default = only(VISION).trainer["sft"]["learning_rate"]
    assert only({**VISION, "trainer": {"sft": {"learning_rate": default}}}).id == only(VISION).id


def test_a_whole_number_is_the_same_however_it_is_written():
    # the engine hands over 2.0 of a YAML file as 2
    for section, key, value in (("evaluation", "timeout_seconds", 2), ("sft", "max_grad_norm", 1)):
        written = [only({**TEXT, "trainer": {section: {key: v}}}).id for v in (value, float(value))]
        assert written[0] == written[1], key


@pytest.mark.parametrize("change", [{"retries": 9}, {"max_hours": 2.5}, {"wait": True}])
def test_how_it_is_watched_leaves_the_id(change):
    assert only({**VISION, **change}).id == only(VISION).id


def test_moving_to_spot_keeps_the_id_so_that_the_run_resumes():
    moved = only(VISION, capacity="spot", reservation=None)
    assert moved.id == only(VISION).id
    assert moved.placement != only(VISION).placement


def test_config_holds_the_resolved_trainer_config_and_the_run():
    run = only(TEXT)
    config = yaml.safe_load(run.config("gs://bucket/" + run.path, "host/trainer@sha256:0"))
    assert config["run"] == {
        "output_dir": f"gs://bucket/runs/gemma4-text/{run.id}",
        "name": "one",
        "id": run.id,
        "workload": "gemma4-text",
        "device": "cuda",
        "nodes": 1,
        "workers_per_node": 8,
        "image": "host/trainer@sha256:0",
    }
    assert config["sft"]["learning_rate"] == 1.0e-5


def test_launcher_config_counts_all_processes():
    launcher = yaml.safe_load(only({**TEXT, "nodes": 3}).launcher_config() or "")
    assert (launcher["num_machines"], launcher["num_processes"]) == (3, 24)
    assert only(VISION).launcher_config() is None


def test_runs_that_share_a_cluster_ask_for_the_same_machines():
    runs = {
        "a": {**VISION, "cluster": "shared"},
        "b": {**VISION, "cluster": "shared", "nodes": 3},
        "c": {**VISION, "cluster": "other", "nodes": 3},
    }
    (problem,) = problems(stack(runs))
    assert problem.key == "gemma:runs.b.nodes"
    assert "run a" in problem.allowed


def test_runs_that_share_a_cluster_say_so_alike():
    runs = {"a": {**VISION, "cluster": "s"}, "b": {**VISION, "cluster": "s", "min_nodes": 1}}
    (problem,) = problems(stack(runs))
    assert str(problem).endswith("pulumi config rm --path 'gemma:runs.b.minNodes'")


def test_a_shared_cluster_holds_the_largest_model_and_is_the_same_for_all_its_runs():
    # On these machines a large model needs local SSD: another node selector, another cluster.
    large = {"trainer": {"model": {"model_name_or_path": "google/gemma-3-27b-it"}}}
    runs = {"a": {**VISION, "cluster": "s"}, "b": {**VISION, "cluster": "s", **large}}
    small, other = plan(stack(runs, accelerator="nvidia-l4"), "image")
    assert small.placement == other.placement
    assert small.placement.disk_gib == disk_gib(other.trainer)
    assert shared_cluster_name(small, "image") == shared_cluster_name(other, "image")
    (alone,) = plan(stack({"a": runs["a"]}, accelerator="nvidia-l4"), "image")
    assert shared_cluster_name(alone, "image") != shared_cluster_name(small, "image")


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("google/gemma-4-31B-it", 50 + 124),
        ("google/gemma-3-4b-it", 50 + 16),
        ("google/gemma-3-270m", 51),
        ("google/gemma-4-E4B-it", 50 + 32),
        ("google/gemma-4-26B-A4B-it", 50 + 104),
        ("gs://bucket/models/mine/", 50 + 128),
    ],
)
def test_disk_follows_the_model(model, expected):
    assert disk_gib({"model": {"model_name_or_path": model}}) == expected


def test_an_exported_model_needs_its_size_once_more():
    model = {"model_name_or_path": "google/gemma-4-31B-it"}
    assert disk_gib({"model": model, "export": {"merged": True}}) == 50 + 186


def test_cpu_takes_any_number_of_workers():
    run = only({**VISION, "workers_per_node": 3}, accelerator="cpu", capacity="on-demand",
               reservation=None)  # fmt: skip
    assert run.device == "cpu"
    assert (run.placement.gpus, run.placement.cpu) == (0, 4)
    assert run.placement.node_selector == {}


@pytest.mark.parametrize(
    ("run", "keys", "expected"),
    [
        (
            VISION,
            {},
            "2 x a4-highgpu-8g, 16 x nvidia-b200, reservation r1; until it is done, "
            "at the latest 48 h after each of at most 4 starts, at most 3,072 GPU-hours",
        ),
        (
            {**VISION, "cluster": "lab"},
            {},
            "2 x a4-highgpu-8g, 16 x nvidia-b200, reservation r1, on the shared cluster lab, which "
            "stays up; until it is done, at the latest 48 h after its submission",
        ),
        (
            TEXT,
            {},
            "1 x a4-highgpu-8g, 8 x nvidia-b200, reservation r1; until it is done, "
            "at the latest 48 h after its submission, at most 384 GPU-hours",
        ),
        (
            {**VISION, "min_nodes": 1, "max_hours": 11.5, "pending_hours": 0.5, "retries": 0},
            {"accelerator": "nvidia-l4", "capacity": "spot", "reservation": None},
            "1 to 2 x g2-standard-96, 16 x nvidia-l4, spot; until it is done, "
            "at the latest 12 h after its submission, at most 192 GPU-hours",
        ),
        (
            {**VISION, "workers_per_node": 2},
            {"accelerator": "cpu", "capacity": "on-demand", "reservation": None},
            "2 x 3 CPUs, on-demand; until it is done, "
            "at the latest 48 h after each of at most 4 starts",
        ),
    ],
)
def test_a_preview_tells_what_a_run_takes(run, keys, expected):
    assert only(run, **keys).demand == expected


def test_a_shared_cluster_stays_up_and_is_said_to():
    assert (
        "on the shared cluster gpus, which stays up" in only({**VISION, "cluster": "gpus"}).demand
    )
