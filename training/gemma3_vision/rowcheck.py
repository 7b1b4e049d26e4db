"""Which rows cannot be trained on, and why. Texts are always looked at, pictures on request."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from training.common import sources
from training.gemma3_vision.config import DataConfig
from training.gemma3_vision.images import BadPicture, decode

# Gemma's own marks are read as such in any text: one more picture, or the end of an answer.
MARK = re.compile(r"<(?:(?:start|end)_of_(?:image|turn)|image_soft_token|bos|eos|pad)>")


class BadRow(ValueError):
    """A row that cannot be trained on; its text names the row and what is wrong with it."""


def unusable(config: DataConfig, folder: Path, table: Any) -> dict[int, str]:
    """Rows to leave out, with the reason: {} while data.bad_rows is `stop`.

    With `skip`, every picture is decoded once on each machine before the training starts, since a
    row that is dropped later would give the workers unequal work.

    Raises:
        BadRow: data.bad_rows is `stop` and a row lacks its name, text or picture, or holds a mark
            of Gemma's.
    """
    found = dict(_unfit(config, table))
    if config.bad_rows == "stop":
        if found:
            row, reason = min(found.items())
            count = f"{len(found)} such row{'' if len(found) == 1 else 's'}"
            raise BadRow(f"row {row} is {reason} ({count}); data.bad_rows: skip leaves them out")
        return {}
    return {**_broken(config, folder, table), **found}


def _unfit(config: DataConfig, table: Any) -> Iterator[tuple[int, str]]:
    needed = (config.product_column, config.description_column)
    names = list(dict.fromkeys([*needed, config.category_column]))
    columns = table.select_columns([*names, config.image_column]).with_format("arrow")
    row = 0
    for batch in columns.iter(1000):
        values = [batch.column(name).to_pylist() for name in names]
        pictures = sizes(batch.column(config.image_column), lambda path: len(path or ""))
        for *texts, picture in zip(*values, pictures, strict=True):
            if reason := _wrong(dict(zip(names, texts, strict=True)), needed):
                yield row, reason
            elif not picture:
                yield row, f"without {config.image_column}"
            row += 1


def _wrong(texts: Mapping[str, str | None], needed: tuple[str, ...]) -> str | None:
    for name, text in texts.items():
        if name in needed and not (text or "").strip():
            return f"without {name}"
        if mark := MARK.search(text or ""):
            return f"with {mark.group()} in its {name}"
    return None


def sizes(column: Any, file_size: Callable[[str | None], int]) -> list[int]:
    """Bytes of each picture of an Arrow column, none of which is read; 0 where there is none.

    Args:
        column: pictures as `{"bytes", "path"}`, as bytes or as paths.
        file_size: says it for a path.
    """
    import pyarrow as pa
    import pyarrow.compute

    compute: Any = pyarrow.compute  # its functions are made at import: no type checker sees them

    if pa.types.is_struct(column.type):
        parts = [compute.struct_field(column, name) for name in ("bytes", "path")]
        pairs = zip(*(sizes(part, file_size) for part in parts), strict=True)
        return [inside or beside for inside, beside in pairs]
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return compute.fill_null(compute.binary_length(column), 0).to_pylist()
    return [file_size(path) for path in column.to_pylist()]


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
