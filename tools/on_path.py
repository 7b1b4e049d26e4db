"""The first way: a program that is on PATH already, in a version that fits."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from tools.recipe import OnPath, Tool, Version


class NotFit(Exception):
    """Why a tool cannot be taken from PATH."""


def parse_version(text: str) -> Version | None:
    """The first X.Y or X.Y.Z in a text, as numbers."""
    found = re.search(r"(?<![\d.])v?(\d+(?:\.\d+){1,2})", text)
    return tuple(int(part) for part in found[1].split(".")) if found else None


def fits(rule: OnPath, version: Version) -> bool:
    return rule.at_least <= version and version[: len(rule.below)] < rule.below


def search_path(own: Path) -> str:
    """PATH without our own folders of links: they are no find of the user's."""
    parts = os.environ.get("PATH", "").split(os.pathsep)
    return os.pathsep.join(p for p in parts if p and own not in Path(p).absolute().parents)


def find(tool: Tool, own: Path) -> dict[str, Path]:
    """Each program's path, all in one folder. Raises NotFit.

    A tool's programs must stand side by side, so that they are of one version.
    """
    if tool.on_path is None:
        raise NotFit("not looked for on PATH: it prints no version")
    first = shutil.which(tool.programs[0], path=search_path(own))
    if first is None:
        raise NotFit(f"{tool.programs[0]} is not on PATH")
    try:
        ran = subprocess.run(
            [first, *tool.on_path.command[1:]],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
            stdin=subprocess.DEVNULL,
            env=os.environ | {"PULUMI_SKIP_UPDATE_CHECK": "1"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotFit(f"{first} does not run: {error}") from error
    version = parse_version(ran.stdout + ran.stderr)
    if ran.returncode or version is None:
        raise NotFit(f"{first} does not tell its version")
    if not fits(tool.on_path, version):
        low, high = (".".join(map(str, v)) for v in (tool.on_path.at_least, tool.on_path.below))
        told = ".".join(map(str, version))
        raise NotFit(f"{first} is {told}; what fits is {low} or newer, before {high}")
    # Package managers link programs into one folder from several: the links' folder counts.
    found = {program: Path(first).parent / program for program in tool.programs}
    if absent := [name for name, path in found.items() if not os.access(path, os.X_OK)]:
        raise NotFit(f"{first} has no {', '.join(absent)} beside it")
    return found
