"""Whole runs on a real Ray cluster of this machine: evicted, killed, torn, resumed, refused.

Ray takes its time to start workers; the runs are few and each is six steps long.
"""

import json
import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

os.environ.setdefault("RAY_TRAIN_ENABLE_PRINT_PATCH", "0")
os.environ.setdefault("RAY_AUTH_MODE", "disabled")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

from tests.training import vision_runs
from tests.training.hub import Hub
from tests.training.vision_runs import (
    STEPS,
    adapter,
    disturbed,
    losses,
    same_weights,
    settings,
    unverified,
)
from training.gemma3_vision import config, train


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """A Hub to push to; nothing is read from it."""
    cache = tmp_path_factory.mktemp("hub")
    with Hub() as server, pytest.MonkeyPatch.context() as patch:
        server.use(patch, cache, "hf_writer")
        yield server


@pytest.fixture(scope="module")
def cluster(hub, tmp_path_factory):
    import ray
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(vision_runs)
    root = Path(__file__).parents[2]
    variables = {
        **hub.environment(tmp_path_factory.mktemp("hf"), "hf_writer"),
        "GEMMA_STOP_FILE": str(tmp_path_factory.mktemp("node") / "stop"),
        "GEMMA_SCRATCH": str(tmp_path_factory.mktemp("scratch")),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(root),
    }
    ray.init(
        "local",  # not one that somebody else has started on this machine
        num_cpus=4,
        include_dashboard=False,
        runtime_env={"env_vars": variables},
        object_store_memory=200 * 2**20,
    )
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def uninterrupted(cluster, samples, tmp_path_factory):
    output = tmp_path_factory.mktemp("runs") / "whole"
    asked = settings(samples, output, export={"merged": True}, sft={"hub_model_id": "jane/shop"})
    assert train.drive(asked) == 0
    return output


def test_a_run_leaves_its_folder_complete(uninterrupted, samples, capfd):
    names = {path.name for path in uninterrupted.iterdir()}
    assert names == {
        *("adapter", "checkpoints", "tensorboard", "merged", "config.yaml", "metrics.jsonl"),
        *("evaluation.json", "report.html", "result.json"),
    }
    kept = {p.name for p in (uninterrupted / "checkpoints").iterdir() if p.is_dir()}
    assert kept == {"step-000004", "step-000006"}
    states = {p.name for p in (uninterrupted / "checkpoints" / "step-000006").glob("rng_state*")}
    assert states == {"rng_state_0.pth", "rng_state_1.pth"}
    evaluation = json.loads((uninterrupted / "evaluation.json").read_text())
    assert evaluation["tuned"]["held_out_loss"] < evaluation["base"]["held_out_loss"]
    assert (uninterrupted / "report.html").read_text().count("data:image/png;base64") == 2
    assert json.loads((uninterrupted / "result.json").read_text())["steps"] == STEPS
    before = (uninterrupted / "result.json").stat().st_mtime_ns
    assert train.drive(settings(samples, uninterrupted)) == 0
    assert "already complete" in capfd.readouterr().err
    assert (uninterrupted / "result.json").stat().st_mtime_ns == before


def test_the_curves_are_on_the_page_and_in_tensorboards_files(uninterrupted):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    lines = [json.loads(m) for m in (uninterrupted / "metrics.jsonl").read_text().splitlines()]
    held_out = {m["step"]: m["eval_loss"] for m in lines if "eval_loss" in m}
    evaluation = json.loads((uninterrupted / "evaluation.json").read_text())
    assert [*held_out] == [0, 3, STEPS]
    assert held_out[0] == pytest.approx(evaluation["base"]["held_out_loss"], abs=1e-3)
    assert held_out[STEPS] == pytest.approx(evaluation["tuned"]["held_out_loss"], abs=1e-3)
    events = EventAccumulator(str(uninterrupted / "tensorboard"))
    events.Reload()
    for tag, wanted in (("train/loss", losses(uninterrupted)), ("eval/loss", held_out)):
        found = {event.step: event.value for event in events.Scalars(tag)}
        assert found == pytest.approx(wanted, rel=1e-5)
    page = (uninterrupted / "report.html").read_text()
    assert page.count("<polyline") == 2
    for step, loss in held_out.items():
        assert f"held-out {loss:.4g} at step {step}" in page


