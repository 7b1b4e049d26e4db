"""What README.md says of the commands: each of a stack takes STACK=."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OF_A_STACK = re.findall(
    r"^([a-z-]+):", (ROOT / "Makefile").read_text().split("##@ A stack")[1], re.MULTILINE
)


def test_there_are_commands_of_a_stack() -> None:
    assert {"preview", "preview-diff", "up", "destroy", "recover"} <= set(OF_A_STACK)


@pytest.mark.parametrize("target", [name for name in OF_A_STACK if name not in ("shell", "clean")])
@pytest.mark.parametrize("options", [[], ["OFFLINE=1"]])
def test_the_named_stack_is_asked(target: str, options: list[str]) -> None:
    command = ["make", "--dry-run", target, "STACK=another", *options]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "--stack another" in said


@pytest.mark.parametrize(("stack", "isolated"), [("dev", False), ("sandbox", True)])
def test_a_shell_for_the_cloud_needs_nothing_of_the_sandbox(stack: str, isolated: bool) -> None:
    command = ["make", "--dry-run", "shell", f"STACK={stack}"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert ("bubblewrap" in said) == isolated
