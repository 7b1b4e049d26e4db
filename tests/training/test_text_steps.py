"""One optimizer step is the same, however its rows are packed, padded and accumulated."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from training.gemma4_text import model, tokens
from training.gemma4_text.config import DataConfig, ModelConfig, resolve
from training.gemma4_text.rows import read_rows
from training.gemma4_text.trainer import TERMINATED, Stop, TextTrainer
from training.samples import text_model, text_to_sql

ROWS, LENGTH = 12, 1024


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return text_model.write(tmp_path_factory.mktemp("model") / "tiny", hidden=64, layers=2)


@pytest.fixture(scope="module")
def encoded(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """Tokenizer and rows, answers of very different lengths among them."""
    from transformers import AutoTokenizer

    settings = DataConfig(**resolve({})["data"])
    place = text_to_sql.write(tmp_path_factory.mktemp("data")).parent
    tokenizer = AutoTokenizer.from_pretrained(folder)
    rows = sorted(read_rows(place, settings), key=lambda row: len(row.answer))
    chosen = [*rows[: ROWS // 2], *rows[-ROWS // 2 :]]
    return tokenizer, tokens.tokenise(tokenizer, chosen, settings, LENGTH)


def step(folder: Path, out: Path, encoded: tuple[Any, Any], batch: int, packing: bool) -> Any:
    """(loss, adapter) after one plain gradient step on all rows."""
    from trl.trainer.sft_config import SFTConfig

    tokenizer, rows = encoded
    sequences = tokens.packed(rows, LENGTH, "bfd") if packing else rows
    assert len(sequences) % batch == 0, f"{len(sequences)} sequences"
    torch.manual_seed(0)
    base = model.load(folder, ModelConfig(str(folder), dtype="float32"), weights=True)
    lora = {"r": 4, "lora_alpha": 8, "lora_dropout": 0.0, "target_modules": "all-linear"}
    arguments = SFTConfig(
        output_dir=str(out),
        use_cpu=True,
        bf16=False,
        seed=1,
        packing=packing,
        max_length=LENGTH,
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=len(sequences) // batch,
        max_steps=1,
        optim="sgd",
        learning_rate=1.0,
        max_grad_norm=0,
        warmup_steps=0,
        lr_scheduler_type="constant",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        logging_steps=1,
        dataset_kwargs={"skip_prepare_dataset": True},
    )
    trainer = TextTrainer(
        model=base,
        args=arguments,
        train_dataset=sequences,
        processing_class=tokenizer,
        peft_config=model.lora_config(base, lora),
        base=("tiny", "main"),
    )
    trainer.train()
    (logged,) = [line for line in trainer.state.log_history if "loss" in line]
    return logged, {n: p.detach() for n, p in trainer.model.named_parameters() if "lora_B" in n}


def test_a_step_depends_on_neither_packing_nor_accumulation(
    folder: Path, encoded: tuple[Any, Any], tmp_path: Path
):
    counted = tokens.counts(encoded[1])
    wanted, reference = step(folder, tmp_path, encoded, batch=ROWS, packing=False)
    assert max(float(change.abs().max()) for change in reference.values()) > 1e-2
    for batch, packing in ((1, False), (4, False), (1, True)):
        logged, adapter = step(folder, tmp_path, encoded, batch=batch, packing=packing)
        assert logged["loss"] == pytest.approx(wanted["loss"], rel=1e-5)
        for name, change in adapter.items():
            assert torch.allclose(change, reference[name], rtol=1e-3, atol=1e-6), (name, packing)
        assert (logged["tokens"], logged["trained_tokens"]) == (
            counted["tokens"],
            counted["trained_tokens"],
        )
        assert (logged["padding"] > 0) == (batch == 4)  # a row alone needs none, nor a packed one


def test_a_stop_that_comes_after_the_last_step_is_obeyed(monkeypatch: pytest.MonkeyPatch):
    """Nobody would look at it any more, and the pod would be killed in its evaluation."""
    left: list[int] = []
    monkeypatch.setattr(os, "_exit", left.append)
    before = signal.getsignal(signal.SIGTERM)
    try:
        stop = Stop()
        stop.training = True
        signal.raise_signal(signal.SIGTERM)
        assert left == []
        stop.over()
        assert left == [TERMINATED]
    finally:
        signal.signal(signal.SIGTERM, before)
