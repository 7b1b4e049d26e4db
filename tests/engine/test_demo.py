"""The demo as a process: what happens to it when the command that started it is killed."""

from __future__ import annotations

import json
import os
import re
import signal
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


def test_a_demo_interrupted_while_it_deploys_leaves_a_true_state(tmp_path: Path) -> None:
    place = Folder(tmp_path / "sandbox")
    demo = [sys.executable, "-m", "sandbox", "--folder", str(place.root), "demo"]
    known: list[int] = []
    for ctrl_c in (True, False):
        process = subprocess.Popen(
            demo,
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        assert process.stdout is not None
        said: list[str] = []
        for line in process.stdout:
            said.append(line)
            if sum("created" in line for line in said) == 4:
                os.killpg(process.pid, signal.SIGINT) if ctrl_c else process.terminate()
                break
        said.append(process.communicate(timeout=120)[0])
        assert process.returncode == 130, "".join(said)
        assert not re.search("empty cloud|following", "".join(said))
        (state,) = place.root.glob("pulumi/.pulumi/stacks/*/sandbox.json")
        latest = json.loads(state.read_text())["checkpoint"]["latest"]
        assert not latest.get("pending_operations")
        assert not [path for path in state.parents[2].glob("locks/**/*") if path.is_file()]
        known.append(len(latest["resources"]))
    assert known[0] < known[1]
