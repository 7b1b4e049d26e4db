"""Rules of the execution harness, each with an answer known beforehand."""

import time
from typing import Any

import pytest

from training.gemma4_text import sqlite
from training.gemma4_text.config import EvaluationConfig
from training.gemma4_text.evaluate import score
from training.gemma4_text.rows import Row
from training.gemma4_text.sql import (
    dialect,
    extract,
    is_ordered,
    judge,
    normal,
    same_tree,
)
from training.gemma4_text.sqlite import Limits, execute, statements

SCHEMA = (
    "CREATE TABLE t (id INT, name TEXT, price DECIMAL); "
    "INSERT INTO t VALUES (1, 'a', 2.5), (2, 'b', 1.0), (3, 'b', 4);"
)
LIMITS = Limits(seconds=1.0, rows=100, memory_mib=64)
ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT COUNT(*) FROM n;"


@pytest.mark.parametrize(
    ("gold", "predicted", "correct"),
    [
        # rows as a multiset: order is free where the gold does not order
        ("SELECT name FROM t", "SELECT name FROM t ORDER BY id DESC", True),
        # a multiset, not a set: b occurs twice
        ("SELECT name FROM t", "SELECT DISTINCT name FROM t", False),
        # order counts where the gold orders
        ("SELECT id FROM t ORDER BY price", "SELECT id FROM t ORDER BY price DESC", False),
        ("SELECT id FROM t ORDER BY price", "SELECT id FROM t ORDER BY price ASC", True),
        # an ORDER BY inside does not make the result ordered
        (
            "SELECT id FROM (SELECT id FROM t ORDER BY id)",
            "SELECT id FROM t ORDER BY id DESC",
            True,
        ),
        # numbers by value, columns by place, names of columns do not matter
        ("SELECT COUNT(*) FROM t", "SELECT 3.0 AS many", True),
        ("SELECT id, name FROM t", "SELECT name, id FROM t", False),
        ("SELECT 0.1 + 0.2", "SELECT 0.3", True),
        ("SELECT 0.12345678", "SELECT 0.12345679", False),
        ("SELECT 0.12345678901", "SELECT 0.12345678902", True),
        ("SELECT '1'", "SELECT 1", False),
        ("SELECT NULL", "SELECT 0", False),
        # data that changes: the databases are compared
        ("DELETE FROM t WHERE id = 1", "DELETE FROM t WHERE name = 'a'", True),
        ("DELETE FROM t WHERE id = 1", "DELETE FROM t WHERE id = 2", False),
        ("UPDATE t SET price = 9 WHERE id = 3", "UPDATE t SET price = 9.0 WHERE id > 2", True),
        (
            "INSERT INTO t VALUES (4, 'c', 1)",
            "INSERT INTO t (id, name, price) SELECT 4,'c',1",
            True,
        ),
        (
            "INSERT INTO t VALUES (4, 'c', 1), (5, 'd', 2)",
            "INSERT INTO t VALUES (5, 'd', 2), (4, 'c', 1)",
            True,
        ),
        ("DELETE FROM t WHERE id = 1", "SELECT id FROM t WHERE id = 1", False),
        ("SELECT id FROM t", "DELETE FROM t", False),
        # tables that change
        ("CREATE TABLE u (x INT)", "CREATE TABLE u (x INTEGER)", True),
        ("CREATE TABLE u (x INT)", "CREATE TABLE v (x INT)", False),
        ("CREATE TABLE u (x INT)", "CREATE TABLE u (y INT)", False),
        ("DROP TABLE t", "DROP TABLE IF EXISTS t", True),
        ("ALTER TABLE t ADD COLUMN c INT", "ALTER TABLE t ADD c INT", True),
        # an index or a trigger is what it does, whatever it is called
        ("CREATE INDEX i ON t(id)", "CREATE INDEX t_id ON t (id)", True),
        ('CREATE INDEX "i" ON t(id)', "CREATE INDEX e ON t (id)", True),
        ("CREATE INDEX i ON t(id)", "CREATE INDEX i ON t(name)", False),
        ("CREATE INDEX i ON t(id)", "CREATE UNIQUE INDEX i ON t(id)", False),
        ("CREATE INDEX i ON t(id)", "DELETE FROM t WHERE id = 9", False),
        (
            "CREATE TRIGGER a AFTER DELETE ON t BEGIN DELETE FROM t; END",
            "CREATE TRIGGER b AFTER DELETE ON t BEGIN DELETE FROM t; END",
            True,
        ),
        (
            "CREATE TRIGGER a AFTER DELETE ON t BEGIN DELETE FROM t; END",
            "CREATE TRIGGER a AFTER DELETE ON t BEGIN UPDATE t SET id = 0; END",
            False,
        ),
        # right rows, and something done to the tables besides
        ("SELECT id FROM t", "SELECT id FROM t; DROP TABLE t", False),
        ("SELECT id FROM t", "CREATE INDEX i ON t(id); SELECT id FROM t", False),
        # a change that finds no row is not a question without an answer
        ("DELETE FROM t WHERE id = 9", "DELETE FROM t WHERE name = 'z'", True),
        ("DELETE FROM t WHERE id = 9", "SELECT id FROM t WHERE id = 9", False),
        ("DELETE FROM t WHERE id = 9", "DELETE FROM nothing", False),
        ("SELECT id FROM t WHERE id = 9", "DELETE FROM t WHERE id = 9", False),
        # whole numbers to the last digit (keys, telephone numbers), also where one is a float
        ("SELECT 491701234567", "SELECT 491701234568", False),
        ("SELECT 9007199254740993", "SELECT 9007199254740992", False),
        ("SELECT 491701234567", "SELECT 491701234567.0", True),
        ("SELECT 491701234567", "SELECT 491701234568.0", False),
        ("SELECT 1e300 * 1e300", "SELECT 2e300 * 1e300", True),  # both are infinite
        ("SELECT 12345678901.1 + 0.2", "SELECT 12345678901.3", True),
        # of several statements the last that gives rows counts, for the order too
        ("SELECT 1; SELECT id FROM t ORDER BY id", "SELECT id FROM t ORDER BY id DESC", False),
        ("SELECT id FROM t ORDER BY id; SELECT name FROM t", "SELECT name FROM t", True),
        (
            "SELECT id FROM t ORDER BY id; SELECT id FROM t",
            "SELECT id FROM t ORDER BY id DESC",
            True,
        ),
        ("SELECT id FROM t; DELETE FROM t WHERE id = 9", "SELECT id FROM t", True),
        # order, where SQLite knows more types than the parser
        (
            "SELECT CAST(id AS UNSIGNED BIG INT) FROM t ORDER BY id",
            "SELECT id FROM t ORDER BY id DESC",
            False,
        ),
        # an error, nothing at all, prose
        ("SELECT id FROM t", "SELECT nothing FROM t", False),
        ("SELECT id FROM t", "", False),
        ("SELECT id FROM t", "I do not know", False),
    ],
)
def test_what_counts_as_the_same_answer(gold: str, predicted: str, correct: bool):
    assert judge(SCHEMA, gold, predicted, LIMITS).correct is correct


