"""Which rows must stay on one side of the split: those that ask the same, or of the same tables.

Two rows that differ in spaces, case, punctuation or comments ask the same. A row too many in a
group costs a row; one too few lets the held-out side be learned by heart.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from training.common.writing import alike


@dataclass(frozen=True)
class Row:
    """One question: its schema (with or without INSERTs), and the SQL that answers it."""

    question: str
    schema: str
    answer: str


def group(rows: Sequence[Row], by: str) -> list[list[int]]:
    """Indices of rows that must stay on one side, in order of first appearance."""
    if by == "question":
        keys = [[f"{alike(row.question)}\n{alike(_bare(row.schema))}"] for row in rows]
    else:
        keys = [tables(row.schema) or [alike(_bare(row.schema))] for row in rows]
    parent = list(range(len(rows)))

    def root(index: int) -> int:
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = parent[index]
        return index

    first: dict[str, int] = {}
    for index, names in enumerate(keys):
        for name in names:
            other = first.setdefault(name, index)
            a, b = sorted((root(other), root(index)))
            parent[b] = a
    found: dict[int, list[int]] = {}
    for index in range(len(rows)):
        found.setdefault(root(index), []).append(index)
    return list(found.values())


TABLE = re.compile(
    r"\bcreate\s+(?:or\s+replace\s+)?(?:\w+\s+){0,2}table\s+(?:if\s+not\s+exists\s+)?"
    r"((?:[\"`\[][^\"`\]]+[\"`\]]|[\w$]+)(?:\s*\.\s*(?:[\"`\[][^\"`\]]+[\"`\]]|[\w$]+))*)"
    r"\s*(\(|as\b)",
    re.IGNORECASE,
)
PIECE = re.compile(r"""'[^']*'|"[^"]*"|[(),]|[^(),'"]+|.""", re.DOTALL)
CONSTRAINTS = {"primary", "foreign", "unique", "check", "constraint", "key", "index"}


def tables(schema: str) -> list[str]:
    """Each table of a schema as `name(first column, second column, ...)`, types left out.

    Quotes and the names of databases are left out too. A table made of a query is named by that.
    """
    text = _bare(schema)
    found: list[str] = []
    for match in TABLE.finditer(text):
        name = _name(re.split(r"\s*\.\s*", match.group(1))[-1])
        if match.group(2) == "(":
            columns = [_name(part) for part in _parts(text, match.end())]
            found.append(f"{name}({','.join(c for c in columns if c not in CONSTRAINTS)})")
        else:
            found.append(f"{name}({alike(text[match.end() :].split(';', 1)[0])})")
    return found


def _parts(text: str, start: int) -> list[str]:
    """What stands between commas, from `start` to the bracket that closes there."""
    depth, parts = 1, [""]
    for found in PIECE.finditer(text, start):
        piece = found.group()
        depth += {"(": 1, ")": -1}.get(piece, 0)
        if depth == 0:
            break
        if piece == "," and depth == 1:
            parts.append("")
        else:
            parts[-1] += piece
    return [part for part in map(str.strip, parts) if part]


def _name(text: str) -> str:
    """The first name in a text, quoted or not, in lower case."""
    quoted = re.match(r"[\"`\[]([^\"`\]]+)", text)
    return (quoted.group(1) if quoted else text.split(None, 1)[0].split("(", 1)[0]).casefold()


def _bare(schema: str) -> str:
    """A schema without its comments (`--` in a text is none)."""
    parts = r"('[^']*')|--[^\n]*|/\*.*?\*/"
    return re.sub(parts, lambda found: found.group(1) or " ", schema, flags=re.DOTALL)
