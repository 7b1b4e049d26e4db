"""The sample text-to-SQL rows against SQLite's own answers."""

import sqlite3

import pytest

from training.samples.text_to_sql import COLUMNS, rows

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
    assert list(rows(seed=1)) != ROWS


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
