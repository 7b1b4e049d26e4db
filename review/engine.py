"""Runs the engine: the base is deployed into a stand-in cloud, the working tree is previewed."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from review import program
from review.digest import Preview, read


class Surroundings(Protocol):
    """Where `pulumi` runs: the sandbox, or any place with an engine and a backend of its own."""

    def run(
        self, command: Sequence[str], *, cwd: Path, env: Mapping[str, str], check: bool
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command with more variables; returns its exit status, stdout and stderr."""
        ...


def compare(
    surroundings: Surroundings, repository: Path, commit: str | None, stack: str, work: Path
) -> Preview:
    """What the engine would do to a deployment of `commit` to reach the working tree.

    Without a commit nothing is deployed.
    A base that has no program, or one that cannot be deployed, counts as nothing deployed: the
    preview then shows the whole stack as new, and its `base_error` says why.

    A token in Secret Manager is taken for one in the settings, on both sides: the stand-in cloud
    holds no secret of its own, and a stack that cannot be deployed there could not be compared.

    Both versions lie at the same path in turn, since code that a dynamic resource keeps in the
    state names the file that it is from.
    """
    folder = work / "program"
    base_error = None
    if commit is not None:
        program.copy_commit(repository, commit, folder)
        if (folder / "Pulumi.yaml").exists():
            program.prepare(folder, stack, deployable=True)
            base_error = deploy(surroundings, folder, stack)
            if base_error:
                _forget(surroundings, folder, stack)
        shutil.rmtree(folder)
    program.copy_tree(repository, folder)
    program.prepare(folder, stack, deployable=commit is not None)
    found = preview(surroundings, folder, stack)
    return dataclasses.replace(found, base_error=base_error)


def deploy(surroundings: Surroundings, folder: Path, stack: str) -> str | None:
    """Deploys the program in `folder` as a new stack; returns why that is not possible, or None."""
    _select(surroundings, folder, stack)
    command = ["up", "--yes", "--skip-preview", "--stack", stack]
    done = pulumi(surroundings, folder, *command)
    return _tail(done) if done.returncode else None


def preview(surroundings: Surroundings, folder: Path, stack: str) -> Preview:
    """Previews the program in `folder` as a stack that is made if need be."""
    _select(surroundings, folder, stack)
    return plan(surroundings, folder, stack)


def plan(surroundings: Surroundings, folder: Path, stack: str) -> Preview:
    """Previews the program in `folder` against the state that the stack has."""
    done = pulumi(surroundings, folder, "preview", "--json", "--show-sames", "--stack", stack)
    state = _digest(pulumi(surroundings, folder, "stack", "export", "--stack", stack).stdout)
    deployed = (state.get("deployment") or {}).get("resources") or ()
    found = read(_digest(done.stdout), deployed)
    if not done.returncode:
        return dataclasses.replace(found, errors=())  # logged, and yet nothing would stop
    messages = found.errors or (_tail(done),)
    return Preview(
        changes=(),
        same=0,
        errors=tuple(message.replace(f"{folder}/", "") for message in messages),
    )


def pulumi(
    surroundings: Surroundings, folder: Path, *command: str, check: bool = False
) -> subprocess.CompletedProcess[str]:
    """Runs `pulumi COMMAND` in a program's folder.

    The program's dynamic resources are loaded by the names of their modules, so these must be the
    modules of this version of the program.
    """
    return surroundings.run(
        ["pulumi", *command, "--non-interactive", "--color", "never"],
        cwd=folder,
        env={"PYTHONPATH": str(folder)},
        check=check,
    )


def _select(surroundings: Surroundings, folder: Path, stack: str) -> None:
    """Selects the stack, which is made if need be, and encrypts the placeholders of its secrets."""
    pulumi(surroundings, folder, "stack", "select", "--create", stack, check=True)
    secrets = program.placeholders(folder, stack)
    if secrets:
        pairs = [part for key in secrets for part in ("--secret", f"{key}={program.PLACEHOLDER}")]
        command = ["config", "set-all", "--stack", stack, "--path", *pairs]
        pulumi(surroundings, folder, *command, check=True)


def _forget(surroundings: Surroundings, folder: Path, stack: str) -> None:
    command = ["stack", "rm", "--yes", "--force", "--preserve-config", stack]
    pulumi(surroundings, folder, *command, check=True)


def _digest(text: str) -> dict[str, Any]:
    """The JSON document in what the engine printed; empty where there is none."""
    start = text.find("{")
    try:
        found, _ = json.JSONDecoder().raw_decode(text[start:]) if start >= 0 else ({}, 0)
    except ValueError:
        return {}
    return found


def _tail(done: subprocess.CompletedProcess[str]) -> str:
    text = "\n".join(part.strip() for part in (done.stdout, done.stderr) if part.strip())
    return "\n".join(text.splitlines()[-40:]) or f"pulumi ended with status {done.returncode}"
