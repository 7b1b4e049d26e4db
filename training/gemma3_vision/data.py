"""Rows of picture, product, category and description, split by product and decoded when needed."""

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from training.common.config import ConfigError, Problem
from training.common.writing import alike
from training.gemma3_vision import files, leaks, rowcheck
from training.gemma3_vision.config import DataConfig
from training.gemma3_vision.images import BadPicture, decode
from training.gemma3_vision.rowcheck import BadRow

ROW, FILLER = "_row", "_filler"  # columns of our own: a data set may have a `row`


@dataclass(frozen=True)
class Split:
    """The two sides, each a `datasets.Dataset` of {images, prompt, completion, row}.

    Attributes:
        fingerprint: SHA-256 over the rows of each side: the same on every rank and machine.
        lengths: characters of the answer of each training row, to group rows of like length.
        fillers: training rows at the end that repeat others and carry no loss.
        skipped: rows left out, counted by reason.
    """

    train: Any
    held_out: Any
    fingerprint: str
    lengths: list[int]
    fillers: int
    skipped: Mapping[str, int] = field(default_factory=dict)


def prepare(config: DataConfig, folder: Path, *, multiple: int = 1) -> Split:
    """Read the data set in `folder` and split it.

    Nothing is decoded and no picture is held in memory: the rows stay memory-mapped files, and
    a batch decodes its own pictures, in the data loader's worker processes.

    Args:
        config: the section `data`.
        folder: where the files are.
        multiple: rows of one optimizer step over all workers. The training side is filled up to a
            multiple of it with rows that carry no loss, so that an epoch sees each row once.

    Raises:
        ConfigError: as `files.read`; nothing on one side.
        BadRow: a row without text or picture while data.bad_rows is `stop`.
    """
    table = files.read(config, folder)
    if config.max_rows:
        table = table.select(range(min(config.max_rows, len(table))))  # contiguous: a view
    table = table.add_column(ROW, range(len(table)))  # before any selection: no row is copied
    skipped = rowcheck.unusable(config, folder, table)
    names = files.column(table, config.product_column)
    keep = [row for row in range(len(table)) if row not in skipped]
    held = [row for row in keep if is_held_out(names[row], config)]
    train = [row for row in keep if not is_held_out(names[row], config)]
    skipped |= leaks.shown(config, folder, table, train, held)
    train = [row for row in train if row not in skipped]
    if not held or not train:
        allowed = f"a share with products on both sides (now {len(train)} and {len(held)} rows)"
        raise ConfigError(
            [Problem("trainer.data.held_out_fraction", config.held_out_fraction, allowed)]
        )
    fill = [train[index % len(train)] for index in range(-len(train) % multiple)]
    transform = Transform(config, folder)
    lengths = [len(text or "") for text in files.column(table, config.description_column)]
    return Split(
        train=_joined(table, train, fill).with_transform(transform),
        held_out=table.select(held).with_transform(transform),
        fingerprint=hashlib.sha256(repr((train, held)).encode()).hexdigest(),
        lengths=[lengths[row] for row in [*train, *fill]],
        fillers=len(fill),
        skipped=Counter(skipped.values()),
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
        for row, value in zip(batch[ROW], batch[config.image_column], strict=True):
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
            "row": list(batch[ROW]),
            "filler": list(batch.get(FILLER, [False] * len(images))),
        }


def is_held_out(product: str, config: DataConfig) -> bool:
    """By a hash of the product's name: neither order, number of rows nor machine changes a side.

    Names that differ in writing alone are of one product.
    """
    key = f"{config.seed}\n{alike(product)}"
    number = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big")
    return number < config.held_out_fraction * 2**64


def _joined(table: Any, rows: list[int], fill: list[int]) -> Any:
    from datasets import concatenate_datasets

    parts = [
        table.add_column(FILLER, [filler] * len(table)).select(chosen)
        for filler, chosen in ((False, rows), (True, fill))
        if chosen
    ]
    return concatenate_datasets(parts)