def test_a_verdict_tells_what_is_right_from_what_runs_and_what_is_written_alike():
    def verdict(gold: str, predicted: str) -> tuple[Any, ...]:
        v = judge(SCHEMA, gold, predicted, LIMITS)
        return v.correct, v.valid, v.exact, v.same_tree, v.gold_dialect, v.error

    gold = "SELECT id FROM t WHERE id < 3"
    assert verdict(gold, "select ID from t\nwhere id < 3;") == (True, True, True, True, None, None)
    assert verdict(gold, "SELECT id FROM t WHERE id<3") == (True, True, False, True, None, None)
    assert verdict(gold, "SELECT id FROM t LIMIT 2") == (True, True, False, False, None, None)
    assert verdict(gold, "SELECT id FROM t") == (False, True, False, False, None, None)
    missing = verdict(gold, "SELECT x FROM t")
    assert missing == (False, False, False, False, None, "no such column: x")
    # What the parser does not know is at least the same tree as itself.
    unknown = "SELECT CAST(id AS UNSIGNED BIG INT) FROM t"
    assert verdict(unknown, unknown) == (True, True, True, True, None, None)


def test_figures_are_shares_of_the_rows_that_they_speak_of():
    rows = [
        (
            "SELECT id FROM t WHERE id < 3",
            "```sql\nSELECT id FROM t WHERE id<3\n```",
        ),  # the same tree
        ("SELECT name FROM t", "SELECT id FROM t"),  # runs, and is wrong
        ("SELECT id FROM t", "SELECT nothing FROM t"),  # does not run
        ("SELECT id FROM t WHERE id = 9", "SELECT 1 LIMIT 0"),  # right, and empty
        ("SELECT DATE_TRUNC('month', now()) FROM t",) * 2,  # a gold that does not run, word by word
        ("complete nonsense ((", "SELECT 1"),  # another, and an answer that runs
    ]
    settings = EvaluationConfig(result_rows=3)
    asked = [Row("q", SCHEMA, gold) for gold, _ in rows]
    figures, verdicts = score(asked, [answer for _, answer in rows], settings)
    assert figures == {
        "rows": 6,
        "judged": 4,
        "excluded": {"postgres": 1, "none": 1},
        "execution_accuracy": 2 / 4,
        "non_empty_rows": 3,
        "non_empty_accuracy": pytest.approx(1 / 3, abs=1e-6),
        "valid_sql": pytest.approx(4 / 6, abs=1e-6),
        "exact_match": pytest.approx(1 / 6, abs=1e-6),
        "ast_match": pytest.approx(2 / 6, abs=1e-6),
    }
    assert [v.correct for v in verdicts] == [True, False, False, True, None, None]
    # The limits are the configuration's: two rows are too few for a table of three.
    fewer, _ = score(asked[:1], [rows[0][1]], EvaluationConfig(result_rows=2))
    assert (fewer["judged"], fewer["execution_accuracy"]) == (0, None)


