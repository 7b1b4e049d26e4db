"""Does a query answer the question? Both queries run in SQLite, and what they give is compared.

Rules (each has a test with a known answer):
- every run gets a fresh in-memory database made from the row's schema, with no way to files,
  other databases or extensions, and with limits on time, rows and memory;
- rows are compared as multisets; in order only where the gold query orders its result;
- where the gold changes data or tables, the databases that result are compared;
- 1 and 1.0 are equal, decimals are compared to nine digits, text is compared as it is;
- a gold that does not run in SQLite is left out of the accuracy and counted by its dialect.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

Values = tuple[Any, ...]
DIALECTS = ("sqlite", "postgres", "mysql", "tsql", "bigquery", "snowflake", "oracle")
STATEMENT = re.compile(
    r"^\s*(select|with|insert|update|delete|create|alter|drop|replace|values|merge|truncate)\b",
    re.IGNORECASE | re.MULTILINE,
)
FORBIDDEN = {
    sqlite3.SQLITE_ATTACH,
    sqlite3.SQLITE_DETACH,
    sqlite3.SQLITE_PRAGMA,
    sqlite3.SQLITE_CREATE_VTABLE,
    sqlite3.SQLITE_DROP_VTABLE,
}
FUNCTIONS = {"load_extension", "readfile", "writefile", "edit", "fts3_tokenizer"}


@dataclass(frozen=True)
class Limits:
    """What one query may use: seconds, rows of its result, MiB of SQLite's memory."""

    seconds: float = 2.0
    rows: int = 10000
    memory_mib: int = 256


@dataclass(frozen=True)
class Outcome:
    """What came of a query.

    Attributes:
        error: why it failed, or None. Starts with `schema:` when the schema itself did not run.
        rows: of the last statement that gives rows.
        state: the database afterwards, when the query changed it: {table: (columns, rows)}.
    """

    error: str | None = None
    rows: tuple[Values, ...] = ()
    state: dict[str, tuple[Values, tuple[Values, ...]]] | None = None

    @property
    def empty(self) -> bool:
        """Whether it neither changed anything nor gave a row with something in it."""
        return self.state is None and all(v is None for row in self.rows for v in row)


@dataclass(frozen=True)
class Verdict:
    """A prediction against its gold; `correct` is None where the gold does not run."""

    correct: bool | None
    valid: bool
    exact: bool
    same_tree: bool
    non_empty: bool
    gold_dialect: str | None
    error: str | None


def judge(schema: str, gold: str, predicted: str, limits: Limits) -> Verdict:
    """Run both queries and compare what they give."""
    exact = normal(gold) == normal(predicted)
    wanted = execute(schema, gold, limits)
    got = execute(schema, predicted, limits)
    correct: bool | None = None
    if wanted.error is None:
        correct = got.error is None and same(wanted, got, ordered=is_ordered(gold))
    return Verdict(
        correct=correct,
        valid=got.error is None,
        exact=exact,
        same_tree=exact or same_tree(gold, predicted),
        non_empty=wanted.error is None and not wanted.empty,
        gold_dialect=dialect(gold) if wanted.error is not None else None,
        error=got.error,
    )


def execute(schema: str, query: str, limits: Limits) -> Outcome:
    """Run `query` (one statement or several) on a fresh database made from `schema`."""
    database = sqlite3.connect(":memory:", isolation_level=None)
    try:
        _restrict(database, limits)
        try:
            for statement in statements(schema):
                database.execute(statement).fetchall()
        except (sqlite3.Error, sqlite3.Warning, MemoryError, OverflowError) as error:
            return Outcome(error=f"schema: {error}")
        before = _state(database)
        rows: tuple[Values, ...] = ()
        try:
            found = statements(query)
            if not found:
                return Outcome(error="no statement")
            for statement in found:
                cursor = database.execute(statement)
                if cursor.description is not None:
                    rows = tuple(cursor.fetchmany(limits.rows + 1))
                    if len(rows) > limits.rows:
                        return Outcome(error=f"more than {limits.rows} rows")
            after = _state(database)
        except (sqlite3.Error, sqlite3.Warning, MemoryError, OverflowError) as error:
            return Outcome(error=_reason(error))
        return Outcome(rows=rows, state=after if after != before else None)
    finally:
        database.close()


