"""A data set's files as one table of the columns that a run reads; pictures stay as they lie."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

from training.common.config import ConfigError, Problem
from training.gemma3_vision.config import DataConfig

SUFFIXES = {  # how a data set's files are read, by their ending
    ".parquet": "parquet",
    ".jsonl": "json",
    ".json": "json",
    ".csv": "csv",
    ".tar": "webdataset",
}
TEXTS = ("product_column", "category_column", "description_column")
TEXT = ("string", "large_string", "null")  # types of Arrow


def read(config: DataConfig, folder: Path) -> Any:
    """A `datasets.Dataset` of the four columns, in the files' order.

    Raises:
        ConfigError: what no retry can mend: no files, no such split or columns, files that cannot
            be read or are not alike, columns of another kind.
    """
    from datasets import Image, load_dataset
    from datasets.exceptions import DatasetGenerationError

    reader, paths = _files(config, folder)
    wanted = config.dataset_split
    try:
        table = load_dataset(reader, data_files={wanted: paths}, split=wanted)
    except (DatasetGenerationError, tarfile.TarError, ValueError) as error:
        cause = error.__cause__ or error
        if isinstance(cause, OSError):  # a full disk: another machine may do
            raise
        allowed = f"files that can be read, all of the same columns ({cause})"
        raise _wrong("dataset_name", config.dataset_name, allowed) from error
    _check_columns(config, table)
    if isinstance(table.features[config.image_column], Image):
        table = table.cast_column(config.image_column, Image(decode=False))
    names = [config.image_column, *(getattr(config, key) for key in TEXTS)]
    return table.select_columns(list(dict.fromkeys(names)))


def column(table: Any, name: str) -> list[Any]:
    """The values of one column, no other read."""
    return table.select_columns([name]).with_format("arrow")[:].column(name).to_pylist()


def _files(config: DataConfig, folder: Path) -> tuple[str, list[str]]:
    """The reader's name, and the files of the split: by their names, or else by their folder's."""
    files: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix in SUFFIXES and not path.name.startswith("."):
            files.setdefault(SUFFIXES[path.suffix], []).append(path.relative_to(folder))
    if not files:
        allowed = f"a folder with files of {', '.join(SUFFIXES)}"
        raise _wrong("dataset_name", config.dataset_name, allowed)
    reader = next(name for name in ("parquet", "webdataset", "json", "csv") if name in files)
    found, wanted = files[reader], config.dataset_split
    named = [path for path in found if path.name.startswith(wanted)]
    named = named or [path for path in found if wanted in path.parts]
    if not named and wanted != "train":  # files without the name of a split are rows to train on
        allowed = "a split that files are named after: " + ", ".join(map(str, found[:8]))
        raise _wrong("dataset_split", wanted, allowed)
    return reader, [str(folder / path) for path in named or found]


def _check_columns(config: DataConfig, table: Any) -> None:
    schema = table.features.arrow_schema
    problems: list[Problem] = []
    for key in ("image_column", *TEXTS):
        name = getattr(config, key)
        if name not in schema.names:
            allowed = "a column of the data set: " + ", ".join(schema.names)
        else:
            kind, picture = schema.field(name).type, key == "image_column"
            if _holds_pictures(kind) if picture else _is(kind, *TEXT):
                continue
            wanted = "pictures or of paths" if picture else "text"
            allowed = f"a column of {wanted}; {name} holds {kind}"
        problems.append(Problem(f"trainer.data.{key}", name, allowed))
    if problems:
        raise ConfigError(problems)


def _holds_pictures(kind: Any) -> bool:
    if _is(kind, "struct"):
        return {field.name for field in kind} >= {"bytes", "path"}
    return _is(kind, *TEXT, "binary", "large_binary")


def _is(kind: Any, *names: str) -> bool:
    """Whether a type of Arrow is one of those named."""
    import pyarrow as pa

    return any(getattr(pa.types, f"is_{name}")(kind) for name in names)


def _wrong(key: str, value: str, allowed: str) -> ConfigError:
    return ConfigError([Problem(f"trainer.data.{key}", value, allowed)])