def test_the_adapter_is_on_the_hub_and_its_page_in_the_record(uninterrupted, hub):
    pushed = hub.repositories["models/jane/shop"]
    assert pushed.private
    result = json.loads((uninterrupted / "result.json").read_text())
    assert result["hub_page"] == f"{hub.address}/jane/shop"
    for path in (uninterrupted / "adapter").iterdir():
        if path.name != "README.md":  # its card names the base by the Hub's rules
            assert pushed.files[path.name] == path.read_bytes(), path.name


def test_the_merged_model_says_what_base_and_adapter_say(uninterrupted, samples):
    import torch
    from peft import PeftModel
    from transformers import AutoModelForImageTextToText, AutoProcessor

    from training.gemma3_vision import data
    from training.gemma3_vision.trainer import RowCollator

    def load(folder):
        kind = AutoModelForImageTextToText
        return kind.from_pretrained(folder, dtype=torch.float32, device_map={"": "cpu"}).eval()

    resolved = config.typed(settings(samples, uninterrupted))
    row = data.prepare(resolved.data, samples / "products").held_out[0]
    processor = AutoProcessor.from_pretrained(uninterrupted / "merged")
    inputs = RowCollator(processor)([row])
    for name in ("rows", "labels"):
        inputs.pop(name)
    base = load(samples / "model")
    merged = load(uninterrupted / "merged")
    with torch.no_grad():
        plain = base(**inputs).logits
        expected = PeftModel.from_pretrained(base, uninterrupted / "adapter")(**inputs).logits
        found = merged(**inputs).logits
    assert torch.allclose(found, expected, atol=2e-4)
    assert (found - plain).abs().max() > 0.1
    assert merged.config.tie_word_embeddings
    assert merged.lm_head.weight is merged.get_input_embeddings().weight


def test_eviction_kills_a_new_job_and_a_torn_object_change_nothing(
    uninterrupted, samples, tmp_path, monkeypatch
):
    output, notes = tmp_path / "disturbed", tmp_path / "notes"
    resolved = settings(samples, output, ray={"max_failures": 1})
    with monkeypatch.context() as patched:
        patched.setattr(train, "work", disturbed(output, notes))
        assert train.drive(resolved) == 1  # rank 0's death is one too many
        assert notes.read_text().split() == ["0", "3"]  # 3 was saved for the eviction alone
        torn = output / "checkpoints" / "step-000004" / "optimizer.pt"
        torn.write_bytes(torn.read_bytes()[:-100])
        assert train.drive(resolved) == 0  # a new job
        assert notes.read_text().split() == ["0", "3", "3"]
    assert losses(output) == losses(uninterrupted)
    assert same_weights(adapter(output), adapter(uninterrupted))


def test_one_worker_trains_as_two_do(cluster, samples, tmp_path, monkeypatch):
    monkeypatch.setattr(train, "work", unverified(train.work))
    found = {}
    for workers in (1, 2):
        output = tmp_path / f"world{workers}"
        sections = {"lora": {"lora_dropout": 0.0}, "sft": {"max_steps": 3}}
        assert train.drive(settings(samples, output, workers=workers, **sections)) == 0
        found[workers] = losses(output)
    assert found[1] == pytest.approx(found[2], abs=2e-4)


def test_what_no_retry_can_mend_ends_at_once(cluster, samples, tmp_path, capfd):
    place = tmp_path / "rows"
    place.mkdir()
    table = pq.read_table(samples / "products" / "train.parquet")
    rows = table.to_pylist()
    rows[11]["description"] = " "
    pq.write_table(table.from_pylist(rows, schema=table.schema), place / "train.parquet")
    retried = {"max_failures": 5}
    resolved = settings(samples, tmp_path / "bad", workers=1, rows=place, ray=retried)
    assert train.drive(resolved) == 78
    assert "row 11 is without description" in capfd.readouterr().err
