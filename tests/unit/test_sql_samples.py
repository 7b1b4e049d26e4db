"""The sample text-to-SQL rows against SQLite's own answers."""

import json
import sqlite3
from pathlib import Path

import pytest

from training.samples.text_to_sql import COLUMNS, rows, write

ROWS = list(rows())


def answer(row: dict[str, str]) -> tuple[list[tuple], int]:
    database = sqlite3.connect(":memory:")
    database.executescript(row["sql_context"])
    cursor = database.execute(row["sql"])
    return cursor.fetchall(), cursor.rowcount


def test_there_are_enough_rows_over_enough_schemas_in_the_tutorials_columns():
    assert len(ROWS) >= 240
    assert all(tuple(row) == COLUMNS for row in ROWS)
    tables = {row["sql_context"].split("CREATE TABLE ")[-1].split(" ")[0] for row in ROWS}
    assert len(tables) >= 12
    assert len({(row["sql_prompt"], row["sql_context"]) for row in ROWS}) == len(ROWS)


def test_every_gold_runs_and_most_give_rows():
    answers = [answer(row) for row in ROWS]
    non_empty = [rows for rows, _ in answers if rows and rows != [(None,)]]
    assert len(non_empty) >= 0.8 * len(ROWS)
    deleted = [c for row, (_, c) in zip(ROWS, answers, strict=True) if row["sql"].startswith("DEL")]
    assert deleted
    assert min(deleted) > 0


def test_the_rows_do_not_depend_on_the_process():
    assert list(rows()) == ROWS


def test_a_further_seed_asks_about_other_values_of_the_same_tables(tmp_path: Path):
    more = [json.loads(line) for line in write(tmp_path, seeds=2).read_text().splitlines()]
    assert more[: len(ROWS)] == ROWS
    other = more[len(ROWS) :]
    assert len(other) == len(ROWS)
    for one, two in zip(ROWS, other, strict=True):
        created = [row["sql_context"].split(" INSERT")[0] for row in (one, two)]
        assert created[0] == created[1]
        answer(two)
    assert sum(one != two for one, two in zip(ROWS, other, strict=True)) > 0.9 * len(ROWS)


@pytest.mark.parametrize("row", [r for r in ROWS if "ORDER BY" in r["sql"]][::7])
def test_no_order_is_a_tie(row: dict[str, str]):
    database = sqlite3.connect(":memory:")
    database.executescript(row["sql_context"])
    column = row["sql"].split("ORDER BY ")[1].split()[0].rstrip(";")
    table = row["sql"].split("FROM ")[1].split()[0]
    total, different = database.execute(
        f"SELECT COUNT({column}), COUNT(DISTINCT {column}) FROM {table}"
    ).fetchone()
    assert total == different
