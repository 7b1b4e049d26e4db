"""Which rows cannot be trained on, and why. Texts are always looked at, pictures on request."""

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from training.common import sources
from training.gemma3_vision.config import DataConfig
from training.gemma3_vision.images import BadPicture, decode


class BadRow(ValueError):
    """A row that cannot be trained on; its text names the row and what is wrong with it."""


def unusable(config: DataConfig, folder: Path, table: Any) -> dict[int, str]:
    """Rows to leave out, with the reason: {} while data.bad_rows is `stop`.

    With `skip`, every picture is decoded once on each machine before the training starts, since a
    row that is dropped later would give the workers unequal work.

    Raises:
        BadRow: data.bad_rows is `stop` and a row lacks its name, text or picture.
    """
    found = dict(_empty(config, table))
    if config.bad_rows == "stop":
        if found:
            row, reason = min(found.items())
            count = f"{len(found)} such row{'' if len(found) == 1 else 's'}"
            raise BadRow(f"row {row} is {reason} ({count}); data.bad_rows: skip leaves them out")
        return {}
    return {**_broken(config, folder, table), **found}


def _empty(config: DataConfig, table: Any) -> Iterator[tuple[int, str]]:
    texts = (config.product_column, config.description_column)
    columns = table.select_columns([*texts, config.image_column]).with_format("arrow")
    row = 0
    for batch in columns.iter(1000):
        values = [batch.column(name).to_pylist() for name in texts]
        missing = _no_picture(batch.column(config.image_column))
        for *pair, absent in zip(*values, missing, strict=True):
            for name, value in zip(texts, pair, strict=True):
                if not isinstance(value, str) or not value.strip():
                    yield row, f"without {name}"
                    break
            else:
                if absent:
                    yield row, f"without {config.image_column}"
            row += 1


def _no_picture(column: Any) -> list[bool]:
    """Whether each value is empty, without reading the pictures."""
    import pyarrow as pa
    import pyarrow.compute

    compute: Any = pyarrow.compute  # its functions are made at import: no type checker sees them

    if pa.types.is_struct(column.type):
        parts = [compute.struct_field(column, name) for name in ("bytes", "path")]
        return [all(empty) for empty in zip(*(_no_picture(part) for part in parts), strict=True)]
    if pa.types.is_null(column.type):
        return [True] * len(column)
    return compute.fill_null(compute.equal(compute.binary_length(column), 0), True).to_pylist()


def _broken(config: DataConfig, folder: Path, table: Any) -> Mapping[int, str]:
    """Rows whose picture cannot be decoded; the answer is kept beside the other scratch files."""
    from filelock import FileLock

    key = f"{table._fingerprint}-{config.max_pixels}"
    kept = sources.scratch() / "pictures" / f"{key}.json"
    kept.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{kept}.lock"):
        if not kept.is_file():
            pictures = table.select_columns([config.image_column])

            def check(row: int) -> str | None:
                try:
                    value = pictures[row][config.image_column]
                    decode(value, folder=folder, max_pixels=config.max_pixels)
                except BadPicture as error:
                    return str(error)
                return None

            with ThreadPoolExecutor() as pool:
                answers = enumerate(pool.map(check, range(len(table))))
                broken = {row: reason for row, reason in answers if reason is not None}
            kept.write_text(json.dumps(broken), encoding="utf-8")
        reasons = json.loads(kept.read_text(encoding="utf-8"))
    return {int(row): reason for row, reason in reasons.items()}
