"""What the commands that people type would run; `make -n` prints it and runs nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def recipe(*arguments: str) -> str:
    done = subprocess.run(
        ["make", "-n", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout


@pytest.mark.parametrize("target", ["preview", "up", "destroy", "recover", "shell"])
@pytest.mark.parametrize(("stack", "tools"), [("prod", "preview"), ("sandbox", "demo")])
def test_a_command_brings_the_tools_that_it_needs(target: str, stack: str, tools: str) -> None:
    assert f"-m tools {tools}\n" in recipe(target, f"STACK={stack}")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("preview-diff", "STACK=prod"), '-m review "main" --stack prod'),
        (("preview-diff", "BASE=v1", "FULL=1"), '-m review "v1" --stack dev --full'),
        (("preview", "OFFLINE=1", "STACK=prod"), "-m review --stack prod"),
        (("preview", "STACK=prod"), "-m infra.stack_file prod && "),
        (("up", "STACK=prod"), "-m infra.stack_file prod && "),
        (("destroy", "STACK=prod"), "pulumi destroy --stack prod"),
        (("recover", "STACK=prod"), "-m infra.recover --stack prod"),
        (("logs", "STACK=prod", "RUN=vision"), "-m workloads.logs --stack prod vision"),
    ],
)
def test_a_command_is_about_the_stack_that_it_names(
    arguments: tuple[str, ...], expected: str
) -> None:
    assert expected in recipe(*arguments)


@pytest.mark.parametrize(("stack", "isolated"), [("dev", False), ("sandbox", True)])
def test_a_shell_for_the_cloud_needs_nothing_of_the_sandbox(stack: str, isolated: bool) -> None:
    assert ("bubblewrap" in recipe("shell", f"STACK={stack}")) == isolated
