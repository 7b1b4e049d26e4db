"""Rows as token ids: rendered, encoded, packed and counted."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from training.common.config import ConfigError, Problem
from training.gemma4_text.config import DataConfig
from training.gemma4_text.rows import Row

IGNORED = -100  # a label that the loss leaves out


def messages(row: Row, data: DataConfig) -> list[dict[str, str]]:
    """The conversation up to the answer."""
    # In one go: a schema may hold the text `{question}`.
    asked = re.sub(
        r"\{(schema|question)\}", lambda found: getattr(row, found.group(1)), data.user_prompt
    )
    return [
        {"role": "system", "content": data.system_prompt},
        {"role": "user", "content": asked},
    ]


def prompt_ids(tokenizer: Any, row: Row, data: DataConfig) -> list[int]:
    """Token ids of the prompt, up to the point where generation starts.

    Whatever the template puts there (the turn's header, an empty thought) belongs to the prompt,
    so training and generation see the same context.
    """
    rendered = tokenizer.apply_chat_template(
        messages(row, data), add_generation_prompt=True, tokenize=False
    )
    return tokenizer(rendered, add_special_tokens=False)["input_ids"]


def end_of_turn(tokenizer: Any, data: DataConfig) -> int:
    """Id of the token with which the template ends an answer, and generation stops.

    Raises:
        ConfigError: the tokenizer has no chat template, or one that puts nothing after an answer.
    """
    key = "trainer.model.model_name_or_path"
    if not tokenizer.chat_template:
        allowed = (
            "a model whose tokenizer has a chat template, as instruction-tuned ones have (`-it`); "
            "a folder gets one by a file chat_template.jinja"
        )
        raise ConfigError([Problem(key, tokenizer.name_or_path, allowed)])
    mark = "ANSWER"
    row = Row("q", "s", mark)
    rendered = tokenizer.apply_chat_template(
        [*messages(row, data), {"role": "assistant", "content": mark}], tokenize=False
    )
    ids = tokenizer(rendered.rsplit(mark, 1)[1], add_special_tokens=False)["input_ids"]
    if not ids:
        allowed = "a model whose chat template ends an answer with a token of its own"
        raise ConfigError([Problem(key, tokenizer.name_or_path, allowed)])
    return ids[0]


def encode(tokenizer: Any, row: Row, data: DataConfig, end: int) -> dict[str, list[int]]:
    """`input_ids` and `labels` of one row; only the answer and the end of its turn are trained."""
    prompt = prompt_ids(tokenizer, row, data)
    answer = tokenizer(row.answer.strip(), add_special_tokens=False)["input_ids"] + [end]
    return {"input_ids": prompt + answer, "labels": [IGNORED] * len(prompt) + answer}


def fitting(
    tokenizer: Any, rows: Iterable[Row], data: DataConfig, max_length: int | None
) -> list[Row]:
    """The rows that `tokenise` keeps, those that fit `max_length` tokens with their answer."""
    if max_length is None:
        return list(rows)
    end = end_of_turn(tokenizer, data)
    return [
        row for row in rows if len(encode(tokenizer, row, data, end)["input_ids"]) <= max_length
    ]


def tokenise(tokenizer: Any, rows: Iterable[Row], data: DataConfig, max_length: int | None) -> Any:
    """A `datasets.Dataset` of the encoded rows that fit `max_length`, in order; none is cut.

    Raises:
        ConfigError: a row is too long and data.too_long is `stop`, or none fits.
    """
    from datasets import Dataset

    end = end_of_turn(tokenizer, data)
    kept: list[dict[str, list[int]]] = []
    for index, row in enumerate(rows):
        encoded = encode(tokenizer, row, data, end)
        length = len(encoded["input_ids"])
        if max_length is None or length <= max_length:
            kept.append(encoded)
        elif data.too_long == "stop":
            allowed = f"at least {length}, the length of row {index}"
            raise ConfigError([Problem("trainer.sft.max_length", max_length, allowed)])
    if not kept:
        allowed = "a length that some row fits"
        raise ConfigError([Problem("trainer.sft.max_length", max_length, allowed)])
    return Dataset.from_list(kept)


def packed(rows: Any, max_length: int, strategy: str) -> Any:
    """Rows joined into sequences of at most `max_length` tokens, each row whole.

    A column `seq_lengths` holds where rows end; the collator makes positions of it that start
    from 0 at each row, and attention stays within a row.
    """
    from trl.data_utils import pack_dataset

    return pack_dataset(rows, max_length, strategy, {})


def accumulation(steps: int, rows: int, sequences: int) -> int:
    """Accumulation for sequences that hold as many rows in all as `steps` did unpacked."""
    return max(1, round(steps * sequences / rows))


def once(place: Path, first: bool, wait: Any, build: Any) -> Any:
    """A data set built by one process a machine and read from disk by all of them.

    Args:
        place: folder for it; a stale one is replaced.
        first: whether this process builds.
        wait: called by all processes, returns when all have called it.
        build: makes the data set.
    """
    from datasets import load_from_disk

    if first:
        shutil.rmtree(place, ignore_errors=True)
        build().save_to_disk(str(place))
    wait()
    return load_from_disk(str(place))


def counts(encoded: Iterable[Mapping[str, Sequence[int]]]) -> dict[str, int]:
    """Rows, real tokens and trained tokens of encoded rows."""
    rows = real = trained = 0
    for row in encoded:
        rows += 1
        real += len(row["input_ids"])
        trained += sum(label != IGNORED for label in row["labels"])
    return {"rows": rows, "tokens": real, "trained_tokens": trained}
