"""Training the tiny Gemma 3: what moves, what is followed, and what stops it."""

import math
import resource
from pathlib import Path

import pytest
import torch
import transformers
from safetensors import SafetensorError

from tests.training.vision_trainers import settings
from training.common.metrics import DivergedError
from training.gemma3_vision import data, evaluate, model

pytestmark = pytest.mark.usefixtures("scratch")


def test_training_moves_every_adapter_and_nothing_else(make_trainer):
    trainer, _, _ = make_trainer()
    before = {n: p.detach().clone() for n, p in trainer.model.named_parameters()}
    trainer.train()

    def same(left, right):  # as bytes: packed 4-bit values read as bf16 may be NaN
        return torch.equal(left.detach().view(torch.uint8), right.view(torch.uint8))

    moved = {n for n, p in trainer.model.named_parameters() if not same(p, before[n])}
    adapters = {n for n in before if "lora_" in n}
    assert len(adapters) == 56
    assert moved == adapters
    assert all(before[n].dtype == torch.float32 for n in adapters)
    log = [line for line in trainer.state.log_history if "loss" in line]
    assert log[-1]["loss"] < log[0]["loss"]
    assert log[-1]["samples_per_second"] > 0
    assert log[-1]["memory_gib"] > 0.1


def test_tied_head_and_embeddings_may_be_trained(make_trainer):
    saved = ["lm_head", "embed_tokens"]
    trainer, _, _ = make_trainer(lora={"modules_to_save": saved, "ensure_weight_tying": True})
    trainer.train()
    inner = trainer.model.get_base_model()
    assert torch.equal(inner.lm_head.weight, inner.model.language_model.embed_tokens.weight)


def test_the_held_out_loss_is_followed_and_changes_nothing(make_trainer, processor):
    followed, split, _ = make_trainer(
        sft={"eval_strategy": "steps", "eval_steps": 0.5, "eval_on_start": True}
    )
    untuned = evaluate.held_out_loss(followed.model, processor, split.held_out, 1)
    followed.train()
    tuned = evaluate.held_out_loss(followed.model, processor, split.held_out, 1)
    curve = [(m["step"], m["eval_loss"]) for m in followed.state.log_history if "eval_loss" in m]
    assert [step for step, _ in curve] == [0, 2, 4]
    # Batches of one row; the trainer's are of four, padded.
    assert curve[0][1] == pytest.approx(untuned, abs=2e-3)
    assert curve[-1][1] == pytest.approx(tuned, abs=2e-3)
    assert tuned < untuned
    plain, *_ = make_trainer()
    plain.train()
    for log in (followed.state.log_history, plain.state.log_history):
        log[:] = [m["loss"] for m in log if "loss" in m]
    assert followed.state.log_history == plain.state.log_history


def test_a_run_whose_steps_are_done_trains_no_further(make_trainer, tmp_path):
    sft = {"max_steps": 2, "save_steps": 2}
    first, *_ = make_trainer(sft=sft, save=True)
    first.train()
    second, *_ = make_trainer(sft=sft)
    second.train(resume_from_checkpoint=str(tmp_path / "scratch" / "trainer" / "checkpoint-2"))
    assert second.state.global_step == 2
    trained = dict(first.model.named_parameters())
    for name, parameter in second.model.named_parameters():
        if "lora_" in name:
            assert torch.equal(parameter, trained[name]), name


def test_a_full_disk_stops_before_a_torn_checkpoint_is_handed_over(make_trainer):
    """The kernel refuses to make a file larger than 200 kB; the optimizer's is."""
    trainer, *_ = make_trainer(sft={"max_steps": 2, "save_steps": 1}, save=True)
    handed: list[int] = []

    class Saver(transformers.TrainerCallback):
        def on_save(self, args, state, control, **_):
            handed.append(state.global_step)

    trainer.add_callback(Saver())
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, limits[1]))
    try:
        with pytest.raises((OSError, RuntimeError, SafetensorError)):
            trainer.train()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert trainer.state.global_step == 1
    assert not handed


def test_a_loss_that_is_no_number_stops_with_its_rows(make_trainer):
    trainer, split, _ = make_trainer()
    order = list(trainer._get_train_sampler())
    expected = [split.train[i]["row"] for i in order[4:8]]
    step = trainer.training_step

    def poisoned(*arguments, **named):
        if trainer.state.global_step == 1:
            weights = next(p for n, p in trainer.model.named_parameters() if "lora_B" in n)
            weights.data.fill_(math.nan)
        return step(*arguments, **named)

    trainer.training_step = poisoned
    with pytest.raises(DivergedError) as caught:
        trainer.train()
    assert "step 2" in str(caught.value)
    assert str(expected) in str(caught.value)


def test_weights_that_are_no_numbers_are_saved_for_no_reason(make_trainer):
    """A save that an eviction asks for, at a step that save_steps does not name."""
    trainer, *_ = make_trainer(sft={"save_steps": 100, "max_steps": 3}, save=True)
    saved = Path(trainer.args.output_dir) / "checkpoint-1"

    class Evicted(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            if state.global_step == 2:
                next(p for n, p in trainer.model.named_parameters() if "lora_B" in n).data[0] = (
                    math.nan
                )
            control.should_save = True

    trainer.add_callback(Evicted())
    with pytest.raises(DivergedError, match=r"lora_B\S* is not a number at step 2"):
        trainer.train()
    assert [*saved.parent.glob("checkpoint-*")] == [saved]


def test_held_out_loss_does_not_depend_on_batches_or_workers(samples, processor, monkeypatch):
    config = settings(samples)
    rows = [data.prepare(config.data, samples / "products").held_out[i] for i in range(6)]
    base = model.load_base(config, samples / "model")
    one = evaluate.held_out_loss(base, processor, rows, 1)
    assert evaluate.held_out_loss(base, processor, rows, 4) == pytest.approx(one, abs=2e-3)
    shares = []
    monkeypatch.setattr("torch.distributed.all_reduce", lambda sums: shares.append(sums.clone()))
    for rank in range(2):
        evaluate.held_out_loss(base, processor, rows, 1, rank=rank, world=2)
    total = sum(shares)
    assert (total[0] / total[1]).item() == pytest.approx(one, abs=1e-9)
