"""The two versions of the program, each laid out in a folder of its own, with nothing secret."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Any, cast

import yaml

from infra import stack_file
from review import values
from training.common.config import ConfigError

#: Stands where a secret stands: a preview needs some text, and never the real one.
PLACEHOLDER = "hf_placeholder"
TOKEN, TOKEN_ELSEWHERE = "gemma:huggingFaceToken", "gemma:huggingFaceSecret"


class _Loader(stack_file.Loader):
    """Keeps numbers, flags and dates as they are written.

    The engine reads YAML as 1.2 has it and PyYAML as 1.1 did: `no`, `12:30:00` and dates differ.
    """


class _Dumper(yaml.SafeDumper):
    """Writes what `_Loader` kept."""


for _tag in ("bool", "int", "float", "timestamp"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_tag}", lambda _, node: node)
_Dumper.add_representer(yaml.ScalarNode, lambda _, node: node)


class NoSuchBase(Exception):
    """The given git reference names no commit of this repository."""


class NoSettings(Exception):
    """The stack's settings are not there, or are no YAML."""


def check_settings(repository: Path, stack: str) -> None:
    """Raises `NoSettings` with the file, the line and what belongs there."""
    path = repository / f"Pulumi.{stack}.yaml"
    try:
        stack_file.read(path)
    except FileNotFoundError:
        found = sorted(file.name.split(".")[1] for file in repository.glob("Pulumi.*.yaml"))
        raise NoSettings(
            f"there is no {path.name}: make one, or name a stack that has its settings here "
            f"({', '.join(found)})"
        ) from None
    except ConfigError as error:
        raise NoSettings(str(error)) from None
    if found := stack_file.problems(path):
        raise NoSettings("\n\n".join(map(str, found)))


def git(repository: Path, *args: str) -> bytes:
    """Output of a git command; raises `subprocess.CalledProcessError` with its messages."""
    return subprocess.run(
        ["git", "-C", str(repository), *args], check=True, capture_output=True
    ).stdout


def fork_point(repository: Path, base: str) -> str:
    """The commit at which the working tree's branch left `base`.

    Comparing with it, and not with the tip of `base`, keeps what others merged since then out of
    the comment. Raises `NoSuchBase`.
    """
    try:
        commit = git(repository, "rev-parse", "--verify", "--quiet", f"{base}^{{commit}}")
    except subprocess.CalledProcessError:
        raise NoSuchBase(
            f"{base!r} names no commit here. If it is a branch of a remote, `git fetch` it first; "
            "a shallow clone needs `git fetch --unshallow`."
        ) from None
    try:
        return git(repository, "merge-base", base, "HEAD").decode().strip()
    except subprocess.CalledProcessError:  # no common history: compare with the base as it is
        return commit.decode().strip()


def copy_commit(repository: Path, commit: str, folder: Path) -> None:
    """Lays out the tracked files of a commit in `folder`, which must not exist."""
    folder.mkdir(parents=True)
    with tarfile.open(fileobj=BytesIO(git(repository, "archive", "--format=tar", commit))) as tar:
        tar.extractall(folder, filter="data")


def copy_tree(repository: Path, folder: Path) -> None:
    """Lays out the working tree in `folder`: what git tracks or would track, as it is on disk."""
    listed = git(repository, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in sorted(set(listed.decode().split("\0")) - {""}):
        source, target = repository / name, folder / name
        if source.is_symlink() or source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)


def prepare(folder: Path, stack: str, *, deployable: bool = False) -> None:
    """Makes a laid out program fit for a preview: its Python environment, and no secret in it.

    With `deployable` the settings can be deployed where there is no Secret Manager.
    """
    environment = folder / ".venv"
    if sys.prefix != sys.base_prefix and not environment.exists():
        environment.symlink_to(sys.prefix)
    path = folder / f"Pulumi.{stack}.yaml"
    loaded: Any = (yaml.load(path.read_text(), _Loader) or {}) if path.exists() else {}
    settings = without_secrets(cast(dict[str, Any], loaded))
    if deployable and settings["config"].pop(TOKEN_ELSEWHERE, None):
        settings["config"][TOKEN] = PLACEHOLDER
    path.write_text(yaml.dump(settings, Dumper=_Dumper))


def placeholders(folder: Path, stack: str) -> list[str]:
    """Keys, as `pulumi config set --path` takes them, whose values are still to be encrypted."""
    loaded: Any = yaml.safe_load((folder / f"Pulumi.{stack}.yaml").read_text())
    config = cast(dict[str, Any], loaded.get("config") or {})
    return [path for path, value in values.flatten(config) if value == PLACEHOLDER]


def without_secrets(settings: dict[str, Any]) -> dict[str, Any]:
    """A stack's settings with a placeholder for each secret and without the means to decrypt.

    The token of a team is often set by each person and not committed; a placeholder then stands
    for it, so that the preview does not stop at a setting that a reviewer cannot have.
    """
    config = cast(dict[str, Any], _masked(settings.get("config") or {}))
    if TOKEN not in config and TOKEN_ELSEWHERE not in config:
        config[TOKEN] = PLACEHOLDER
    kept = {key: settings[key] for key in settings if key == "environment"}
    return {**kept, "config": config}


def _masked(value: Any) -> Any:
    if isinstance(value, dict):
        mapping = cast(dict[str, Any], value)
        if set(mapping) == {"secure"}:
            return PLACEHOLDER
        return {key: _masked(item) for key, item in mapping.items()}
    if isinstance(value, list):
        return [_masked(item) for item in cast(list[Any], value)]
    return value
