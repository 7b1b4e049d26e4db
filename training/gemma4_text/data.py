"""Rows of question, schema and SQL as token ids: read, split without leaks, rendered, counted.

The split is a function of the rows and the seed alone, so that every rank, every restart and
every machine makes the same one.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from training.common.config import ConfigError, Problem
from training.gemma4_text.config import DataConfig
from training.gemma4_text.groups import Row, group

IGNORED = -100  # a label that the loss leaves out


@dataclass
class Split:
    """Training and held-out rows, and what was dropped on the way, by reason."""

    train: list[Row]
    held_out: list[Row]
    dropped: dict[str, int] = field(default_factory=dict)


def read(folder: Path, data: DataConfig) -> list[Row]:
    """All rows of a local folder (parquet, JSON lines or CSV; a Hub snapshot too).

    Raises:
        ConfigError: no such split or columns, or an empty text, with the row's index.
    """
    from datasets import load_dataset
    from datasets.data_files import EmptyDatasetError
    from datasets.exceptions import DatasetGenerationError

    try:
        table = load_dataset(str(folder), split=data.dataset_split)
    except (EmptyDatasetError, StopIteration) as error:
        allowed = f"a folder or repository with rows ({error or 'its files are empty'})"
        raise ConfigError(
            [Problem("trainer.data.dataset_name", data.dataset_name, allowed)]
        ) from error
    except DatasetGenerationError as error:
        cause = error.__cause__
        if isinstance(cause, OSError):  # a full disk: another machine may do
            raise
        allowed = f"files of one format with the same columns ({cause or error})"
        raise ConfigError(
            [Problem("trainer.data.dataset_name", data.dataset_name, allowed)]
        ) from error
    except ValueError as error:
        allowed = f"a split of {data.dataset_name} ({error})"
        raise ConfigError(
            [Problem("trainer.data.dataset_split", data.dataset_split, allowed)]
        ) from error
    columns = (data.question_column, data.schema_column, data.answer_column)
    missing = [
        Problem(f"trainer.data.{key}", name, f"a column: {', '.join(table.column_names)}")
        for key, name in zip(
            ("question_column", "schema_column", "answer_column"), columns, strict=True
        )
        if name not in table.column_names
    ]
    if missing:
        raise ConfigError(missing)
    rows = [
        Row(*(str(value or "") for value in values))
        for values in zip(*(table[column] for column in columns), strict=True)
    ]
    for index, row in enumerate(rows):
        if not row.question.strip() or not row.answer.strip():
            allowed = f"a data set without empty texts; row {index} has one"
            raise ConfigError([Problem("trainer.data.dataset_name", data.dataset_name, allowed)])
    return rows


def split(rows: Sequence[Row], data: DataConfig) -> Split:
    """Held-out rows and training rows, seeded, with nothing of the one in the other.

    Rows that ask the same of the same schema belong together (`held_out_by: question`), or rows
    whose schemas share a table (`schema`). Groups are shuffled and dealt whole: first to the
    held-out side until it is full, then to training. Exact repetitions are dropped first.

    Raises:
        ConfigError: fewer rows than train_rows and held_out_rows ask for.
    """
    seen: set[tuple[str, str, str]] = set()
    unique: list[Row] = []
    for row in rows:
        key = (_words(row.question), _words(row.schema), _words(row.answer))
        if key not in seen:
            seen.add(key)
            unique.append(row)
    dropped = {"repetitions": len(rows) - len(unique)}
    groups = group(unique, data.held_out_by)
    random.Random(data.seed).shuffle(groups)
    held_out: list[Row] = []
    train: list[Row] = []
    cut = 0
    for members in groups:
        room = data.held_out_rows - len(held_out)
        if room > 0:
            # A group is held out as a whole: what does not fit must not be trained on either.
            held_out += [unique[i] for i in members[:room]]
            cut += max(0, len(members) - room)
        else:
            train += [unique[i] for i in members]
    dropped["of a held-out group"] = cut
    random.Random(data.seed + 1).shuffle(train)
    random.Random(data.seed + 2).shuffle(held_out)  # evaluation.rows takes the first: of all groups
    if len(train) < data.train_rows or len(held_out) < data.held_out_rows:
        total = len(held_out) + len(train)
        allowed = f"with {data.held_out_rows} held out, at most {len(train)} ({total} usable rows)"
        problem = Problem("trainer.data.train_rows", data.train_rows, allowed)
        raise ConfigError([problem])
    dropped["beyond train_rows"] = len(train) - data.train_rows
    return Split(train[: data.train_rows], held_out, dropped)


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


def fingerprint(rows: Iterable[Row]) -> str:
    """A short hash of rows and their order, for the record and for the equality of ranks."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(json.dumps([row.question, row.schema, row.answer]).encode())
    return digest.hexdigest()[:16]


def counts(encoded: Iterable[Mapping[str, Sequence[int]]]) -> dict[str, int]:
    """Rows, real tokens and trained tokens of encoded rows."""
    rows = real = trained = 0
    for row in encoded:
        rows += 1
        real += len(row["input_ids"])
        trained += sum(label != IGNORED for label in row["labels"])
    return {"rows": rows, "tokens": real, "trained_tokens": trained}


def _words(text: str) -> str:
    return " ".join(text.lower().split())
