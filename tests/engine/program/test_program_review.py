"""The review on two versions of the real program, as a pull request's workflow runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import yaml

from review import program

ROOT = Path(__file__).parents[3]


def test_a_pull_request_shows_what_happens_to_runs_first(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    program.copy_tree(ROOT, repository)
    git = ["git", "-C", str(repository), "-c", "user.name=n", "-c", "user.email=e@example.com"]
    for command in (["init", "-qb", "main"], ["add", "--all"], ["commit", "-qm", "Base"]):
        subprocess.run([*git, *command], check=True, timeout=60)
    file = repository / "Pulumi.dev.yaml"
    settings = yaml.safe_load(file.read_text())
    settings["config"]["gemma:labels"] = {"team": "other"}
    settings["config"]["gemma:runs"]["vision"]["trainer"] = {"sft": {"learning_rate": 1.0e-4}}
    file.write_text(yaml.safe_dump(settings))

    done = subprocess.run(
        [sys.executable, "-m", "review", "main"],
        cwd=repository,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    head, _, folded = done.stdout.partition("<details>")
    assert "2 replaces" in head
    assert "0 creates" in head
    assert "0 deletes" in head
    assert "RayJob" in head
    assert "sft.learning_rate" in head
    assert "| update | `cluster` |" in head
    assert head.index("| **replace** | `vision` |") < head.index("| update | `cluster` |")
    assert "other" in folded
    assert str(tmp_path) not in done.stdout