def test_a_gold_that_does_not_run_is_left_out_and_its_dialect_named():
    verdict = judge(SCHEMA, "SELECT DATE_TRUNC('month', now()) FROM t", "SELECT 1", LIMITS)
    assert verdict.correct is None
    assert verdict.gold_dialect == "postgres"
    assert dialect("complete nonsense ((") == "none"
    broken = judge("CREATE TABLE x (a ENUM(;", "SELECT 1", "SELECT 1", LIMITS)
    assert broken.correct is None


@pytest.mark.parametrize(
    "view",
    [
        "SELECT YEAR(id) FROM t",
        "SELECT id FROM missing",
        "SELECT a.id FROM t a, t b, t c, t d, t e",
    ],
)
def test_a_view_of_the_schema_that_cannot_be_read_excludes_only_who_reads_it(view: str):
    schema = f"{SCHEMA} CREATE VIEW v AS {view};"
    limits = Limits(seconds=1.0, rows=200, memory_mib=64)
    assert judge(schema, "SELECT id FROM t", "SELECT id FROM t", limits).correct is True
    assert judge(schema, "SELECT id FROM t", "DELETE FROM t", limits).correct is False
    assert judge(schema, "DELETE FROM t", "DELETE FROM t WHERE id > 0", limits).correct is True
    assert judge(schema, "DROP VIEW v", "DROP VIEW IF EXISTS v", limits).correct is True
    if "missing" in view:
        assert judge(schema, "SELECT * FROM v", "SELECT 1", limits).correct is None


