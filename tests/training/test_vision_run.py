"""Whole runs on a real Ray cluster of this machine: evicted, killed, torn, resumed, refused.

Ray takes its time to start workers; the runs are few and each is six steps long.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

os.environ.setdefault("RAY_TRAIN_ENABLE_PRINT_PATCH", "0")
os.environ.setdefault("RAY_AUTH_MODE", "disabled")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

from safetensors.torch import load_file

from tests.training.hub import Hub
from training.gemma3_vision import config, train
from training.samples import products, vision_model

STEPS = 6


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    place = tmp_path_factory.mktemp("samples")
    vision_model.write(place / "model")
    products.write(place / "products")
    return place


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

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
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


def settings(samples, output, workers=2, rows=None, **sections):
    sft = {
        "max_steps": STEPS,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2 // workers,
        "learning_rate": 4e-3,
        "bf16": False,
        "activation_checkpointing": False,
        "logging_steps": 1,
        "save_steps": 2,
        "eval_steps": 3,
        "dataloader_num_workers": 0,
    }
    return config.resolve(
        {
            "model": {"model_name_or_path": str(samples / "model"), "dtype": "float32"},
            "data": {"dataset_name": str(rows or samples / "products")},
            "sft": {**sft, **sections.get("sft", {})},
            "evaluation": {"rows": 2, "max_new_tokens": 4},
            "quantization": {"bnb_4bit_compute_dtype": "float32"},
            "ray": sections.get("ray", {"max_failures": 1}),
            "lora": sections.get("lora", {"lora_dropout": 0.1}),
            "export": sections.get("export", {}),
            "run": {
                "output_dir": str(output),
                "id": output.name,
                "device": "cpu",
                "workers_per_node": workers,
            },
        }
    )


def losses(output):
    lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: line["loss"] for line in lines if "loss" in line}


def adapter(output):
    return load_file(output / "adapter" / "adapter_model.safetensors")


def same_weights(left, right):
    assert left.keys() == right.keys()
    return all(bool((left[name] == right[name]).all()) for name in left)


def complete(output, step):
    return (output / "checkpoints" / f"step-{step:06d}" / "manifest.json").exists()


def wait_for(what, holds):
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def unverified(real):
    """`train.work` without the fresh process at its end: the uninterrupted run has it."""

    def work(resolved):
        from training.gemma3_vision import outcome

        outcome.verify = lambda *_: {}
        real(resolved)

    return work


def disturbed(output, notes):
    """`train.work` on a bad day; `notes` gets the step at which each attempt starts.

    Worker 1's node is to go at step 3, and it is killed without warning once that checkpoint is
    complete. In the next attempt rank 0 is, when step 4 is saved.
    """
    real = unverified(train.work)

    def work(resolved):
        from training.gemma3_vision import checkpointing, outcome, trainer

        stop = Path(os.environ["GEMMA_STOP_FILE"])
        restore, step_end = checkpointing.restore, trainer.Guard.on_step_end

        def noted(store, local, rank, local_rank):
            found = restore(store, local, rank, local_rank)
            if rank == 0:
                with notes.open("a") as file:
                    file.write(f"{outcome.step_of(found)}\n")
            return found

        def on_step_end(self, args, state, control, **named):
            step_end(self, args, state, control, **named)
            attempts = len(notes.read_text().split())
            at = (attempts, args.process_index, state.global_step)
            if at == (1, 1, 3):
                stop.touch()
            elif at in ((1, 1, 4), (2, 0, 5)):
                step = state.global_step - 1
                wait_for(f"checkpoint {step}", lambda: complete(output, step))
                stop.unlink(missing_ok=True)
                os.kill(os.getpid(), signal.SIGKILL)

        checkpointing.restore, trainer.Guard.on_step_end = noted, on_step_end
        real(resolved)

    return work


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
