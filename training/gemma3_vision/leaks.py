"""Training rows that show what is held out, under another product's name.

Shops sell one thing under several names (sizes, bundles, sellers) with one photograph and one text:
a held-out row whose picture or description is trained on is known by heart, not described.
Pictures are compared as files, texts by their words; a photograph saved twice is not recognised.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from training.common.writing import alike
from training.gemma3_vision import files, rowcheck
from training.gemma3_vision.config import DataConfig
from training.gemma3_vision.images import BadPicture, inside


def shown(
    config: DataConfig, folder: Path, table: Any, train: Sequence[int], held: Sequence[int]
) -> dict[int, str]:
    """The rows of `train` to leave out, with the reason. The held-out side stays as it is."""
    texts = [alike(t or "") or t for t in files.column(table, config.description_column)]
    asked = {texts[row] for row in held}
    found = {row: "described as a held-out product" for row in train if texts[row] in asked}
    # Only pictures of one size can be the same: of the others not a byte is read.
    pictures = table.select_columns([config.image_column])
    sizes = [
        size
        for part in pictures.with_format("arrow").iter(1000)
        for size in rowcheck.sizes(part.column(config.image_column), partial(_file_size, folder))
    ]
    like = {sizes[row] for row in held} & {sizes[row] for row in train if row not in found} - {0}

    def digests(rows: Iterable[int]) -> dict[int, bytes]:
        return {
            row: _digest(pictures[row][config.image_column], folder)
            for row in rows
            if sizes[row] in like
        }

    held_pictures = {*digests(held).values()}
    for row, digest in digests(row for row in train if row not in found).items():
        if digest in held_pictures:
            found[row] = "with the picture of a held-out product"
    return found


def _file_size(folder: Path, path: str | None) -> int:
    """0 for a file that is not there: its row is refused when it is read."""
    try:
        return inside(folder, path).stat().st_size if path else 0
    except (OSError, BadPicture):
        return 0


def _digest(value: Any, folder: Path) -> bytes:
    if isinstance(value, dict):
        value = value.get("bytes") or value.get("path")
    if isinstance(value, str):
        value = inside(folder, value).read_bytes()
    return hashlib.sha256(value).digest()
