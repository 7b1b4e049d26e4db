"""Rows to tokens: the split, the prompt's end, the labels, what is dropped."""

import sqlite3
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from training.common.config import ConfigError
from training.gemma4_text import tokens
from training.gemma4_text.config import DataConfig, resolve
from training.gemma4_text.rows import Row, read_rows
from training.gemma4_text.split import Split, fingerprint, group, make_split, tables
from training.samples import text_model, text_to_sql
from training.samples.tokens import learn

TEMPLATES = ["gemma4", "gemma4_v2", "gemma4_v3", "gemma4_v4", "gemma4_v5"]
# What the checkpoints of the larger models have in place of the bare turn header (ms-swift#9206):
BARE = "{{- '<|turn>model\\n' -}}"
EMPTY_THOUGHT = "{{- '<|turn>model\\n<|channel>thought\\n<channel|>' -}}"


def config(**changes: Any) -> DataConfig:
    values = {**resolve({})["data"], "train_rows": 60, "held_out_rows": 20, **changes}
    return DataConfig(**values)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    learned = learn(text_model.corpus(), text_model.SPECIAL, text_model.VOCABULARY)
    learned.chat_template = template("gemma4")
    return learned


def template(name: str) -> str:
    return (files("trl") / "chat_templates" / f"{name}.jinja").read_text("utf-8")


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    folder = text_to_sql.write(tmp_path_factory.mktemp("sql")).parent
    return read_rows(folder, config())


def test_no_question_and_schema_is_on_both_sides_and_the_dropped_are_counted():
    schema = "CREATE TABLE a (x INT);"
    made = [Row(f"q{i}", schema, f"SELECT {i}") for i in range(30)]
    again = [Row(f"Q{i}  ", schema.upper(), f"SELECT {i} + 0") for i in range(30)]
    exact = [Row(f" q{i}", schema.lower(), f"select  {i}") for i in range(7)]
    split = make_split([*made, *again, *exact], config(train_rows=30, held_out_rows=15))
    assert split.dropped["repetitions"] == 7
    asked = [{" ".join(r.question.lower().split()) for r in side} for side in vars_of(split)]
    assert not asked[0] & asked[1]
    assert len(split.held_out) == 15
    assert len(split.train) == 30
    assert split.dropped["of a held-out group"] == 1  # the 15th held-out row's twin
    total = len(split.train) + len(split.held_out) + sum(split.dropped.values())
    assert total == 67


def vars_of(split: Split) -> tuple[list[Row], list[Row]]:
    return split.train, split.held_out


def test_by_schema_no_table_is_on_both_sides(rows: list[Row]):
    split = make_split(rows, config(held_out_by="schema", train_rows=200, held_out_rows=60))
    sides = [{name for row in side for name in tables(row.schema)} for side in vars_of(split)]
    assert sides[0]
    assert sides[1]
    assert not sides[0] & sides[1]
    # An evaluation of some rows sees all schemas: they are not sorted by them.
    few, held_out = split.held_out[:30], sides[1]
    assert {name for row in few for name in tables(row.schema)} == held_out
    # Nor are the training rows, of which train_rows takes the first.
    more = make_split(rows, config(held_out_by="schema", train_rows=350, held_out_rows=60))
    assert sides[0] == {name for row in more.train for name in tables(row.schema)}


def test_the_split_follows_the_seed_alone(rows: list[Row]):
    one, two = make_split(rows, config()), make_split(list(rows), config())
    assert fingerprint(one.train) == fingerprint(two.train)
    assert fingerprint(one.held_out) == fingerprint(two.held_out)
    other = make_split(rows, config(seed=7))
    assert set(one.held_out) != set(other.held_out)
    assert fingerprint(one.held_out) != fingerprint(one.held_out[::-1])
    changed = [*one.train[:-1], replace(one.train[-1], answer="SELECT 0")]
    assert fingerprint(one.train) != fingerprint(changed)


def test_tables_are_read_from_a_schema():
    text = (
        "CREATE TABLE IF NOT EXISTS Shop (id INT, price DECIMAL(10,2)); "
        "INSERT INTO Shop VALUES (1, 2); CREATE TABLE b (x INT)"
    )
    assert tables(text) == ["shop(id,price)", "b(x)"]


