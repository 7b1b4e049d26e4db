"""Does a query answer the question? Both queries run in SQLite, and what they give is compared.

Rules (each has a test with a known answer):
- every run gets a fresh in-memory database made from the row's schema, with no way to files,
  other databases or extensions, and with limits on time, rows and memory;
- rows are compared as multisets; in order only where the gold query orders its result;
- where the gold changes data, tables, indexes or triggers, the databases that result are compared;
- 1 and 1.0 are equal, whole numbers are compared to the last digit, decimals to nine digits, text
  as it is;
- a gold that does not run in SQLite is left out of the accuracy and counted by its dialect.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass

from training.gemma4_text.sqlite import Limits, Outcome, Values, execute, normal, statements

DIALECTS = ("sqlite", "postgres", "mysql", "tsql", "bigquery", "snowflake", "oracle")
STATEMENT = re.compile(
    r"^\s*(select|with|insert|update|delete|create|alter|drop|replace|values|merge|truncate)\b",
    re.IGNORECASE | re.MULTILINE,
)


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
    if wanted.rows is None or got.rows is None:  # one that may change data and one that cannot
        return wanted.rows is got.rows
    if ordered:
        return [_plain(row) for row in wanted.rows] == [_plain(row) for row in got.rows]
    return _bag(wanted.rows) == _bag(got.rows)


def is_ordered(query: str) -> bool:
    """Whether the result as a whole is ordered (an ORDER BY inside a subquery does not count).

    Of several statements the last one that gives rows counts.
    """
    import sqlglot
    from sqlglot import exp

    try:
        trees = sqlglot.parse(query, read="sqlite")
    except Exception:
        return bool(re.search(r"\border\s+by\b[^()]*$", query, re.IGNORECASE))
    selects = [tree for tree in trees if isinstance(tree, exp.Query)]
    return bool(selects and selects[-1].args.get("order"))


def same_tree(gold: str, predicted: str) -> bool:
    """Whether both parse to the same tree, names compared without case."""
    import sqlglot
    from sqlglot.optimizer.normalize_identifiers import normalize_identifiers

    try:
        trees = [
            normalize_identifiers(sqlglot.parse_one(query, read="sqlite"), dialect="sqlite")
            for query in (gold, predicted)
        ]
    except Exception:  # of a parser on a model's text
        return False
    return trees[0] == trees[1]


def dialect(query: str) -> str:
    """The first dialect other than SQLite that parses the query, or `none`."""
    import sqlglot

    for name in DIALECTS[1:]:
        try:
            sqlglot.parse(query, read=name)
        except Exception:
            continue
        return name
    return "none"


def extract(text: str) -> str:
    """The SQL in an answer: a fenced block, or from the first line that starts a statement.

    What an untuned model says after the last semicolon is no part of it.
    """
    # A word after the fence is a language where its line ends, or where it says so itself.
    fence = r"```(?:\w*[ \t]*\n|\w*sql\w*\s)?(.*?)(?:```|$)"
    fenced = re.search(fence, text, re.DOTALL | re.IGNORECASE)
    if fenced and fenced.group(1).strip():
        return fenced.group(1).strip()
    start = STATEMENT.search(text)
    if start is None:
        return text.strip()
    found = statements(text[start.start() :])
    while len(found) > 1 and not STATEMENT.match(found[-1]):
        found.pop()
    return "\n".join(found)


def _bag(rows: tuple[Values, ...]) -> Counter[Values]:
    return Counter(_plain(row) for row in rows)


def _plain(row: Values) -> Values:
    return tuple(_number(value) if isinstance(value, float) else value for value in row)


def _number(value: float) -> float:
    """A decimal to nine digits; a whole one, but for float's own error, to the last digit."""
    if not math.isfinite(value):
        return value
    whole = round(value)
    return whole if math.isclose(value, whole, rel_tol=1e-12) else float(f"{value:.9g}")
