"""One query on a fresh SQLite database made from a schema: the rows it gives, or what it changed.

The query comes from a model: the database has no way to files, other databases or extensions, and
time, rows and memory are limited.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Values = tuple[Any, ...]
FORBIDDEN = {
    sqlite3.SQLITE_ATTACH,
    sqlite3.SQLITE_DETACH,
    sqlite3.SQLITE_PRAGMA,
    sqlite3.SQLITE_CREATE_VTABLE,
    sqlite3.SQLITE_DROP_VTABLE,
}
# One call of a function is beyond the clock, which SQLite reads between its steps: instr() takes
# seconds on texts of this size and hours on 16 MiB.
LONGEST = 2**20  # bytes of a value
FUNCTIONS = {"load_extension", "readfile", "writefile", "edit", "fts3_tokenizer"}


class OverrunError(RuntimeError):
    """A result is larger, or takes longer, than the limits allow."""


@dataclass(frozen=True)
class Limits:
    """What one query may use: seconds, rows of a result or table, MiB in SQLite and in Python.

    Seconds are the thread's own: a machine that has no time for it makes no answer wrong.
    """

    seconds: float = 2.0
    rows: int = 10000
    memory_mib: int = 256


@dataclass(frozen=True)
class Outcome:
    """What came of a query.

    Attributes:
        error: why it failed, or None. Starts with `schema:` when the schema itself did not run.
        rows: of the last statement that gives rows, None where no statement does.
        state: the database afterwards, when the query changed it: {table: (columns, rows)}.
    """

    error: str | None = None
    rows: tuple[Values, ...] | None = None
    state: dict[str, tuple[Values, tuple[Values, ...]]] | None = None

    @property
    def empty(self) -> bool:
        """Whether it neither changed anything nor gave a row with something in it."""
        return self.state is None and all(v is None for row in self.rows or () for v in row)


def execute(schema: str, query: str, limits: Limits) -> Outcome:
    """Run `query` (one statement or several) on a fresh database made from `schema`."""
    database = sqlite3.connect(":memory:", isolation_level=None)
    try:
        clock = _restrict(database, limits)
        # Any exception is an outcome: neither a row of the data nor an answer ends an evaluation.
        try:
            for statement in statements(schema):
                _fetch(database.execute(statement), limits, clock)
            known = _views(database)
            before = _state(database, limits, clock, known)
        except Exception as error:
            return Outcome(error=f"schema: {_reason(error)}")
        rows: tuple[Values, ...] | None = None
        try:
            found = statements(query)
            if not found:
                return Outcome(error="no statement")
            for statement in found:
                cursor = database.execute(statement)
                if cursor.description is not None:
                    rows = _fetch(cursor, limits, clock)
            after = _state(database, limits, clock, known)
        except Exception as error:
            return Outcome(error=_reason(error))
        return Outcome(rows=rows, state=after if after != before else None)
    finally:
        database.close()


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


def _restrict(database: sqlite3.Connection, limits: Limits) -> float:
    """Set the limits; the time of time.thread_time() at which they end the run."""
    database.execute(f"PRAGMA max_page_count = {limits.memory_mib * 256}")  # pages of 4 KiB
    database.execute("PRAGMA temp_store = MEMORY")  # else sorting spills to files, without limit
    # The heap limit is the process's and can only sink: nothing else here uses SQLite.
    database.execute(f"PRAGMA hard_heap_limit = {limits.memory_mib * 2**20}")
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
    database.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    database.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1000)

    def authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
        if action in FORBIDDEN:
            return sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_FUNCTION and str(second).lower() in FUNCTIONS:
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK

    database.set_authorizer(authorize)
    end = time.thread_time() + limits.seconds
    database.set_progress_handler(lambda: int(time.thread_time() > end), 2000)
    return end


def _fetch(cursor: Iterable[Values], limits: Limits, clock: float) -> tuple[Values, ...]:
    """All rows. Few steps give much text: time and memory are looked at here too."""
    rows: list[Values] = []
    size = 0
    for row in cursor:
        rows.append(row)
        size += sum(len(value) for value in row if isinstance(value, str | bytes))
        if len(rows) > limits.rows:
            raise OverrunError(f"more than {limits.rows} rows")
        if size > limits.memory_mib * 2**20:
            raise OverrunError("out of memory")
        if time.thread_time() > clock:
            raise OverrunError("too slow")
    return tuple(rows)


def _views(database: sqlite3.Connection) -> set[str]:
    found = database.execute("SELECT sql FROM sqlite_master WHERE type = 'view'")
    return {sql for (sql,) in found}


def _state(
    database: sqlite3.Connection, limits: Limits, clock: float, known: set[str]
) -> dict[str, tuple[Values, tuple[Values, ...]]]:
    """{table or view: (columns, rows)}, and the indexes and triggers of each by their text.

    A view of the schema (`known`) that SQLite cannot read is told by its text: a function of
    another dialect in it is no reason to judge nothing.
    """
    found = database.execute(
        "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE sql IS NOT NULL "
        "AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
    ).fetchall()
    state: dict[str, tuple[Values, tuple[Values, ...]]] = {}
    for kind, name, table, sql in found:
        if kind in ("index", "trigger"):  # what they are called is free, unlike a table
            named = rf"^(\w+\s.*?{kind}\s+)[\"'`\[]?{re.escape(name)}[\"'`\]]?"
            text = "".join(normal(re.sub(named, r"\1", sql, count=1, flags=re.I | re.S)).split())
            place = f"{kind} on {table.lower()}"
            state[place] = (), (*state.get(place, ((), ()))[1], (text,))
            continue
        quoted = str(name).replace('"', '""')
        try:
            cursor = database.execute(f'SELECT * FROM "{quoted}"')
            columns = tuple(str(column[0]).lower() for column in cursor.description)
            rows = _fetch(cursor, limits, clock)
        except (sqlite3.OperationalError, OverrunError) as error:
            if sql not in known or _reason(error) == "too slow":
                raise
            columns, rows = (), ((sql,),)
        state[str(name).lower()] = columns, rows
    return state


def _reason(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return "out of memory"
    return "too slow" if str(error) == "interrupted" else str(error) or type(error).__name__