@pytest.mark.parametrize(
    "schema",
    [
        "CREATE TABLE t (id INT PRIMARY KEY) WITHOUT ROWID; CREATE TABLE u (x INT)",
        'CREATE TABLE "my shop" ("the id" INT, `b c` TEXT, [d] INT);',
        "CREATE TEMP TABLE t (id INT, price DECIMAL(10,2));",
        "CREATE TABLE main.t (id INT, b TEXT);",
        "CREATE TABLE t (id INT, -- the, key\n b TEXT /* or, (c INT) */);",
        "/* CREATE TABLE no (x INT); */ CREATE TABLE t (id INT);",
        "CREATE TABLE t (id INT CHECK (id IN (1, (2))), b DECIMAL(10,2), PRIMARY KEY (id, b));",
        "CREATE TABLE t (a TEXT DEFAULT '(,'); CREATE TABLE u (b TEXT DEFAULT ' -- '); "
        "CREATE TABLE v (c INT, FOREIGN KEY (c) REFERENCES u (b));",
        "create table if not exists\nt(id)",
    ],
)
def test_tables_are_those_that_sqlite_makes_of_a_schema(schema: str):
    database = sqlite3.connect(":memory:")
    database.executescript(schema)
    listed = "SELECT name FROM {} WHERE type = 'table' ORDER BY rowid"
    names = [
        n
        for s in ("sqlite_master", "sqlite_temp_master")
        for n in database.execute(listed.format(s))
    ]
    made: list[str] = []
    for (name,) in names:
        columns = [column[1] for column in database.execute(f"PRAGMA table_info([{name}])")]
        made.append(f"{name}({','.join(columns)})")
    assert tables(schema) == made


def test_a_table_made_of_a_query_is_a_table():
    one, two = ("CREATE TABLE t AS SELECT 1 AS a;", "create table t as\nselect 1 as a")
    assert tables(one) == tables(two) != []
    assert tables("CREATE TABLE t AS SELECT 2 AS b") != tables(one)


@pytest.mark.parametrize(
    ("question", "schema"),
    [
        ("how many users ?", "CREATE TABLE t (id INT);"),
        ("How many users", "CREATE TABLE t (id INT)"),
        ("How many\u00a0users?", "CREATE TABLE t(id INT);"),
        ("\uff28ow many users?", "create table t (\n  id INT\n);"),
        ("How many users?", "CREATE TABLE t (id INT); -- all of them"),
        ("How many users?", "/* a */ CREATE TABLE t (id INT);"),
    ],
)
def test_what_differs_in_writing_alone_stays_on_one_side(question: str, schema: str):
    row = Row("How many users?", "CREATE TABLE t (id INT);", "SELECT COUNT(*) FROM t")
    for by in ("question", "schema"):
        assert group([row, Row(question, schema, "SELECT 1")], by) == [[0, 1]]
    # Neither is a repetition: what the answer compares with may be all that differs.
    low, high = (Row("q", "s", f"SELECT a FROM t WHERE a {sign} 5") for sign in "<>")
    assert (
        make_split([low, high], config(train_rows=0, held_out_rows=2)).dropped["repetitions"] == 0
    )


def test_other_questions_and_tables_are_groups_of_their_own():
    rows = [Row(f"question {i}", f"CREATE TABLE t{i} (id INT);", "SELECT 1") for i in range(5)]
    for by in ("question", "schema"):
        assert group(rows, by) == [[i] for i in range(5)]
    again = [Row("How many?", f"CREATE TABLE t{i} (id INT);", "SELECT 1") for i in range(2)]
    assert group(again, "question") == [[0], [1]]


def test_schemas_that_make_no_table_are_the_same_by_their_text():
    rows = [Row(f"question {i}", "The table of shops.", "SELECT 1") for i in range(2)]
    assert group(rows, "schema") == [[0, 1]]


