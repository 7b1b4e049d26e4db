"""The text trainer as the Job starts it: FSDP2 on two CPU processes, against one process."""

import json
import random
import signal
from pathlib import Path

import pytest
import yaml
from transformers import AutoTokenizer

from tests.training.text_runs import ROWS, STEPS, Launch, Run
from training.gemma4_text.config import DataConfig, resolve
from training.gemma4_text.rows import read_rows
from training.gemma4_text.split import make_split
from training.gemma4_text.tokens import messages


def test_a_run_leaves_all_that_is_promised(sharded: Run, text_samples: Path):
    names = {path.name for path in sharded.folder.iterdir()}
    assert names >= {
        *("adapter", "checkpoints", "tensorboard", "config.yaml"),
        *("metrics.jsonl", "evaluation.json", "report.html", "result.json"),
    }
    assert list(sharded.losses()) == list(range(1, STEPS + 1))
    evaluation = json.loads((sharded.folder / "evaluation.json").read_text())
    assert evaluation["tuned"]["held_out_loss"] < evaluation["base"]["held_out_loss"]
    assert evaluation["tuned"]["judged"] == 4
    resolved = yaml.safe_load((sharded.folder / "config.yaml").read_text())
    assert resolved["sft"]["max_steps"] == STEPS
    assert "equals the trainer's" in sharded.said
    page = (sharded.folder / "report.html").read_text()
    assert "<polyline" in page
    kept = {path.name for path in (sharded.folder / "checkpoints").iterdir()}
    assert kept == {"step-000002", "step-000004", "step-000005"}


def test_two_sharded_processes_train_what_one_process_trains(
    sharded: Run, launch: Launch, text_samples: Path
):
    base = f"file://{text_samples / 'model'}"  # read as a bucket's folder is
    alone = launch("alone", 1, model={"model_name_or_path": base})
    assert alone.code == 0, alone.said[-4000:]
    saved = json.loads((alone.folder / "adapter" / "adapter_config.json").read_text())
    assert saved["base_model_name_or_path"] == base  # not the pod's copy of it
    for noise in ("Could not find a config file", "gemm_4bit_forward"):
        assert noise not in alone.said
    assert alone.losses() == pytest.approx(sharded.losses(), abs=1e-4)
    one, two = alone.adapter(), sharded.adapter()
    assert one.keys() == two.keys()
    for name, tensor in one.items():
        assert (tensor - two[name]).abs().max() < 2e-3, name
    figures = [run.result()["evaluation"]["tuned"]["held_out_loss"] for run in (alone, sharded)]
    assert figures[0] == pytest.approx(figures[1], abs=1e-3)
    # A token is as much work at each step, and half as much for each of two processes.
    one, two = (
        [x["model_tflops"] / x["tokens_per_second"] for x in run.lines()[1:] if "loss" in x]
        for run in (alone, sharded)
    )
    assert one == pytest.approx([2 * two[0]] * (STEPS - 1), rel=0.1)
    assert two == pytest.approx([two[0]] * (STEPS - 1), rel=0.1)


def test_bfloat16_trains_what_float32_trains_and_keeps_its_adapter_in_float32(
    sharded: Run, launch: Launch
):
    # Three rows of one a batch: one process has a batch more than the other.
    rows = {"rows": 3, "batch_size": 1, "max_new_tokens": 1, "baseline": False}
    types = {"model": {"dtype": "bfloat16"}, "sft": {"bf16": True, "max_steps": 2}}
    half = launch("half", 2, **types, evaluation=rows)
    assert half.code == 0, half.said[-4000:]
    wanted = {step: loss for step, loss in sharded.losses().items() if step <= 2}
    assert half.losses() == pytest.approx(wanted, abs=5e-3)
    assert {str(tensor.dtype) for tensor in half.adapter().values()} == {"torch.float32"}
    assert half.result()["evaluation"]["tuned"]["rows"] == 3


def test_a_run_that_is_stopped_and_killed_ends_as_if_it_never_had_been(
    sharded: Run, launch: Launch
):
    changes = {"fsdp": {"state_dict_type": "SHARDED_STATE_DICT"}}
    step = random.randint(1, STEPS - 3)
    stopped = launch("stopped", 2, disturb=(f"step {step}/", signal.SIGTERM), **changes)
    assert stopped.code != 0
    assert not (stopped.folder / "result.json").exists()
    assert "checkpoint complete" in stopped.said, stopped.said[-4000:]
    names = {path.name for path in (stopped.folder / "checkpoints").glob("*/*")}
    assert "optimizer_0" in names  # a folder of shards
    assert "optimizer.bin" not in names
    # Lost while it resumes, then while it saves: neither leaves anything that stands in the way.
    for moment in ("resuming from", f"step {STEPS}/"):
        lost = launch("stopped", 2, disturb=(moment, signal.SIGKILL), **changes)
        assert lost.code == -signal.SIGKILL, lost.said[-4000:]
        assert "resuming from" in lost.said
    resumed = launch("stopped", 2, **changes)
    assert resumed.code == 0, resumed.said[-4000:]
    assert "resuming from" in resumed.said
    assert resumed.losses() == pytest.approx(sharded.losses(), abs=1e-6)
    for name, tensor in resumed.adapter().items():
        assert (tensor - sharded.adapter()[name]).abs().max() < 1e-5, name


