"""Where tools lie: one folder in the user's cache, shared by all clones.

ROOT/NAME/KEY/bin/PROGRAM     a tool of one version, put there whole by one rename
ROOT/NAME/KEY/way.json        how it came here
ROOT/sets/SET/bin/PROGRAM     links to one version of each tool: the folder for PATH
ROOT/sets/SET/share/FOLDER    the same for data files
ROOT/tmp                      half-made things of the run that holds the lock
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.catalog import TOOLS
from tools.recipe import Tool


def root() -> Path:
    """$GEMMA_TOOLS, or gemma-gke/tools in the user's cache folder."""
    if chosen := os.environ.get("GEMMA_TOOLS"):
        return Path(chosen).expanduser().absolute()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser().absolute() / "gemma-gke" / "tools"


def tool_folder(base: Path, tool: Tool) -> Path:
    return base / tool.name / tool.key


def set_folder(base: Path, tools: tuple[Tool, ...] = TOOLS) -> Path:
    """The folder of links for exactly these pinned versions: another clone may pin others."""
    pins = "\n".join(f"{tool.name} {tool.key}" for tool in tools)
    return base / "sets" / hashlib.sha256(pins.encode()).hexdigest()[:12]


def installed(base: Path, tool: Tool) -> bool:
    """True when all programs are there; one from PATH must still be the file that was checked."""
    folder = tool_folder(base, tool)
    try:
        way = json.loads((folder / "way.json").read_text())
    except (OSError, ValueError):
        return False
    for program in tool.programs:
        path = folder / "bin" / program
        if not os.access(path, os.X_OK):
            return False
        known = way.get("mtime_ns", {}).get(program)
        if known is not None and path.stat().st_mtime_ns != known:
            return False
    return all((folder / "share" / name).is_dir() for name in tool.share)


def way_of(base: Path, tool: Tool) -> dict[str, object]:
    """What way.json says: `way` (path, download or build) and `source`."""
    return json.loads((tool_folder(base, tool) / "way.json").read_text())


def adopt(base: Path, tool: Tool, made: Path, way: dict[str, object]) -> None:
    """Move a complete folder to its place; before this rename nobody sees any of it."""
    for program in tool.programs:
        if not os.access(made / "bin" / program, os.X_OK):
            raise FileNotFoundError(f"{program} is missing in what was obtained for {tool.name}")
    (made / "way.json").write_text(json.dumps(way, indent=1))
    place = tool_folder(base, tool)
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.exists():  # incomplete or no longer valid, else it would not be made again
        aside = made.with_name(made.name + ".old")
        place.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)
    made.rename(place)


def link_set(base: Path, tools: tuple[Tool, ...] = TOOLS) -> Path:
    """Bring the links up to date with what is installed; returns the set's folder."""
    folder = set_folder(base, tools)
    for kind in ("bin", "share"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
    for tool in tools:
        if not installed(base, tool):
            continue
        for kind, names in (("bin", tool.programs), ("share", tool.share)):
            for name in names:
                _link(folder / kind / name, Path("../../..") / tool.name / tool.key / kind / name)
    return folder


def _link(link: Path, target: Path) -> None:
    if link.is_symlink() and link.readlink() == target:
        return
    fresh = link.with_name(f".{link.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.replace(link)


@contextmanager
def lock(base: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the cache for writing; a second process waits here, and says so once."""
    base.mkdir(parents=True, exist_ok=True)
    with (base / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another run is bringing tools into {base}; waiting for it to finish")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def scratch(base: Path) -> Iterator[Path]:
    """An empty folder for half-made things, gone afterwards; only for the holder of the lock.

    What a run that was killed outright left in it is removed first.
    """
    folder = base / "tmp"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
