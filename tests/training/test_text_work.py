"""FLOPs against torch's own counter, tokens against the rows, by hand where neither can see."""

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

from training.gemma4_text import model
from training.gemma4_text.config import ModelConfig
from training.gemma4_text.trainer import count
from training.gemma4_text.work import Work, pairs
from training.samples import text_model

ENDS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from peft import get_peft_model

    folder = text_model.write(tmp_path_factory.mktemp("model") / "tiny", hidden=64, layers=4)
    settings = ModelConfig(str(folder), dtype="float32", attn_implementation="eager")
    base = model.load(folder, settings, weights=True)
    lora = {"r": 4, "lora_alpha": 8, "lora_dropout": 0.0, "target_modules": ENDS}
    peft = get_peft_model(base, model.lora_config(base, lora))
    peft.enable_input_require_grads()  # as under activation checkpointing: layer 0 goes back too
    return peft


def counted(adapted: Any, rows: int, length: int, head: int) -> int:
    """FLOPs of a forward and backward pass in torch's count, the head on `head` positions."""
    ids = torch.randint(300, 900, (rows, length))
    keep = torch.arange(length - head, length)
    with FlopCounterMode(display=False) as counter:
        logits = adapted(input_ids=ids, use_cache=False, logits_to_keep=keep).logits
        logits.sum().backward()
    return counter.get_total_flops()


def test_the_work_of_lora_is_what_torch_counts(adapted: Any):
    work = Work.of(adapted)
    # Documents of one token: a token meets itself alone, with and without a causal mask. Four
    # FLOPs each way for that pair; torch also turns the rotary positions by a product, as no work.
    rows = 4
    ours = work.step([1] * rows, rows)
    assert counted(adapted, rows, 1, 1) == pytest.approx(ours, rel=2e-3)
    # Longer ones: torch counts eager attention whole, so the causal half is added to ours.
    length, head = 24, 8
    ours = work.step([length] * rows, rows * head)
    whole = sum(channels for channels, _ in work.attention) * (length * length)
    half = sum(channels * pairs(length, window) for channels, window in work.attention)
    ours += 12 * rows * (whole - half)
    assert counted(adapted, rows, length, head) == pytest.approx(ours, rel=2e-3)


def test_pairs_are_those_of_the_mask():
    for length in (1, 5, 9):
        for window in (None, 1, 4, 20):
            places = range(length)
            seen = [(i, j) for i in places for j in places if j <= i < j + (window or length)]
            assert pairs(length, window) == len(seen), (length, window)


def test_windows_and_head_sizes_are_those_of_each_layer(adapted: Any):
    # Local layers: 4 heads of 16 and a window of 128; global ones: 4 heads of 32 (text_model.py).
    assert Work.of(adapted).attention == ((64, 128), (128, None)) * 2


ROWS = [
    {"input_ids": [2, *range(300, 300 + n)], "labels": [-100] * 3 + list(range(302, 300 + n))}
    for n in (5, 11, 8)
]


def test_tokens_of_a_padded_batch():
    batch = DataCollatorForLanguageModeling(pad_token_id=0)(ROWS)
    assert count(batch) == ([6, 12, 9], 36 - 27, 27 - 3 * 3)


@pytest.mark.parametrize("multiple", [None, 16])
def test_tokens_of_a_packed_batch(multiple: int | None):
    packed = {name: [token for row in ROWS for token in row[name]] for name in ROWS[0]}
    packed["seq_lengths"] = [len(row["input_ids"]) for row in ROWS]
    collate = DataCollatorForLanguageModeling(
        pad_token_id=0, padding_free=True, pad_to_multiple_of=multiple
    )
    batch = collate([packed])
    assert batch["input_ids"].numel() == (32 if multiple else 27)
    assert count(batch) == ([6, 12, 9], 5 if multiple else 0, 27 - 3 * 3)
