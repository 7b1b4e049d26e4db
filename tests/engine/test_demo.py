"""The demo as a process: what happens to it when the command that started it is killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from sandbox.folder import REPOSITORY, Folder, SandboxBusyError

# As make does: start the demo and wait for it.
STARTER = "import subprocess, sys; subprocess.run([sys.executable, *sys.argv[1:]])"


def until(what: str, done: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.2)


def free(place: Folder) -> bool:
    try:
        os.close(place.lock())
    except SandboxBusyError:
        return False
    return True


def processes(place: Folder) -> list[str]:
    """Command lines that name the folder."""
    found: list[str] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().decode(errors="replace")
        except OSError:  # it has just ended
            continue
        if str(place.root) in line:
            found.append(line)
    return found


def test_a_demo_whose_starter_is_killed_ends_and_frees_its_folder(tmp_path: Path) -> None:
    place = Folder(tmp_path / "sandbox")
    demo = ["-m", "sandbox", "--folder", str(place.root), "demo"]
    with (tmp_path / "log").open("wb") as log:
        starter = subprocess.Popen(
            [sys.executable, "-c", STARTER, *demo],
            cwd=REPOSITORY,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    until("the servers run", place.running.exists)
    assert not free(place)
    starter.kill()
    starter.wait()
    until("the folder is free", lambda: free(place))
    until("its processes have ended", lambda: not processes(place))