def test_a_prompt_holds_the_row_as_it_is():
    row = Row("a {schema} and {question}?", "CREATE TABLE t (a TEXT DEFAULT '{question}')", "x")
    asked = tokens.messages(row, config(user_prompt="{schema} | {question} | {other}"))[1][
        "content"
    ]
    assert asked == f"{row.schema} | {row.question} | {{other}}"


@pytest.mark.parametrize("name", [*TEMPLATES, "empty thought"])
def test_the_prompt_ends_exactly_where_generation_starts(
    tokenizer: Any, rows: list[Row], name: str
):
    if name == "empty thought":
        tokenizer.chat_template = template("gemma4").replace(BARE, EMPTY_THOUGHT)
        assert EMPTY_THOUGHT in tokenizer.chat_template
    else:
        tokenizer.chat_template = template(name)
    settings, row = config(), rows[5]
    generation = tokenizer.apply_chat_template(
        tokens.messages(row, settings), add_generation_prompt=True, tokenize=False
    )
    end = tokens.end_of_turn(tokenizer, settings)
    encoded = tokens.encode(tokenizer, row, settings, end)
    trained = [i for i, label in enumerate(encoded["labels"]) if label != tokens.IGNORED]
    prompt = encoded["input_ids"][: trained[0]]
    assert tokenizer.decode(prompt) == generation
    assert tokenizer.decode([encoded["labels"][i] for i in trained]) == f"{row.answer}<turn|>"
    # The whole, as the template itself renders it, but for the newline after the turn.
    spoken = [*tokens.messages(row, settings), {"role": "assistant", "content": row.answer}]
    rendered = tokenizer.apply_chat_template(spoken, tokenize=False)
    if name != "empty thought":  # this template writes no thought before an old answer
        assert tokenizer.decode(encoded["input_ids"]) + "\n" == rendered
    assert trained == list(range(trained[0], len(encoded["input_ids"])))
    assert encoded["input_ids"].count(tokenizer.bos_token_id) == 1


def test_a_model_without_a_usable_chat_template_is_refused(tokenizer: Any):
    tokenizer.chat_template = None
    with pytest.raises(ConfigError, match=r"(?s)model_name_or_path.*chat template"):
        tokens.end_of_turn(tokenizer, config())
    tokenizer.chat_template = "{{ messages[-1]['content'] }}"
    with pytest.raises(ConfigError, match=r"ends an answer"):
        tokens.end_of_turn(tokenizer, config())


def test_rows_that_are_too_long_are_counted_or_stop_the_run(tokenizer: Any, rows: list[Row]):
    tokenizer.chat_template = template("gemma4")
    end = tokens.end_of_turn(tokenizer, config())
    lengths = [len(tokens.encode(tokenizer, r, config(), end)["input_ids"]) for r in rows[:40]]
    limit = sorted(lengths)[20]
    kept = tokens.tokenise(tokenizer, rows[:40], config(), limit)
    assert [len(r["input_ids"]) for r in kept] == [n for n in lengths if n <= limit]
    fitting = tokens.fitting(tokenizer, rows[:40], config(), limit)
    assert fitting == [r for r, n in zip(rows[:40], lengths, strict=True) if n <= limit]
    with pytest.raises(ConfigError, match="the length of row"):
        tokens.tokenise(tokenizer, rows[:40], config(too_long="stop"), limit)
    with pytest.raises(ConfigError, match="that some row fits"):
        tokens.tokenise(tokenizer, rows[:40], config(), 2)


def test_spaces_around_an_answer_are_not_learned(tokenizer: Any):
    tokenizer.chat_template = template("gemma4")
    rows = [Row("q", "s", text) for text in ("SELECT 1;", "\n SELECT 1;\n")]
    end = tokens.end_of_turn(tokenizer, config())
    one, two = (tokens.encode(tokenizer, row, config(), end) for row in rows)
    assert one == two