def test_a_gold_whose_view_cannot_be_read_is_left_out():
    gold = "CREATE VIEW v AS SELECT YEAR(id) AS y FROM t"
    assert judge(SCHEMA, gold, gold, LIMITS).correct is None


@pytest.mark.parametrize("odd", ["a\0b", "a\0;b", "\ud800", "\ud800;", "'" * 999, "(" * 5000, ";;"])
def test_no_text_ends_an_evaluation(odd: str):
    assert judge(SCHEMA, "SELECT id FROM t", odd, LIMITS).correct is False
    assert judge(SCHEMA, odd, "SELECT id FROM t", LIMITS).correct is None
    judge(odd, "SELECT 1", "SELECT 1", LIMITS)
    judge("CREATE TABLE t (a); INSERT INTO t VALUES (CAST(x'ff' AS TEXT))", odd, odd, LIMITS)


def test_empty_results_are_told_apart():
    right = judge(SCHEMA, "SELECT id FROM t WHERE id = 9", "SELECT id FROM t WHERE id = 8", LIMITS)
    assert right.correct is True
    assert right.non_empty is False
    assert (
        judge(SCHEMA, "SELECT SUM(id) FROM t WHERE id = 9", "SELECT 1", LIMITS).non_empty is False
    )
    assert judge(SCHEMA, "DELETE FROM t", "DELETE FROM t", LIMITS).non_empty is True


def test_every_run_has_a_database_of_its_own():
    assert execute(SCHEMA, "DELETE FROM t", LIMITS).state == {"t": (("id", "name", "price"), ())}
    assert execute(SCHEMA, "SELECT COUNT(*) FROM t", LIMITS).rows == ((3,),)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (ENDLESS, "too slow"),
        ("SELECT a.id FROM t a, t b, t c, t d, t e", "more than 100 rows"),
        ("SELECT length(randomblob(900000000))", "too big"),
        ("SELECT hex(zeroblob(500000)) FROM t a, t b, t c, t d", "out of memory"),
        ("UPDATE t SET name = hex(zeroblob(9000000))", "too big"),
        (
            f"CREATE TABLE big AS {ENDLESS.replace('COUNT(*)', 'x').replace(';', ' LIMIT 101')}",
            "rows",
        ),
        ("ATTACH DATABASE '/tmp/x.db' AS x", "not authorized"),
        ("PRAGMA writable_schema = 1", "not authorized"),
        ("SELECT load_extension('x')", "not authorized"),
        ("VACUUM INTO '/tmp/stolen.db'", "authorization denied"),
        ("SELECT readfile('/etc/passwd')", "no such function"),
        ("SELEC 1", "syntax error"),
    ],
)
def test_a_query_cannot_run_away_or_out(query: str, reason: str):
    error = execute(SCHEMA, query, LIMITS).error
    assert error is not None
    assert reason in error


def test_limits_are_those_given():
    assert execute(SCHEMA, "SELECT id FROM t", Limits(rows=3)).error is None
    assert execute(SCHEMA, "SELECT id FROM t", Limits(rows=2)).error is not None
    began = time.monotonic()
    assert execute(SCHEMA, ENDLESS, Limits(seconds=0.1)).error == "too slow"
    assert time.monotonic() - began < 1
    # SQLite reads the clock every so many steps; these rows take few, and 40 ms each.
    slow = "instr(hex(zeroblob(20000 + a.id)), hex(zeroblob(10000)) || a.id)"
    few = f"SELECT {slow} FROM t a, t b, t c"
    assert execute(SCHEMA, few, Limits(seconds=0.1)).error == "too slow"
    big = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 40) "
    fill = f"CREATE TABLE big AS {big} SELECT zeroblob(900000) AS b FROM n"
    full = execute(SCHEMA, fill, Limits(seconds=5, memory_mib=16)).error
    assert full is not None
    assert "full" in full or "memory" in full


