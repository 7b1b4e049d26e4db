"""Lines of a stack's file that Pulumi overlooks, and names that lose what is below them."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.settings import load_settings
from infra.stack_file import overlooked
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
        (WHOLE.removeprefix("config:\n"), None),  # no YAML: the engine tells
        ("  gcp:project: my-project\n" + RUNS, ["gcp:project", "gemma:runs"]),
        ("", []),
    ],
)
def test_what_stands_beside_config_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, keys: list[str] | None
):
    file = tmp_path / "Pulumi.dev.yaml"
    file.write_text(text)
    assert [problem.key for problem in overlooked(file)] == (keys or [])
    if not keys:
        return
    with pytest.raises(NoSettings, match="below `config:`"):
        check_settings(tmp_path, "dev")
    monkeypatch.chdir(tmp_path)
    set_config(stack_config("dev"))
    with pytest.raises(ConfigError) as caught:
        load_settings()
    assert [problem.key for problem in caught.value.problems] == keys


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