def test_a_data_set_that_does_not_fit_is_refused_with_what_it_has(rows: list[Row], tmp_path: Path):
    with pytest.raises(ConfigError, match=r"at most 420 .*440 usable"):
        make_split(rows, config(train_rows=1000))
    folder = text_to_sql.write(tmp_path).parent
    with pytest.raises(ConfigError, match="sql_prompt, sql_context, sql"):
        read_rows(folder, config(question_column="query"))
    with pytest.raises(ConfigError, match="dataset_split"):
        read_rows(folder, config(dataset_split="tset"))
    for asked, answer in (('""', '"y"'), ("null", '"y"'), ('"x"', '" "')):
        row = f'{{"sql_prompt": {asked}, "sql_context": "x", "sql": {answer}}}\n'
        (tmp_path / "train.jsonl").write_text(row)
        with pytest.raises(ConfigError, match="row 0"):
            read_rows(tmp_path, config())


def test_a_full_disk_is_no_fault_of_the_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from datasets.exceptions import DatasetGenerationError

    def full(*_: Any, **__: Any) -> None:
        raise DatasetGenerationError from OSError(28, "No space left on device")

    monkeypatch.setattr("datasets.load_dataset", full)
    with pytest.raises(DatasetGenerationError):
        read_rows(tmp_path, config())


ROW = '{"sql_prompt": "q", "sql_context": "s", "sql": "SELECT 1"}\n'


@pytest.mark.parametrize(
    "files",
    [
        {"README.md": "no rows here"},
        {"train.jsonl": ""},
        {"train.jsonl": ROW + "{broken\n"},
        {"train.csv": 'sql_prompt,sql_context,sql\n"a,b,c\n'},
        {"train-0.jsonl": ROW, "train-1.jsonl": ROW.replace("}", ', "note": 1}')},
    ],
)
def test_files_that_no_retry_can_read_are_refused(files: dict[str, str], tmp_path: Path):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match="dataset_name"):
        read_rows(tmp_path, config())


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_other_formats_give_the_same_rows(rows: list[Row], tmp_path: Path, kind: str):
    from datasets import Dataset

    table = Dataset.from_list(list(text_to_sql.rows()))
    getattr(table, f"to_{kind}")(str(tmp_path / f"train.{kind}"))
    assert read_rows(tmp_path, config()) == rows


def test_packing_keeps_every_row_whole_and_the_rows_of_a_step(tokenizer: Any, rows: list[Row]):
    tokenizer.chat_template = template("gemma4")
    encoded = tokens.tokenise(tokenizer, rows[:60], config(), 1024)
    sequences = tokens.packed(encoded, 1024, "bfd")
    pieces = []
    for sequence in sequences:
        start = 0
        for length in sequence["seq_lengths"]:
            pieces.append(tuple(sequence["input_ids"][start : start + length]))
            start += length
        assert start == len(sequence["input_ids"]) <= 1024
    assert sorted(pieces) == sorted(tuple(row["input_ids"]) for row in encoded)
    assert tokens.counts(sequences)["trained_tokens"] == tokens.counts(encoded)["trained_tokens"]
    # 10,000 rows in 2,500 sequences: 32 of 2 rows unpacked are 8 of 2 sequences of 4 rows.
    assert tokens.accumulation(32, 10000, 2500) == 8
    assert tokens.accumulation(1, 10000, 2500) == 1
    assert tokens.accumulation(32, 10000, 2450) == 8  # the nearest: 7.84


def test_what_one_process_built_the_others_read(tokenizer: Any, rows: list[Row], tmp_path: Path):
    def build() -> Any:
        return tokens.tokenise(tokenizer, rows[:5], config(), None)

    one = tokens.once(tmp_path / "t", True, lambda: None, build)
    two = tokens.once(tmp_path / "t", False, lambda: None, lambda: pytest.fail("built twice"))
    assert one[:] == two[:] == build()[:]
    # A restarted container finds what the last one left, perhaps of other rows: nobody reads that.
    read = tokens.once(
        tmp_path / "t",
        True,
        lambda: None,
        lambda: tokens.tokenise(tokenizer, rows[5:7], config(), None),
    )
    assert len(read) == 2
    order: list[str] = []
    tokens.once(
        tmp_path / "t", True, lambda: order.append("wait"), lambda: order.append("build") or build()
    )
    assert order == ["build", "wait"]
