"""The workflows are well formed, hand out no right that is not needed, and run pinned code."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

import tools

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
NAMES = [path.stem for path in FILES]


def load(name: str) -> Any:
    return yaml.load((ROOT / f".github/workflows/{name}.yml").read_text(), Loader=yaml.BaseLoader)


def test_actionlint_is_silent() -> None:
    beside = tools.bin_dir() / "actionlint"
    program = beside if beside.exists() else shutil.which("actionlint")
    assert program, "actionlint is missing: `python -m tools test` installs it"
    done = subprocess.run(
        [program, "-shellcheck=", "-pyflakes=", *FILES],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_actions_are_pinned_by_commit(name: str) -> None:
    text = (ROOT / f".github/workflows/{name}.yml").read_text()
    uses = re.findall(r"uses: (\S+)", text)
    assert uses
    assert [use for use in uses if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", use)] == []


@pytest.mark.parametrize("name", NAMES)
def test_no_expression_inside_a_script(name: str) -> None:
    """A branch's name or a title is the author's text: a shell must never parse it."""
    for job in load(name)["jobs"].values():
        for step in job["steps"]:
            assert "${{" not in step.get("run", "")


def test_what_runs_a_forks_code_may_only_read() -> None:
    workflow = load("pull-request")
    assert "pull_request_target" not in workflow["on"]
    assert workflow["permissions"] == {"contents": "read"}
    assert not any("permissions" in job for job in workflow["jobs"].values())
    assert "secrets." not in (ROOT / ".github/workflows/pull-request.yml").read_text()


def test_what_may_write_runs_no_forks_code() -> None:
    workflow = load("comment")
    assert workflow["permissions"] == {}
    assert workflow["on"]["workflow_run"]["workflows"] == [load("pull-request")["name"]]
    checkouts = [
        step
        for job in workflow["jobs"].values()
        for step in job["steps"]
        if step.get("uses", "").startswith("actions/checkout@")
    ]
    assert len(checkouts) == 1
    assert "ref" not in checkouts[0]["with"]
    assert "repository" not in checkouts[0]["with"]


def test_every_stack_at_google_is_previewed_under_its_own_name() -> None:
    """A change of production alone must not go by without its comment."""
    stacks = {path.name.split(".")[1] for path in ROOT.glob("Pulumi.*.yaml")}
    script = next(
        step["run"]
        for step in load("pull-request")["jobs"]["preview"]["steps"]
        if "preview-diff" in step.get("run", "")
    )
    listed = re.search(r"for stack in (.*);", script)
    assert listed
    assert set(listed[1].split()) == {name for name in stacks if not name.startswith("sandbox")}
    assert "STACK=$stack OUT=preview/$stack.md" in script
