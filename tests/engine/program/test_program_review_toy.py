"""The review on a program of two resources: the engine's own verdicts, with no server at all."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from review import comment, engine, program
from sandbox.surroundings import binaries

PROGRAM = """
import pulumi
from pulumi.dynamic import CreateResult, DiffResult, Resource, ResourceProvider, UpdateResult

class Provider(ResourceProvider):
    def create(self, props):
        return CreateResult("id", {**props, "out": "made"})
    def diff(self, id, olds, news):
        changed = [key for key in news if olds.get(key) != news[key] and key != "__provider"]
        return DiffResult(changes=bool(changed), replaces=[k for k in changed if k == "name"])
    def update(self, id, olds, news):
        return UpdateResult({**news, "out": "made"})

class Thing(Resource):
    def __init__(self, called, opts=None, **props):
        super().__init__(Provider(), called, {**props, "out": None}, opts)

config = pulumi.Config("toy")
token = config.require_secret("token")
"""
BASE = "first = Thing('first', name='one', size=1, token=token)\nThing('gone', name='gone')\n"
HEAD = "first = Thing('first', name='two', size=1, token=token)\nThing('new', name=first.out)\n"
SETTINGS = "config:\n  toy:token: {secure: v1:AAAA}\n"


class Plain:
    """The engine with a state folder of its own."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        path = [str(binaries()), str(Path(sys.executable).parent), os.environ["PATH"]]
        self.environment = {
            **os.environ,
            "PATH": os.pathsep.join(path),
            "PULUMI_HOME": str(folder / "home"),
            "PULUMI_BACKEND_URL": f"file://{folder}",
            "PULUMI_CONFIG_PASSPHRASE": "toy",
            "PULUMI_SKIP_UPDATE_CHECK": "1",
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        }

    def run(
        self, command: Sequence[str], *, cwd: Path, env: Mapping[str, str], check: bool
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=cwd,
            check=check,
            env={**self.environment, **env},
            capture_output=True,
            text=True,
            timeout=120,
        )


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository of one commit with the base; tests change its working tree."""
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "Pulumi.yaml").write_text("name: toy\nruntime: python\n")
    (folder / "Pulumi.dev.yaml").write_text(SETTINGS)
    (folder / "__main__.py").write_text(PROGRAM + BASE)
    subprocess.run(["git", "-C", str(folder), "init", "-qb", "main"], check=True, timeout=60)
    commit(folder)
    return folder


def commit(repository: Path) -> None:
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.com"]
    for args in (["add", "."], [*identity, "commit", "-qm", "Change"]):
        subprocess.run(["git", "-C", str(repository), *args], check=True, timeout=60)


def review(repository: Path, work: Path) -> str:
    work.mkdir()
    commit = program.fork_point(repository, "main")
    found = engine.compare(Plain(work / "state"), repository, commit, "dev", work)
    return comment.render(found, "dev", "`main`")


def test_verdicts_are_the_engines(repository: Path, tmp_path: Path) -> None:
    (repository / "__main__.py").write_text(PROGRAM + HEAD)
    text = review(repository, tmp_path / "work")
    assert "1 create, 0 updates, 1 replace, 1 delete" in text
    assert "-   name: one\n+   name: two" in text
    assert review(repository, tmp_path / "again") == text
    assert (repository / "Pulumi.dev.yaml").read_text() == SETTINGS


def test_what_goes_before_a_replacement_and_stays_away_is_deleted(
    repository: Path, tmp_path: Path
) -> None:
    """The engine's own digest does not mention it."""
    first = "opts = pulumi.ResourceOptions(delete_before_replace=True)\n"
    first += "first = Thing('first', opts, name='{}')\n"
    last = "Thing('last', name=first.out)\n"
    (repository / "__main__.py").write_text(PROGRAM + first.format("one") + last)
    commit(repository)
    (repository / "__main__.py").write_text(PROGRAM + first.format("two"))
    text = review(repository, tmp_path / "work")
    assert "0 creates, 0 updates, 1 replace, 1 delete" in text
    assert "- delete pulumi-python:dynamic:Resource last" in text


def test_same_program_has_no_change(repository: Path, tmp_path: Path) -> None:
    assert "no change" in review(repository, tmp_path / "work")


def test_a_program_that_stops_is_the_comment(repository: Path, tmp_path: Path) -> None:
    (repository / "__main__.py").write_text(PROGRAM + "config.require('size')\n")
    text = review(repository, tmp_path / "work")
    assert "stops" in text
    assert "toy:size" in text
    assert str(tmp_path) not in text


def test_a_base_that_stops_shows_all_as_new(repository: Path, tmp_path: Path) -> None:
    (repository / "__main__.py").write_text("raise RuntimeError('broken base')\n")
    commit(repository)
    (repository / "__main__.py").write_text(PROGRAM + HEAD)
    text = review(repository, tmp_path / "work")
    assert "broken base" in text
    assert "2 creates" in text


def test_a_base_without_a_program(repository: Path, tmp_path: Path) -> None:
    subprocess.run(["git", "-C", str(repository), "rm", "-rq", "."], check=True, timeout=60)
    (repository / "README").write_text("nothing yet\n")
    commit(repository)
    for name, text in (("Pulumi.yaml", "name: toy\nruntime: python\n"), ("Pulumi.dev.yaml", "")):
        (repository / name).write_text(text)
    (repository / "__main__.py").write_text("")
    assert "cannot be deployed" not in review(repository, tmp_path / "work")


def test_without_a_base_all_is_new_and_the_settings_stay_as_they_are(
    repository: Path, tmp_path: Path
) -> None:
    (tmp_path / "work").mkdir()
    around = Plain(tmp_path / "work" / "state")
    found = engine.compare(around, repository, None, "dev", tmp_path / "work")
    assert sorted(change.verdict for change in found.changes) == ["create", "create"]
    assert (repository / "Pulumi.dev.yaml").read_text() == SETTINGS
