"""Held-out loss and descriptions, by the base and the tuned model under the same harness."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from training.gemma3_vision import text_metrics
from training.gemma3_vision.config import Config, EvaluationConfig

PROBE_ROWS = 4


@dataclass(frozen=True)
class Measured:
    """What the evaluation found.

    Attributes:
        summary: numbers of `tuned` and, unless switched off, `base`; see `compare`.
        tuned: descriptions by the tuned model, one for each evaluated row.
        base: the same by the untuned model, or None.
        probe: what a fresh process must find again; see `probe`.
    """

    summary: dict[str, Any]
    tuned: list[str]
    base: list[str] | None
    probe: dict[str, Any]


def measure(
    model: Any, processor: Any, rows: Any, config: Config, *, rank: int = 0, world: int = 1
) -> Measured:
    """Evaluate both models on the held-out rows; every rank calls it and does its share."""
    wanted = config.evaluation
    count = min(wanted.rows or len(rows), len(rows))
    batch = config.sft.get("per_device_eval_batch_size", 8)
    share = {"rank": rank, "world": world}
    loss = held_out_loss(model, processor, rows, batch, **share)
    tuned = sharded(model, processor, rows, wanted, count, **share)
    base = base_loss = None
    if wanted.baseline:
        with untuned(model):
            base_loss = held_out_loss(model, processor, rows, batch, **share)
            base = sharded(model, processor, rows, wanted, count, **share)
    references = [rows[index]["completion"][0]["content"] for index in range(count)]
    summary = compare(references, base, tuned, (base_loss, loss), wanted)
    return Measured(summary, tuned, base, probe(model, processor, rows, config))


def probe(model: Any, processor: Any, rows: Any, config: Config) -> dict[str, Any]:
    """A few numbers of this process alone, by which a reloaded adapter is recognised."""
    part = [rows[index] for index in range(min(PROBE_ROWS, len(rows)))]
    found: dict[str, Any] = {
        "tuned_loss": held_out_loss(model, processor, part, 1),
        "text": describe(model, processor, part, [0], config.evaluation)[0],
    }
    with untuned(model):
        found["base_loss"] = held_out_loss(model, processor, part, 1)
    return found


def collator(processor: Any) -> Any:
    """TRL's own collator as the trainer uses it: the loss is on the completion only."""
    from trl.trainer.sft_trainer import DataCollatorForVisionLanguageModeling

    return DataCollatorForVisionLanguageModeling(processor, completion_only_loss=True)


def held_out_loss(
    model: Any, processor: Any, rows: Any, batch_size: int, *, rank: int = 0, world: int = 1
) -> float:
    """Mean negative log-likelihood of an answer token, in nats, over all rows.

    Each rank takes every `world`-th row; tokens, not batches or rows, have equal weight, so that
    the number does not depend on the number of workers.
    """
    import torch
    import torch.distributed as dist
    import torch.nn.functional as F

    collate = collator(processor)
    sums = torch.zeros(2, dtype=torch.float64, device=model.device)
    with inference(model):
        for batch in _batches(rows, range(rank, len(rows), world), batch_size):
            inputs = collate(batch).to(model.device)
            labels = inputs.pop("labels")[:, 1:]
            logits = model(**inputs).logits[:, :-1]
            kept = labels != -100
            nll = F.cross_entropy(logits[kept].float(), labels[kept], reduction="sum")
            sums += torch.stack([nll.double(), kept.sum().double()])
    if world > 1:
        dist.all_reduce(sums)
    return (sums[0] / sums[1]).item()


def describe(
    model: Any, processor: Any, rows: Any, indices: Sequence[int], config: EvaluationConfig
) -> list[str]:
    """Greedy descriptions of the rows at `indices`: deterministic, no seed needed."""
    from trl.data_utils import prepare_multimodal_messages

    texts: list[str] = []
    with inference(model):
        for batch in _batches(rows, indices, config.batch_size):
            prompts = [
                processor.apply_chat_template(
                    prepare_multimodal_messages(row["prompt"], images=row["images"]),
                    add_generation_prompt=True,
                    tokenize=False,
                )
                for row in batch
            ]
            inputs = processor(
                images=[row["images"] for row in batch],
                text=prompts,
                padding=True,
                padding_side="left",
                add_special_tokens=False,  # the template has written <bos> already
                return_tensors="pt",
            ).to(model.device)
            made = model.generate(**inputs, max_new_tokens=config.max_new_tokens, do_sample=False)
            answers = made[:, inputs["input_ids"].shape[1] :]
            texts += [t.strip() for t in processor.batch_decode(answers, skip_special_tokens=True)]
    return texts


def sharded(
    model: Any,
    processor: Any,
    rows: Any,
    config: EvaluationConfig,
    count: int,
    *,
    rank: int = 0,
    world: int = 1,
) -> list[str]:
    """Descriptions of the first `count` rows, each made by one of the workers, on every rank."""
    import torch.distributed as dist

    mine = describe(model, processor, rows, range(rank, count, world), config)
    parts: list[Any] = [mine]
    if world > 1:
        parts = [None] * world
        dist.all_gather_object(parts, mine)
    return [parts[index % world][index // world] for index in range(count)]


def compare(
    references: Sequence[str],
    base: Sequence[str] | None,
    tuned: Sequence[str],
    losses: tuple[float | None, float],
    config: EvaluationConfig,
) -> dict[str, Any]:
    """The evaluation summary: the same numbers for both models.

    Args:
        references: the held-out rows' own descriptions.
        base: what the untuned model wrote; None when evaluation.baseline is off.
        tuned: what the tuned model wrote.
        losses: held-out loss of the base (None when off) and of the tuned model.
        config: the section `evaluation`.
    """
    result: dict[str, Any] = {}
    for name, texts, loss in (("base", base, losses[0]), ("tuned", tuned, losses[1])):
        if texts is not None and loss is not None:
            numbers = text_metrics.summary(references, texts, config.min_words, config.max_words)
            result[name] = {"held_out_loss": round(loss, 6), **numbers}
    return result


@contextmanager
def inference(model: Any) -> Iterator[None]:
    """Evaluation mode, the cache of keys and values on, no gradients; as it was afterwards."""
    import torch

    training, cache = model.training, model.config.get_text_config().use_cache
    model.eval()
    model.config.get_text_config().use_cache = True
    try:
        with torch.no_grad():
            yield
    finally:
        model.config.get_text_config().use_cache = cache
        model.train(training)


def untuned(model: Any) -> AbstractContextManager[Any]:
    """The model without its adapter, for as long as the context lasts."""
    return model.disable_adapter() if hasattr(model, "disable_adapter") else nullcontext()


def _batches(rows: Any, indices: Sequence[int], size: int) -> Iterator[list[dict[str, Any]]]:
    for start in range(0, len(indices), size):
        # Copies: TRL's collator writes into the rows that it is given.
        yield [dict(rows[int(index)]) for index in indices[start : start + size]]
