"""The split: seeded, and with nothing of the held-out side in the training rows.

It is a function of the rows and the seed alone, so that every rank, every restart and every machine
makes the same one. Two rows that differ in spaces, case, punctuation or comments ask the same. A
row too many in a group costs a row; one too few lets the held-out side be learned by heart.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from training.common.config import ConfigError, Problem
from training.common.writing import alike
from training.gemma4_text.config import DataConfig
from training.gemma4_text.rows import Row


@dataclass
class Split:
    """Training and held-out rows, and what was dropped on the way, by reason."""

    train: list[Row]
    held_out: list[Row]
    dropped: dict[str, int] = field(default_factory=dict)


def make_split(rows: Sequence[Row], data: DataConfig) -> Split:
    """Held-out rows and training rows, seeded, with nothing of the one in the other.

    Rows that ask the same of the same schema belong together (`held_out_by: question`), or rows
    whose schemas share a table (`schema`). Groups are shuffled and dealt whole: first to the
    held-out side until it is full, then to training. Exact repetitions are dropped first.

    Raises:
        ConfigError: fewer rows than train_rows and held_out_rows ask for.
    """
    seen: set[tuple[str, str, str]] = set()
    unique: list[Row] = []
    for row in rows:
        key = (_words(row.question), _words(row.schema), _words(row.answer))
        if key not in seen:
            seen.add(key)
            unique.append(row)
    dropped = {"repetitions": len(rows) - len(unique)}
    groups = group(unique, data.held_out_by)
    random.Random(data.seed).shuffle(groups)
    held_out: list[Row] = []
    train: list[Row] = []
    cut = 0
    for members in groups:
        room = data.held_out_rows - len(held_out)
        if room > 0:
            # A group is held out as a whole: what does not fit must not be trained on either.
            held_out += [unique[i] for i in members[:room]]
            cut += max(0, len(members) - room)
        else:
            train += [unique[i] for i in members]
    dropped["of a held-out group"] = cut
    random.Random(data.seed + 1).shuffle(train)
    random.Random(data.seed + 2).shuffle(held_out)  # evaluation.rows takes the first: of all groups
    if len(train) < data.train_rows or len(held_out) < data.held_out_rows:
        total = len(held_out) + len(train)
        allowed = f"with {data.held_out_rows} held out, at most {len(train)} ({total} usable rows)"
        problem = Problem("trainer.data.train_rows", data.train_rows, allowed)
        raise ConfigError([problem])
    dropped["beyond train_rows"] = len(train) - data.train_rows
    return Split(train[: data.train_rows], held_out, dropped)


def fingerprint(rows: Iterable[Row]) -> str:
    """A short hash of rows and their order, for the record and for the equality of ranks."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(json.dumps([row.question, row.schema, row.answer]).encode())
    return digest.hexdigest()[:16]


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


def _words(text: str) -> str:
    return " ".join(text.lower().split())