def test_memory_is_limited():
    grow = (
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 100000) "
        "SELECT COUNT(*) FROM (SELECT DISTINCT x || hex(zeroblob(5000)) FROM n)"
    )
    error = execute(SCHEMA, grow, Limits(seconds=20, rows=100, memory_mib=32)).error
    assert error is not None
    assert "memory" in error or "full" in error


def test_one_call_of_a_function_does_not_run_for_hours():
    search = "SELECT instr(hex(zeroblob(8000000)), hex(zeroblob(4000000)) || '1')"
    error = execute(SCHEMA, search, LIMITS).error
    assert error is not None
    assert "too big" in error


def test_after_an_overrun_the_next_query_runs():
    execute(SCHEMA, ENDLESS, Limits(seconds=0.05))
    assert execute(SCHEMA, "SELECT 1", LIMITS).rows == ((1,),)


def test_a_machine_that_has_no_time_for_a_query_makes_no_answer_wrong(
    monkeypatch: pytest.MonkeyPatch,
):
    real = sqlite.statements

    def held_up(script: str) -> list[str]:
        time.sleep(0.2)
        return real(script)

    monkeypatch.setattr(sqlite, "statements", held_up)
    assert execute(SCHEMA, "SELECT COUNT(*) FROM t", Limits(seconds=0.1)).rows == ((3,),)


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("SELECT 1;", "SELECT 1;"),
        ("```sql\nSELECT 1;\n```", "SELECT 1;"),
        ("Sure! Here it is:\n```\nSELECT 1\n```\nIt counts.", "SELECT 1"),
        ("The query is:\nSELECT 1", "SELECT 1"),
        ("```sql\nSELECT 1", "SELECT 1"),
        ("```SELECT 1```", "SELECT 1"),
        ("```sql SELECT 1```", "SELECT 1"),
        ("```SQLite \r\nSELECT 1\n```", "SELECT 1"),
        ("```\r\nSELECT 1\r\n```", "SELECT 1"),
        ("```\nSELECT sql FROM sqlite_master\n```", "SELECT sql FROM sqlite_master"),
        (
            "```WITH sql AS (SELECT 1) SELECT * FROM sql```",
            "WITH sql AS (SELECT 1) SELECT * FROM sql",
        ),
        ("SELECT 1;\n\nThis counts; trust me.", "SELECT 1;"),
        ("SELECT ';'; SELECT 2;\nThat is all", "SELECT ';';\nSELECT 2;"),
        ("SELECT 1\nThis counts", "SELECT 1\nThis counts"),  # where does it end?
        ("SELECT", "SELECT"),
        ("no idea", "no idea"),
    ],
)
def test_the_sql_is_found_in_an_answer(text: str, sql: str):
    assert extract(text) == sql


def test_scripts_are_split_where_sqlite_says_so():
    trigger = "CREATE TRIGGER r AFTER INSERT ON t BEGIN DELETE FROM t; END;"
    assert statements(f"SELECT ';'; {trigger} SELECT 2") == ["SELECT ';';", trigger, "SELECT 2"]
    assert statements(" ;; ") == []


def test_text_and_tree_matches():
    assert normal("SELECT  A FROM t ;") == normal("select a\nfrom T")
    assert normal("SELECT 'A'") != normal("SELECT 'a'")
    assert same_tree("SELECT a FROM t WHERE x = 1", "select A from T where (x) = 1") is False
    assert same_tree("SELECT a FROM t WHERE x = 1", "select A from T where x=1") is True
    assert same_tree("SELECT a FROM", "SELECT a") is False


def test_a_result_is_ordered_by_the_outermost_order_only():
    assert is_ordered("SELECT a FROM t ORDER BY a LIMIT 1")
    assert is_ordered("SELECT a FROM t UNION SELECT a FROM u ORDER BY a")
    assert not is_ordered("SELECT a FROM (SELECT a FROM t ORDER BY a)")
    assert not is_ordered("SELECT ROW_NUMBER() OVER (ORDER BY a) FROM t")
