"""Rows of question, schema and SQL, as a data set's files hold them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from training.common.config import ConfigError, Problem
from training.gemma4_text.config import DataConfig


@dataclass(frozen=True)
class Row:
    """One question: its schema (with or without INSERTs), and the SQL that answers it."""

    question: str
    schema: str
    answer: str


def read_rows(folder: Path, data: DataConfig) -> list[Row]:
    """All rows of a local folder (parquet, JSON lines or CSV; a Hub snapshot too).

    Raises:
        ConfigError: no such split or columns, or an empty text, with the row's index.
    """
    from datasets import load_dataset
    from datasets.data_files import EmptyDatasetError
    from datasets.exceptions import DatasetGenerationError

    def wrong(key: str, allowed: str) -> ConfigError:
        return ConfigError([Problem(f"trainer.data.{key}", getattr(data, key), allowed)])

    try:
        table = load_dataset(str(folder), split=data.dataset_split)
    except (EmptyDatasetError, StopIteration) as error:
        found = error or "its files are empty"
        raise wrong("dataset_name", f"a folder or repository with rows ({found})") from error
    except DatasetGenerationError as error:
        cause = error.__cause__
        if isinstance(cause, OSError):  # a full disk: another machine may do
            raise
        allowed = f"files of one format with the same columns ({cause or error})"
        raise wrong("dataset_name", allowed) from error
    except ValueError as error:
        raise wrong("dataset_split", f"a split of {data.dataset_name} ({error})") from error
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
            raise wrong("dataset_name", f"a data set without empty texts; row {index} has one")
    return rows