def same(wanted: Outcome, got: Outcome, *, ordered: bool) -> bool:
    """Whether two outcomes (neither an error) say the same."""
    if wanted.state is not None or got.state is not None:
        if wanted.state is None or got.state is None or wanted.state.keys() != got.state.keys():
            return False
        for table, (columns, rows) in wanted.state.items():
            other_columns, other_rows = got.state[table]
            if columns != other_columns or _bag(rows) != _bag(other_rows):
                return False
        return True
    if ordered:
        return [_plain(row) for row in wanted.rows] == [_plain(row) for row in got.rows]
    return _bag(wanted.rows) == _bag(got.rows)


def is_ordered(query: str) -> bool:
    """Whether the result as a whole is ordered (an ORDER BY inside a subquery does not count)."""
    import sqlglot
    from sqlglot import errors

    try:
        tree = sqlglot.parse_one(query, read="sqlite")
    except (errors.SqlglotError, RecursionError):
        return bool(re.search(r"\border\s+by\b[^()]*$", query, re.IGNORECASE))
    return bool(tree.args.get("order"))


def same_tree(gold: str, predicted: str) -> bool:
    """Whether both parse to the same tree, names compared without case."""
    import sqlglot
    from sqlglot import errors
    from sqlglot.optimizer.normalize_identifiers import normalize_identifiers

    try:
        trees = [
            normalize_identifiers(sqlglot.parse_one(query, read="sqlite"), dialect="sqlite")
            for query in (gold, predicted)
        ]
    except (errors.SqlglotError, RecursionError):
        return False
    return trees[0] == trees[1]


def dialect(query: str) -> str:
    """The first dialect other than SQLite that parses the query, or `none`."""
    import sqlglot
    from sqlglot import errors

    for name in DIALECTS[1:]:
        try:
            sqlglot.parse(query, read=name)
        except (errors.SqlglotError, RecursionError):
            continue
        return name
    return "none"


def extract(text: str) -> str:
    """The SQL in an answer: a fenced block, or from the first line that starts a statement."""
    fenced = re.search(r"```(?:\w+)?\s*\n?(.*?)(?:```|$)", text, re.DOTALL)
    if fenced and fenced.group(1).strip():
        return fenced.group(1).strip()
    start = STATEMENT.search(text)
    return (text[start.start() :] if start else text).strip()


def statements(script: str) -> list[str]:
    """The statements of a script, split where SQLite itself says that one is complete."""
    found: list[str] = []
    current = ""
    for piece in re.split(r"(;)", script):
        current += piece
        if piece == ";" and sqlite3.complete_statement(current):
            if current.strip(" \t\r\n;"):
                found.append(current.strip())
            current = ""
    if current.strip(" \t\r\n;"):
        found.append(current.strip())
    return found


def normal(query: str) -> str:
    """The query with spaces, case and the last semicolon evened out (quoted text untouched)."""
    parts = re.split(r"('(?:[^']|'')*')", query.strip().rstrip(";"))
    plain = [p if i % 2 else re.sub(r"\s+", " ", p).lower() for i, p in enumerate(parts)]
    return "".join(plain).strip()


def _restrict(database: sqlite3.Connection, limits: Limits) -> None:
    database.execute(f"PRAGMA max_page_count = {limits.memory_mib * 256}")  # pages of 4 KiB
    database.execute("PRAGMA temp_store = MEMORY")  # else sorting spills to files, without limit
    # The heap limit is the process's and can only sink: nothing else here uses SQLite.
    database.execute(f"PRAGMA hard_heap_limit = {limits.memory_mib * 2**20}")
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(limits.memory_mib, 16) * 2**20)
    database.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    database.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1000)

    def authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
        if action in FORBIDDEN:
            return sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_FUNCTION and str(second).lower() in FUNCTIONS:
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK

    database.set_authorizer(authorize)
    end = time.monotonic() + limits.seconds
    database.set_progress_handler(lambda: int(time.monotonic() > end), 2000)


def _state(database: sqlite3.Connection) -> dict[str, tuple[Values, tuple[Values, ...]]]:
    names = database.execute(
        "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') "
        "AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
    ).fetchall()
    state: dict[str, tuple[Values, tuple[Values, ...]]] = {}
    for (name,) in names:
        quoted = str(name).replace('"', '""')
        cursor = database.execute(f'SELECT * FROM "{quoted}"')
        columns = tuple(str(column[0]).lower() for column in cursor.description)
        state[str(name).lower()] = (columns, tuple(cursor.fetchall()))
    return state


def _reason(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return "out of memory"
    return "too slow" if str(error) == "interrupted" else str(error)


def _bag(rows: tuple[Values, ...]) -> Counter[Values]:
    return Counter(_plain(row) for row in rows)


def _plain(row: Values) -> Values:
    return tuple(
        float(f"{value:.9g}") if isinstance(value, int | float) else value for value in row
    )
