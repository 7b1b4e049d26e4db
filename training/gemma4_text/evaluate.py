"""Answers on the held-out rows, and their score; base and tuned go through the same code."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from training.gemma4_text.config import DataConfig, EvaluationConfig
from training.gemma4_text.rows import Row
from training.gemma4_text.sql import Verdict, extract, judge
from training.gemma4_text.sqlite import Limits
from training.gemma4_text.tokens import IGNORED, encode, end_of_turn, prompt_ids


def share(count: int, rank: int, world: int) -> list[int]:
    """Indices that a rank handles: every `world`-th one, so that lengths even out."""
    return list(range(rank, count, world))


@torch.no_grad()
def generate(
    model: Any,
    tokenizer: Any,
    rows: Sequence[Row],
    *,
    data: DataConfig,
    evaluation: EvaluationConfig,
    device: torch.device,
) -> list[str]:
    """Greedy answers to all rows, in their order, on every rank.

    Each rank answers its share in batches of like length; ranks with fewer batches answer a dummy
    one, since under FSDP2 all must take part in every call.
    """
    rank, world = _rank()
    prompts = {i: prompt_ids(tokenizer, rows[i], data) for i in share(len(rows), rank, world)}
    order = sorted(prompts, key=lambda i: len(prompts[i]))
    size = evaluation.batch_size
    batches = [order[i : i + size] for i in range(0, len(order), size)]
    most = math.ceil(math.ceil(len(rows) / world) / size)
    answers: dict[int, str] = {}
    end = end_of_turn(tokenizer, data)
    for number in range(most):
        indices = batches[number] if number < len(batches) else []
        ids = [prompts[i] for i in indices] or [[tokenizer.bos_token_id or end]]
        width = max(len(prompt) for prompt in ids)
        pad = tokenizer.pad_token_id
        batch = torch.tensor([[pad] * (width - len(p)) + p for p in ids], device=device)
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in ids], device=device)
        output = model.generate(
            input_ids=batch,
            attention_mask=mask,
            do_sample=False,
            max_new_tokens=evaluation.max_new_tokens if indices else 1,
            eos_token_id=[end, tokenizer.eos_token_id],
            pad_token_id=pad,
            synced_gpus=world > 1,
        )
        for row, index in enumerate(indices):
            answers[index] = tokenizer.decode(output[row, width:], skip_special_tokens=True)
    merged: dict[int, str] = {}
    for part in _gather(answers):
        merged.update(part)
    return [merged[i] for i in range(len(rows))]


@torch.no_grad()
def held_out_loss(
    model: Any,
    tokenizer: Any,
    rows: Sequence[Row],
    *,
    data: DataConfig,
    batch_size: int,
    device: torch.device,
) -> float:
    """Mean negative log-likelihood in nats of a trained token, over all rows.

    Weighted by tokens, not by batches, so it depends on neither batch size nor world size.
    """
    rank, world = _rank()
    end = end_of_turn(tokenizer, data)
    mine = [encode(tokenizer, rows[i], data, end) for i in share(len(rows), rank, world)]
    most = math.ceil(math.ceil(len(rows) / world) / batch_size)
    total = torch.zeros(2, dtype=torch.float64)
    for number in range(most):
        part = mine[number * batch_size : (number + 1) * batch_size]
        dummy = {"input_ids": [end, end], "labels": [IGNORED, IGNORED]}
        batch = pad([*part] or [dummy], tokenizer.pad_token_id, device)
        losses, counted = nll(model, batch)
        if part:
            total += torch.tensor([losses, counted], dtype=torch.float64)
    if world > 1:
        total = torch.stack([torch.tensor(t) for t in _gather(total.tolist())]).sum(0)
    return float(total[0] / total[1])


def nll(model: Any, batch: dict[str, torch.Tensor]) -> tuple[float, int]:
    """(summed negative log-likelihood, tokens) of the labels of a batch.

    Only positions before a label of some row go through the head: with Gemma's 262,144 tokens the
    logits of a whole batch of 8 rows of 1,024 would take 8.6 GB in float32.
    """
    labels = batch["labels"][:, 1:]
    chosen = labels != IGNORED
    positions = chosen.any(dim=0).nonzero().flatten()
    logits = model(
        input_ids=batch["input_ids"],
        attention_mask=batch["attention_mask"],
        use_cache=False,
        logits_to_keep=positions,
    ).logits
    labels, chosen = labels[:, positions], chosen[:, positions]
    loss = torch.nn.functional.cross_entropy(
        logits[chosen].float(), labels[chosen], reduction="sum"
    )
    return float(loss.detach()), int(chosen.sum())


def pad(
    rows: Sequence[dict[str, list[int]]], pad_id: int, device: torch.device
) -> dict[str, torch.Tensor]:
    """Right-padded input_ids, labels and attention_mask of encoded rows, each (rows, width)."""
    width = max(len(row["input_ids"]) for row in rows)

    def filled(name: str, value: int) -> torch.Tensor:
        lists = [row[name] + [value] * (width - len(row[name])) for row in rows]
        return torch.tensor(lists, device=device)

    mask = [[1] * len(r["input_ids"]) + [0] * (width - len(r["input_ids"])) for r in rows]
    return {
        "input_ids": filled("input_ids", pad_id),
        "labels": filled("labels", IGNORED),
        "attention_mask": torch.tensor(mask, device=device),
    }


def score(
    rows: Sequence[Row], answers: Sequence[str], evaluation: EvaluationConfig
) -> tuple[dict[str, Any], list[Verdict]]:
    """Figures of one model's answers, and the verdict on each.

    Accuracy counts only rows whose gold runs; the others are in `excluded`, by dialect.
    """
    limits = Limits(evaluation.timeout_seconds, evaluation.result_rows, evaluation.memory_mib)
    verdicts = [
        judge(row.schema, row.answer, extract(answer), limits)
        for row, answer in zip(rows, answers, strict=True)
    ]
    judged = [v for v in verdicts if v.correct is not None]
    telling = [v for v in judged if v.non_empty]
    excluded = Counter(v.gold_dialect or "none" for v in verdicts if v.correct is None)

    def rate(hits: int, of: int) -> float | None:
        return round(hits / of, 6) if of else None

    return {
        "rows": len(verdicts),
        "judged": len(judged),
        "excluded": dict(excluded),
        "execution_accuracy": rate(sum(bool(v.correct) for v in judged), len(judged)),
        "non_empty_rows": len(telling),
        "non_empty_accuracy": rate(sum(bool(v.correct) for v in telling), len(telling)),
        "valid_sql": rate(sum(v.valid for v in verdicts), len(verdicts)),
        "exact_match": rate(sum(v.exact for v in verdicts), len(verdicts)),
        "ast_match": rate(sum(v.same_tree for v in verdicts), len(verdicts)),
    }, verdicts


def _rank() -> tuple[int, int]:
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


def _gather(value: Any) -> list[Any]:
    if not dist.is_initialized():
        return [value]
    parts: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(parts, value)
    return parts
