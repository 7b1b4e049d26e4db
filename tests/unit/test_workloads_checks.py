"""Runs that cannot be, told all at once before anything is made."""

from __future__ import annotations

import pytest

from tests.unit.run_stack import TEXT, VISION, stack
from workloads import problems


def test_all_problems_are_told_at_once():
    settings = stack(
        {
            "vision": {
                **VISION,
                "min_nodes": 5,
                "workers_per_node": 3,
                "trainer": {"sft": {"learning_rate": -1, "learning_rat": 1}, "run": {"id": "x"}},
            },
            "sql": {**TEXT, "cluster": "shared", "max_hours": 300, "min_nodes": 1},
        },
        capacity="flex-start",
    )
    found = problems(settings)
    assert {problem.key for problem in found} == {
        "gemma:reservation",
        "gemma:runs.vision.minNodes",
        "gemma:runs.vision.workersPerNode",
        "gemma:runs.vision.trainer.run",
        "gemma:runs.vision.trainer.sft.learning_rate",
        "gemma:runs.vision.trainer.sft.learning_rat",
        "gemma:runs.sql.cluster",
        "gemma:runs.sql.maxHours",
        "gemma:runs.sql.minNodes",
    }
    text = "\n".join(map(str, found))
    assert "pulumi config set --path 'gemma:runs.vision.workersPerNode' 8" in text


def test_disabled_runs_are_checked_too():
    run = {**TEXT, "enabled": False, "trainer": {"sft": {"learning_rate": 0}}}
    keys = [problem.key for problem in problems(stack({"sql": run}))]
    assert keys == ["gemma:runs.sql.trainer.sft.learning_rate"]


def test_a_sound_stack_has_no_problems():
    assert problems(stack({"vision": VISION, "sql": TEXT})) == []


def test_a_machine_that_is_not_sold_that_way_is_refused():
    keys = {"accelerator": "nvidia-h100-80gb"}
    runs = {"sql": {**TEXT, "workers_per_node": 2}}
    (problem,) = problems(stack(runs, **keys))
    assert problem.key == "gemma:runs.sql.workersPerNode"
    assert "a3-highgpu-2g is sold as spot or flex-start" in problem.allowed
    assert problems(stack(runs, **keys, capacity="spot", reservation=None)) == []
    assert problems(stack({"sql": {**TEXT, "workers_per_node": 8}}, **keys)) == []


def test_a_model_that_the_machines_disk_does_not_hold_is_refused():
    run = {**TEXT, "trainer": {"model": {"model_name_or_path": "google/gemma-9-400b"}}}
    (problem,) = problems(stack({"sql": run}))
    assert problem.key == "gemma:runs.sql.trainer.model.model_name_or_path"
    assert "at most 1000 GiB" in problem.allowed


@pytest.mark.parametrize(
    ("run", "model", "needs"),
    [
        (TEXT, "google/gemma-4-31B-it", 58),  # 31e9 weights of two bytes
        (TEXT, "google/gemma-3-12b-it", None),
        (TEXT, "gs://bucket/model", None),
        (VISION, "google/gemma-3-27b-it", None),  # of half a byte
    ],
)
def test_a_model_that_no_gpu_of_the_machine_holds_is_refused(run, model, needs):
    run = {**run, "trainer": {"model": {"model_name_or_path": model}}}
    found = problems(stack({"a": run}, accelerator="nvidia-l4", capacity="spot", reservation=None))
    keys = ["gemma:runs.a.trainer.model.model_name_or_path"] if needs else []
    assert [one.key for one in found] == keys
    assert all("the 24 GiB of one nvidia-l4" in one.allowed for one in found)
    assert all(f"all of them, {needs} GiB" in one.allowed for one in found)


@pytest.mark.parametrize(
    "name", ["", " google/gemma-3-4b-it", "https://huggingface.co/google/gemma-3-4b-it", "gs://"]
)
def test_a_name_that_is_nowhere_is_refused_before_a_machine_starts(name):
    run = {**VISION, "trainer": {"data": {"dataset_name": name}}}
    assert [problem.key for problem in problems(stack({"v": run}))] == [
        "gemma:runs.v.trainer.data.dataset_name"
    ]


FOLDERS = ["gs://my-bucket", "gs://b.c/d e/f", "/mnt/m", "./m", "~/m"]


@pytest.mark.parametrize("name", ["OWNER/rows", "squad", *FOLDERS])
def test_data_sets_of_the_hub_and_folders_are_taken(name):
    run = {**VISION, "trainer": {"data": {"dataset_name": name}}}
    assert problems(stack({"v": run})) == []


@pytest.mark.parametrize(
    "name", ["google/gemma-3-4b-it", "a/Llama-like-Gemma-3-4B", "team/sql-adopted-31b", *FOLDERS]
)
def test_what_may_be_a_gemma_is_taken(name):
    run = {**VISION, "trainer": {"model": {"model_name_or_path": name}}}
    assert problems(stack({"v": run})) == []


@pytest.mark.parametrize(
    ("run", "name", "fitting"),
    [
        (TEXT, "meta-llama/Llama-3.1-8B", "google/gemma-4-31B-it"),  # the trainer's own
        (VISION, "gemma-team/my-Llama-7b", "google/gemma-3-4b-it"),
        (VISION, "gpt2", "google/gemma-3-4b-it"),
        (VISION, "gemma-4", "google/gemma-3-4b-it"),
        (VISION, "gemma-3-12b-it", "google/gemma-3-12b-it"),
        (VISION, " google/gemma-3-12b-it", "google/gemma-3-12b-it"),
        (TEXT, "https://huggingface.co/google/gemma-3-1b-it", "google/gemma-3-1b-it"),
    ],
)
def test_a_model_of_another_family_or_no_owner_is_refused_with_one_that_fits(run, name, fitting):
    run = {**run, "trainer": {"model": {"model_name_or_path": name}}}
    (problem,) = problems(stack({"v": run}))
    assert problem.key == "gemma:runs.v.trainer.model.model_name_or_path"
    assert problem.allowed.startswith("a Gemma: OWNER/NAME")
    assert problem.fix == f"pulumi config set --path '{{key}}' {fitting}"


@pytest.mark.parametrize(("size", "cluster"), [(1_000_000, None), (100_000, "shared")])
def test_a_config_that_its_object_does_not_hold_is_refused(size, cluster):
    prompt = {"data": {"system_prompt": "x" * size}}
    (problem,) = problems(stack({"v": {**VISION, "cluster": cluster, "trainer": prompt}}))
    assert problem.key == "gemma:runs.v.trainer"
    assert len(str(problem)) < 300


def test_a_queue_wants_an_own_cluster_of_fixed_size():
    runs = {"a": {**VISION, "queue": "gpus", "cluster": "shared", "min_nodes": 1}}
    assert [problem.key for problem in problems(stack(runs))] == [
        "gemma:runs.a.cluster",
        "gemma:runs.a.minNodes",
    ]
