"""The whole program as a stack that tests preview, deploy and destroy in the sandbox.

Each test states a change of the stack's settings and gets the engine's verdict on each resource.
The program is a copy of the working tree, so that no test writes into the repository.
"""

from __future__ import annotations

import contextlib
import copy
import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from review import digest, engine, program
from sandbox import Sandbox

ROOT = Path(__file__).parents[3]
TOKEN = "hf_ThisTokenMustNeverBeSeenAnywhere"
#: A state holds these too, and no cloud does.
OURS = ("pulumi:pulumi:Stack", "pulumi:providers:")


class Stack:
    """One stack of the program; settings are changed by dotted keys: `runs.vision.nodes=4`."""

    def __init__(self, sandbox: Sandbox, folder: Path, name: str) -> None:
        self.sandbox, self.folder, self.name = sandbox, folder, name
        program.copy_tree(ROOT, folder)
        program.prepare(folder, "dev")
        base: dict[str, Any] = yaml.safe_load((folder / "Pulumi.dev.yaml").read_text())
        base["config"].pop(program.TOKEN)
        self.base = base["config"]
        self.file = folder / f"Pulumi.{name}.yaml"
        self.file.write_text("config: {}\n")
        self.pulumi("stack", "init", name)
        self.pulumi("config", "set", "--secret", program.TOKEN, TOKEN)
        self.kept: dict[str, Any] = yaml.safe_load(self.file.read_text())
        self.configure()

    def configure(self, changes: Mapping[str, Any] | None = None) -> None:
        """Writes the settings: those of the repository's `dev`, the token, and the changes.

        A change to None removes the key.
        """
        config = copy.deepcopy({**self.base, **self.kept["config"]})
        for key, value in (changes or {}).items():
            _put(config, key, value)
        self.file.write_text(yaml.safe_dump({**self.kept, "config": config}))

    def pulumi(self, *args: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Runs `pulumi ARGS` in the program's folder, inside the sandbox."""
        done = engine.pulumi(self.sandbox, self.folder, *args)
        assert not check or done.returncode == 0, f"pulumi {args[0]}:\n{done.stdout}\n{done.stderr}"
        return done

    def preview(self, changes: Mapping[str, Any] | None = None) -> digest.Preview:
        """The engine's verdict on the settings with these changes, which are undone after."""
        text = self.file.read_text()
        self.configure(changes)
        found = engine.plan(self.sandbox, self.folder, self.name)
        self.file.write_text(text)
        return found

    def encrypted(self, key: str, value: str) -> dict[str, str]:
        """A secret setting as it stands in a settings file."""
        text = self.file.read_text()
        self.pulumi("config", "set", "--secret", "--stack", self.name, key, value)
        found = yaml.safe_load(self.file.read_text())["config"][key]
        self.file.write_text(text)
        return found

    def last_changes(self) -> dict[str, int]:
        """What the last deployment did, by the engine's own count of each operation."""
        text = self.pulumi("stack", "history", "--json", "--page-size", "1", "--stack", self.name)
        counts: dict[str, int] = json.loads(text.stdout)[0]["resourceChanges"]
        return {verdict: count for verdict, count in counts.items() if verdict != "same"}

    def up(self, *args: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self.pulumi(
            "up", "--yes", "--skip-preview", "--stack", self.name, *args, check=check
        )

    def destroy(self, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self.pulumi("destroy", "--yes", "--skip-preview", "--stack", self.name, check=check)

    def export(self) -> dict[str, Any]:
        """The stack's state, as it lies on disk: secrets encrypted."""
        return json.loads(self.pulumi("stack", "export", "--stack", self.name).stdout)

    def resources(self) -> dict[str, dict[str, Any]]:
        """Resources in the state by URN, without the stack itself and the providers."""
        found = self.export()["deployment"].get("resources") or []
        return {item["urn"]: item for item in found if not item["type"].startswith(OURS)}


def _put(config: dict[str, Any], key: str, value: Any) -> None:
    head, *path = key.split(".")
    place, parts = config, [head if ":" in head else f"gemma:{head}", *path]
    for part in parts[:-1]:
        place = place.setdefault(part, {})
    if value is None:
        place.pop(parts[-1], None)
    else:
        place[parts[-1]] = value


@pytest.fixture(scope="session")
def deployed(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Stack:
    """The stack `dev`, deployed once; a test that changes the deployment undoes that."""
    stack = Stack(sandbox, tmp_path_factory.mktemp("program") / "program", "dev")
    stack.up()
    return stack


@pytest.fixture(scope="session")
def make_stack() -> Any:
    """Makes a stack with nothing deployed, in a sandbox of its own below a folder."""

    @contextlib.contextmanager
    def make(folder: Path) -> Iterator[Stack]:
        with Sandbox(folder / "sandbox", run_pods=False) as own:
            yield Stack(own, folder / "program", "dev")

    return make


@pytest.fixture(scope="session")
def idle(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Stack:
    """A stack that stays undeployed."""
    return Stack(sandbox, tmp_path_factory.mktemp("idle") / "program", "idle")


@pytest.fixture(scope="session")
def token() -> str:
    """The Hugging Face token of all stacks here."""
    return TOKEN
