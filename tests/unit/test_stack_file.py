"""A stack's file that cannot be read, what stands there in vain, names that lose their group."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra import stack_file
from infra.settings import load_settings
from review.program import NoSettings, check_settings
from tests.unit.program import set_config, stack_config
from tests.unit.stack_settings import problems
from training.common.config import ConfigError

pytestmark = pytest.mark.usefixtures("no_resources")

RUNS = "  gemma:runs:\n    v: {workload: gemma3-vision}\n"
WHOLE = f"config:\n  gcp:project: my-project\n{RUNS}encryptionsalt: v1:x\n"


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        (WHOLE, []),
        (WHOLE.replace(RUNS, RUNS.replace("\n  ", "\n")[2:]), ["gemma:runs"]),
        (WHOLE.removeprefix("config:\n"), None),  # no YAML: told before the program starts
        ("  gcp:project: my-project\n" + RUNS, ["gcp:project", "gemma:runs"]),
        ("", []),
        ("config:\n", []),
        (WHOLE.replace(RUNS, "  gemma:runs:\n"), ["gemma:runs"]),
        (WHOLE.replace("my-project", "null"), ["gcp:project"]),
    ],
)
def test_what_stands_in_the_file_in_vain_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, keys: list[str] | None
):
    file = tmp_path / "Pulumi.dev.yaml"
    file.write_text(text)
    assert [problem.key for problem in stack_file.problems(file)] == (keys or [])
    if not keys:
        return
    with pytest.raises(NoSettings) as refused:
        check_settings(tmp_path, "dev")
    assert all(f"{key}\n    given:   " in str(refused.value) for key in keys)
    monkeypatch.chdir(tmp_path)
    set_config(stack_config("dev"))
    with pytest.raises(ConfigError) as caught:
        load_settings()
    assert [problem.key for problem in caught.value.problems] == keys


def test_a_key_without_a_value_is_told_with_the_command_that_removes_it(tmp_path: Path):
    file = tmp_path / "Pulumi.dev.yaml"
    file.write_text("config:\n  gemma:runs:\n    # all of them as comments\n")
    (problem,) = stack_file.problems(file)
    assert str(problem).startswith(
        "gemma:runs\n    given:   nothing\n    allowed: a value, or keys"
    )
    assert str(problem).endswith("fix:     pulumi config rm 'gemma:runs'")


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("  gemma:runs:\n    v:\n      workload: x\n     nodes: 2\n", 5, "two more than"),
        ("  gemma:runs:\n    v:\n      workload: x\n        nodes: 2\n", 5, "as the keys beside"),
        ("  gemma:runs:\n\tv: {workload: x}\n", 3, "spaces where this line has a tab"),
        ("  gcp:project p\n  gcp:region: r\n", 3, "line above lack the colon"),
        ("  gcp:region: r\n  gcp:project\n", 3, "a colon and a space after the key"),
        ("  gemma:labels: {team: x\n  gcp:region: r\n", 2, "`}` that closes"),
        ("  gemma:alerts: {emails: [x\n  gcp:region: r\n", 2, "`]` that closes"),
        ('  gcp:project: "p\n  gcp:region: r\n', 2, "the quote that closes"),
        ('  gcp:project: "p" x\n', 2, "nothing after a value's closing quote"),
        ("  gcp:project: @p\n", 2, "begins with this sign in quotes"),
        ("  gcp:project: *p\n", 2, "begins with this sign in quotes"),
        ("  gcp:project: p\n  gcp:project: q\n", 3, "each key once"),
        ("  gcp:project: p\n---\na: b\n", 3, "one document"),
    ],
)
def test_a_mistake_in_the_yaml_is_told_by_its_line_and_what_belongs_there(
    tmp_path: Path, text: str, line: int, words: str
):
    whole = f"config:\n{text}"
    (tmp_path / "Pulumi.dev.yaml").write_text(whole)
    with pytest.raises(NoSettings) as caught:
        check_settings(tmp_path, "dev")
    told = str(caught.value)
    assert f"Pulumi.dev.yaml, line {line}\n    given:   {whole.splitlines()[line - 1]!r}\n" in told
    assert words in told


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"config:\n  gcp:project:p\n", "below `config:` in Pulumi.dev.yaml `key: value`"),
        (b"config:\n  a: \xe4\n", "UTF-8"),
        (b"config:\n  a: \x00\n", "UTF-8"),
    ],
)
def test_a_file_without_settings_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys, content: bytes, words: str
):
    (tmp_path / "Pulumi.dev.yaml").write_bytes(content)
    monkeypatch.chdir(tmp_path)
    assert stack_file.main("dev") == 1
    assert words in capsys.readouterr().err
    assert stack_file.main("new") == 0  # which has no file yet


def test_a_token_in_a_line_that_is_told_is_hidden(tmp_path: Path):
    token = "hf_" + "NeverToBeSeen"
    (tmp_path / "Pulumi.dev.yaml").write_text(f'config:\n  gemma:huggingFaceToken: "{token}\n')
    with pytest.raises(NoSettings) as caught:
        check_settings(tmp_path, "dev")
    assert "line 2" in str(caught.value)
    assert token not in str(caught.value)


def test_a_namespace_that_nobody_reads_is_told_and_its_value_hidden():
    found = problems({"gema:huggingFaceToken": "hf_hidden"})["gema:huggingFaceToken"]
    assert "did you mean gemma:huggingFaceToken?" in found.allowed
    assert "hf_hidden" not in str(found)


def test_another_name_for_a_run_keeps_what_is_below_it():
    run = {"workload": "gemma4-text", "trainer": {"sft": {"max_steps": 7}}}
    found = problems({"gemma:runs": {"Text_to_SQL": run}})["gemma:runs.Text_to_SQL"]
    assert str(found).endswith(
        "pulumi config rm --path 'gemma:runs.Text_to_SQL' && "
        "pulumi config set --path 'gemma:runs.text-to-sql.workload' gemma4-text && "
        "pulumi config set --path 'gemma:runs.text-to-sql.trainer.sft.max_steps' 7"
    )


def test_a_key_that_the_file_names_is_given_also_where_it_equals_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    text = "config:\n  gemma:capacity: reservation\n  gemma:capcity: spot\n"
    (tmp_path / "Pulumi.dev.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    problem = problems({"gemma:capacity": "reservation", "gemma:capcity": "spot"})["gemma:capcity"]
    assert problem.allowed.startswith("capacity, which is given too: remove ")
    assert problem.fix == "pulumi config rm --path '{key}'"
