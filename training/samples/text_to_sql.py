"""Sample text-to-SQL rows in the columns of the tutorial's data set, made by this script.

    python -m training.samples.text_to_sql OUT [SEEDS]       # writes OUT/train.jsonl

Twenty domains (domains.py), twenty-two kinds of question each: filters, aggregates, groups,
order, joins, subqueries, and one change of the data. Every gold query runs in SQLite. Each further
seed asks the same kinds of question of the same tables about other values.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

from training.samples.domains import DOMAINS, Domain, fill

COLUMNS = ("sql_prompt", "sql_context", "sql")


def create(domain: Domain, *, parent: bool, child: bool, rows: tuple[list, list]) -> str:
    """CREATE TABLE and INSERT statements of the tables that a question needs."""
    p, c = domain.parent, domain.child
    statements: list[str] = []
    if parent:
        columns = (domain.link, p.label, p.category)
        kinds = ("INT", "TEXT", "TEXT")
        statements += _table(p.name, columns, kinds, rows[0])
    if child:
        columns = (f"{c.one}_id", c.label, c.category, domain.decimal[0], domain.whole[0])
        columns += (domain.link,)
        kinds = ("INT", "TEXT", "TEXT", "DECIMAL", "INT", "INT")
        statements += _table(c.name, columns, kinds, rows[1])
    return " ".join(statements)


def questions(domain: Domain, random: Random) -> Iterator[tuple[str, str, str]]:
    """(question, SQL, tables needed: `c`hild, `p`arent or both) for one domain."""
    p, c = domain.parent, domain.child
    number, whole = domain.decimal[0], domain.whole[0]
    said, said_whole = number.replace("_", " "), whole.replace("_", " ")
    kind = random.choice(domain.child_categories)
    other = next(k for k in domain.child_categories if k != kind)
    place = random.choice(domain.parent_categories[:3])
    owner = random.choice(domain.parent_labels[:3])
    label = random.choice(domain.child_labels)
    middle = (domain.decimal[1] + domain.decimal[2]) // 2
    low = domain.whole[1] + (domain.whole[2] - domain.whole[1]) // 3
    top = random.choice((2, 3))
    join = f"{c.name} JOIN {p.name} ON {c.name}.{domain.link} = {p.name}.{domain.link}"

    yield f"How many {c.many} are there?", f"SELECT COUNT(*) FROM {c.name};", "c"
    yield (
        f"List the {c.label} of every {c.one} whose {c.category} is {kind}.",
        f"SELECT {c.label} FROM {c.name} WHERE {c.category} = '{kind}';",
        "c",
    )
    yield (
        f"What is the {said} of the {c.one} {label}?",
        f"SELECT {number} FROM {c.name} WHERE {c.label} = '{label}';",
        "c",
    )
    yield (
        f"What is the average {said} of all {c.many}?",
        f"SELECT AVG({number}) FROM {c.name};",
        "c",
    )
    yield (
        f"What is the total {said_whole} of {c.many} with {c.category} {kind}?",
        f"SELECT SUM({whole}) FROM {c.name} WHERE {c.category} = '{kind}';",
        "c",
    )
    yield (
        f"Which {c.one} has the highest {said}?",
        f"SELECT {c.label} FROM {c.name} ORDER BY {number} DESC LIMIT 1;",
        "c",
    )
    yield (
        f"Which {c.one} has the lowest {said_whole}?",
        f"SELECT {c.label} FROM {c.name} ORDER BY {whole} ASC LIMIT 1;",
        "c",
    )
    yield (
        f"How many {c.many} have a {said} above {middle}?",
        f"SELECT COUNT(*) FROM {c.name} WHERE {number} > {middle};",
        "c",
    )
    yield (
        f"Count the {c.many} for each {c.category}.",
        f"SELECT {c.category}, COUNT(*) FROM {c.name} GROUP BY {c.category};",
        "c",
    )
    yield (
        f"What is the average {said} for each {c.category}?",
        f"SELECT {c.category}, AVG({number}) FROM {c.name} GROUP BY {c.category};",
        "c",
    )
    yield (
        f"What is the maximum {said_whole} for each {c.category}?",
        f"SELECT {c.category}, MAX({whole}) FROM {c.name} GROUP BY {c.category};",
        "c",
    )
    yield (
        f"List the different {c.category} values of the {c.many}.",
        f"SELECT DISTINCT {c.category} FROM {c.name};",
        "c",
    )
    yield (
        f"Show the top {top} {c.many} by {said}.",
        f"SELECT {c.label} FROM {c.name} ORDER BY {number} DESC LIMIT {top};",
        "c",
    )
    yield (
        f"Show the {c.label} and {said_whole} of {c.many} with {said_whole} of at least {low}, "
        f"sorted by {said_whole}.",
        f"SELECT {c.label}, {whole} FROM {c.name} WHERE {whole} >= {low} ORDER BY {whole};",
        "c",
    )
    yield (
        f"How many {c.many} have {c.category} {kind} or {other}?",
        f"SELECT COUNT(*) FROM {c.name} WHERE {c.category} IN ('{kind}', '{other}');",
        "c",
    )
    yield (
        f"Which {c.many} have a {said} above the average?",
        f"SELECT {c.label} FROM {c.name} WHERE {number} > (SELECT AVG({number}) FROM {c.name});",
        "c",
    )
    yield (
        f"What is the {p.category} of the {p.one} {owner}?",
        f"SELECT {p.category} FROM {p.name} WHERE {p.label} = '{owner}';",
        "p",
    )
    yield (
        f"List each {c.one} with the {p.label} of its {p.one}.",
        f"SELECT {c.name}.{c.label}, {p.name}.{p.label} FROM {join};",
        "pc",
    )
    yield (
        f"How many {c.many} belong to the {p.one} {owner}?",
        f"SELECT COUNT(*) FROM {join} WHERE {p.name}.{p.label} = '{owner}';",
        "pc",
    )
    yield (
        f"What is the total {said} of {c.many} whose {p.one} has {p.category} {place}?",
        f"SELECT SUM({c.name}.{number}) FROM {join} WHERE {p.name}.{p.category} = '{place}';",
        "pc",
    )
    yield (
        f"Which {p.many} have no {c.many}?",
        f"SELECT {p.label} FROM {p.name} WHERE {domain.link} NOT IN "
        f"(SELECT {domain.link} FROM {c.name});",
        "pc",
    )
    yield (
        f"Delete the {c.many} with {c.category} {kind}.",
        f"DELETE FROM {c.name} WHERE {c.category} = '{kind}';",
        "c",
    )


def rows(seed: int = 0) -> Iterator[dict[str, str]]:
    """All sample rows, the same for the same seed."""
    for index, domain in enumerate(DOMAINS):
        random = Random(f"{seed}-{index}")
        filled = fill(domain, random)
        for question, sql, needs in questions(domain, random):
            context = create(domain, parent="p" in needs, child="c" in needs, rows=filled)
            yield dict(zip(COLUMNS, (question, context, sql), strict=True))


def write(folder: Path, seeds: int = 1) -> Path:
    """Write the rows of the first `seeds` seeds to `folder/train.jsonl` and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "train.jsonl"
    lines = [json.dumps(row) + "\n" for seed in range(seeds) for row in rows(seed)]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def _table(name: str, columns: tuple, kinds: tuple, values: list) -> list[str]:
    declared = ", ".join(f"{column} {kind}" for column, kind in zip(columns, kinds, strict=True))
    inserted = ", ".join(f"({', '.join(_literal(v) for v in row)})" for row in values)
    return [f"CREATE TABLE {name} ({declared});", f"INSERT INTO {name} VALUES {inserted};"]


def _literal(value: object) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value)


if __name__ == "__main__":
    print(write(Path(sys.argv[1]), *map(int, sys.argv[2:])))