def test_a_single_process_keeps_its_steps_when_it_is_stopped(launch: Launch):
    # Whenever the signal comes, no other checkpoint is due.
    steps = {"max_steps": 200, "save_steps": 1000}
    stopped = launch("single", 1, disturb=("step 1/", signal.SIGTERM), sft=steps)
    assert stopped.code == 143, stopped.said[-4000:]
    assert "checkpoint complete" in stopped.said
    (kept,) = (stopped.folder / "checkpoints").iterdir()
    assert (kept / "manifest.json").is_file()
    assert not (stopped.folder / "result.json").exists()


def test_a_run_that_died_after_its_last_step_trains_no_more(launch: Launch):
    batch = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 16}
    steps = {"sft": {"max_steps": 2, **batch}, "data": {"accumulate": "rows"}}
    first = launch("short", 1, **steps)
    assert first.code == 0, first.said[-4000:]
    result = first.result()
    rows = result["sequences_per_step"] * result["rows"]["rows"] / result["sequences"]
    assert rows == pytest.approx(16, abs=0.8)  # in a step, however many of them share a sequence
    trained = first.adapter()
    (first.folder / "result.json").unlink()
    again = launch("short", 1, **steps)
    assert again.code == 0, again.said[-4000:]
    assert again.losses().keys() == {1, 2}
    assert again.result()["steps"] == 2
    for name, tensor in again.adapter().items():
        assert bool((tensor == trained[name]).all()), name


def test_a_loss_that_leaves_all_bounds_is_not_tried_again(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    mark = tmp_path / "no-retry"
    monkeypatch.setenv("GEMMA_CONFIG_ERROR_FILE", str(mark))
    infinite = {"lora_alpha": 10**39}  # above what float32 holds, times lora_B, which is 0
    run = launch("wild", 1, lora=infinite)
    assert run.code != 0
    assert "grad_norm is inf at step 1" in run.said, run.said[-3000:]
    assert mark.exists(), run.said[-4000:]
    assert not (run.folder / "result.json").exists()
    assert "loss" in run.lines()[-1]  # what led there is kept


def test_rows_too_long_to_train_on_are_not_asked_and_the_merged_model_comes_last(
    launch: Launch, text_samples: Path
):
    settings = {
        "data": {"held_out_rows": 40},
        "sft": {"max_steps": 2, "max_length": 345, "save_steps": 1, "save_total_limit": 1},
    }
    run = launch(
        "long", 1, **settings, evaluation={"rows": 0, "batch_size": 40}, export={"merged": True}
    )
    assert run.code == 0, run.said[-4000:]
    data = DataConfig(**{**resolve({})["data"], "train_rows": ROWS, "held_out_rows": 40})
    tokenizer = AutoTokenizer.from_pretrained(text_samples / "model")
    lengths: list[int] = []
    for row in make_split(read_rows(text_samples / "data", data), data).held_out:
        spoken = [*messages(row, data), {"role": "assistant", "content": row.answer}]
        text = tokenizer.apply_chat_template(spoken, tokenize=False)
        lengths.append(len(tokenizer(text.rstrip(), add_special_tokens=False)["input_ids"]))
    fit = sum(length <= 345 for length in lengths)
    assert 4 < fit < 40
    result = run.result()
    assert result["evaluation"]["tuned"]["rows"] == result["held_out_rows"] == fit
    assert {path.name for path in (run.folder / "checkpoints").iterdir()} == {"step-000002"}
    assert (run.folder / "merged" / "config.json").is_file()
    assert run.said.index("equals the trainer's") < run.said.index("layers into")


def test_two_machines_of_which_one_is_stopped_go_on_together(sharded: Run, launch: Launch):
    step = random.randint(1, STEPS - 3)
    alone = {"save_steps": 100}  # so that the other one saves for no reason of its own
    stopped = launch("apart", 2, nodes=2, disturb=(f"step {step}/", signal.SIGTERM), sft=alone)
    assert stopped.code != 0
    assert "checkpoint complete" in stopped.said, stopped.said[-4000:]
    assert not (stopped.folder / "result.json").exists()
    apart = launch("apart", 2, nodes=2, sft=alone)
    assert apart.code == 0, apart.said[-4000:]
    assert "resuming from" in apart.said
    assert apart.losses() == pytest.approx(sharded.losses(), abs=1e-6)
    for name, tensor in apart.adapter().items():
        assert (tensor - sharded.adapter()[name]).abs().max() < 1e-5, name
    newest = apart.folder / "checkpoints" / "step-000005"
    files = json.loads((newest / "manifest.json").read_text())["files"]
    assert {"rng_state_0.pth", "rng_state_1.pth"} <= set(files)
    parts = sorted(newest.glob("part-*.json"))
    assert [path.stem[-1] for path in parts] == ["0", "1"]
    assert "rng_state_1.pth" in json.loads(parts[1].read_text())


def test_a_finished_run_is_not_run_again(sharded: Run, launch: Launch):
    before = sharded.result()
    again = launch("sharded", 2)
    assert again.code == 0
    assert "already complete" in again.said
    assert again.result() == before
