"""Rows of picture, product, category and description, split by product and decoded when needed."""

import hashlib
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from training.common.config import ConfigError, Problem
from training.gemma3_vision.config import DataConfig
from training.gemma3_vision.images import BadPicture, decode

SUFFIXES = {  # how a data set's files are read, by their ending
    ".parquet": "parquet",
    ".jsonl": "json",
    ".json": "json",
    ".csv": "csv",
    ".tar": "webdataset",
}


class BadRow(ValueError):
    """A row that cannot be trained on; its text names the row and what is wrong with it."""


@dataclass(frozen=True)
class Split:
    """The two sides, each a `datasets.Dataset` of {images, prompt, completion, row}.

    Attributes:
        fingerprint: SHA-256 over the rows of each side: the same on every rank and machine.
        skipped: rows left out, counted by reason.
    """

    train: Any
    held_out: Any
    fingerprint: str
    skipped: Mapping[str, int] = field(default_factory=dict)


def prepare(config: DataConfig, folder: Path) -> Split:
    """Read the data set in `folder` and split it.

    Nothing is decoded and no picture is held in memory: the rows stay memory-mapped files, and
    a batch decodes its own pictures, in the data loader's worker processes.

    Raises:
        ConfigError: no such column, no such split, nothing on one side.
        BadRow: a row without text or picture while data.bad_rows is `stop`.
    """
    table = _table(config, folder)
    _check_columns(config, table.column_names)
    if config.max_rows:
        table = table.select(range(min(config.max_rows, len(table))))  # contiguous: a view
    table = table.add_column("row", range(len(table)))  # before any selection: no row is copied
    keep, skipped = _usable(config, table)
    products = table.with_format("arrow")[config.product_column].to_pylist()
    held = [i for i in keep if _is_held_out(products[i], config)]
    train = [i for i in keep if not _is_held_out(products[i], config)]
    if not held or not train:
        allowed = (
            f"a share that leaves products on both sides (now {len(train)} and {len(held)} rows)"
        )
        raise ConfigError(
            [Problem("trainer.data.held_out_fraction", config.held_out_fraction, allowed)]
        )
    digest = hashlib.sha256(repr((train, held)).encode()).hexdigest()
    if skipped:
        counts = ", ".join(f"{count} {reason}" for reason, count in sorted(skipped.items()))
        print(f"rows left out: {counts}", file=sys.stderr, flush=True)
    transform = Transform(config, folder)
    return Split(
        train=_view(table, train, transform),
        held_out=_view(table, held, transform),
        fingerprint=digest,
        skipped=skipped,
    )


def conversation(config: DataConfig, product: str, category: str) -> list[dict[str, str]]:
    """The prompt of one product; TRL puts the picture before the user's text."""
    text = config.user_prompt.format(product=product, category=category)
    return [
        {"role": "system", "content": config.system_prompt},
        {"role": "user", "content": text},
    ]


@dataclass(frozen=True)
class Transform:
    """What a batch of raw rows becomes when it is read; picklable, for the loader's processes."""

    config: DataConfig
    folder: Path

    def __call__(self, batch: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
        """Decoded pictures, prompts and completions.

        Raises:
            BadRow: a picture that cannot be read: names the row, not the batch.
        """
        config = self.config
        images: list[list[Any]] = []
        for row, value in zip(batch["row"], batch[config.image_column], strict=True):
            try:
                picture = decode(value, folder=self.folder, max_pixels=config.max_pixels)
            except BadPicture as error:
                raise BadRow(f"row {row}: {error}; data.bad_rows: skip leaves it out") from error
            images.append([picture])
        names, categories = batch[config.product_column], batch[config.category_column]
        texts = batch[config.description_column]
        return {
            "images": images,
            "prompt": [
                conversation(config, n, c or "") for n, c in zip(names, categories, strict=True)
            ],
            "completion": [[{"role": "assistant", "content": text.strip()}] for text in texts],
            "row": list(batch["row"]),
        }


def _table(config: DataConfig, folder: Path) -> Any:
    from datasets import Image, load_dataset

    files: dict[str, list[str]] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix in SUFFIXES and not path.name.startswith("."):
            files.setdefault(SUFFIXES[path.suffix], []).append(str(path))
    if not files:
        allowed = f"a folder with files of {', '.join(SUFFIXES)}"
        raise ConfigError([Problem("trainer.data.dataset_name", config.dataset_name, allowed)])
    reader = next(name for name in ("parquet", "webdataset", "json", "csv") if name in files)
    wanted = config.dataset_split
    named = [path for path in files[reader] if Path(path).name.startswith(wanted)]
    table = load_dataset(reader, data_files={wanted: named or files[reader]}, split=wanted)
    if isinstance(table.features.get(config.image_column), Image):
        table = table.cast_column(config.image_column, Image(decode=False))
    return table


def _check_columns(config: DataConfig, present: list[str]) -> None:
    keys = ("image_column", "product_column", "category_column", "description_column")
    allowed = "a column of the data set: " + ", ".join(present)
    problems = [
        Problem(f"trainer.data.{key}", getattr(config, key), allowed)
        for key in keys
        if getattr(config, key) not in present
    ]
    if problems:
        raise ConfigError(problems)


def _usable(config: DataConfig, table: Any) -> tuple[list[int], Counter[str]]:
    """Indices of the rows that have all their parts; with `skip`, pictures are opened as well."""
    keep: list[int] = []
    skipped: Counter[str] = Counter()
    texts = table.select_columns([config.product_column, config.description_column])
    empty: dict[int, str] = {}
    row = 0
    for batch in texts.with_format("arrow").iter(1000):
        for name, text in zip(*(batch[c].to_pylist() for c in texts.column_names), strict=True):
            if not isinstance(name, str) or not name.strip():
                empty[row] = f"without {config.product_column}"
            elif not isinstance(text, str) or not text.strip():
                empty[row] = f"without {config.description_column}"
            row += 1
    if empty and config.bad_rows == "stop":
        index, reason = next(iter(empty.items()))
        raise BadRow(f"row {index} is {reason} ({len(empty)} such rows); data.bad_rows: skip")
    for index in range(len(table)):
        if index in empty:
            skipped[empty[index]] += 1
        else:
            keep.append(index)
    return keep, skipped


def _is_held_out(product: str, config: DataConfig) -> bool:
    """By a hash of the product's name: neither order, number of rows nor machine changes a side."""
    key = f"{config.seed}\n{' '.join(product.split()).casefold()}"
    number = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big")
    return number < config.held_out_fraction * 2**64


def _view(table: Any, rows: list[int], transform: Transform) -> Any:
    return table.select(rows).with_transform(transform)
