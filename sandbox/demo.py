"""`make demo`: the whole way from an empty cloud to trained adapters, on this machine."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, cast

from sandbox.client import Sandbox
from sandbox.folder import Folder, SandboxBusyError, SandboxError
from sandbox.samples import TINY, Samples, Show

STACK = "sandbox"
CANCEL_SECONDS = 60
ENDING_SECONDS = CANCEL_SECONDS + 30
COLORS = ("\033[36m", "\033[35m", "\033[33m", "\033[32m")

NOTHING = re.compile(r"(?!)")
# Colours of its own that a program sends to no terminal, and Ray's sign of the worker that speaks.
SHADES = re.compile(r"\x1b\[[0-9;]*m|\(RayTrainWorker pid=\d+, ip=[\d.]+\) ?")


class Screen:
    """Prints lines of several writers, each with its name and the time since the start."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._color = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        self._names: list[str] = []

    def say(self, text: str, name: str = "demo") -> None:
        """One line."""
        with self._lock:
            if name not in self._names:
                self._names.append(name)
            seconds = int(time.monotonic() - self._began)
            head = f"{seconds // 60:2d}:{seconds % 60:02d} {name:<12}"
            if self._color:
                head = f"{COLORS[self._names.index(name) % len(COLORS)]}{head}\033[0m"
            print(f"{head} {text}", flush=True)

    def copy(
        self, process: subprocess.Popen[str], name: str, quiet: re.Pattern[str] = NOTHING
    ) -> None:
        """The output of a process until it closes it, without lines that match `quiet`."""
        assert process.stdout is not None
        for line in process.stdout:
            # A progress bar rewrites its line: only its last state is worth one here.
            text = line.rstrip().rsplit("\r", 1)[-1]
            text = SHADES.sub("", text)
            if text.strip() and not quiet.search(text):
                self.say(text, name)


def demo(folder: Path | None, show: Show = TINY, *, fresh: bool = False) -> int:
    """Deploy, train, fetch, report; returns the exit code."""
    screen = Screen()
    place = Folder(folder.resolve()) if folder else Folder.default()
    _recover(place, screen, fresh)
    samples = Samples(place, show, screen.say)
    sandbox = Sandbox(place.root, progress=lambda text: screen.say(text, "sandbox"))
    screen.say("starting the stand-in cloud; nothing leaves this machine")
    with samples, sandbox:
        if sandbox.was_killed:
            screen.say("an earlier demo was killed here; going on from what it left")
        samples.upload(sandbox)
        _deploy(sandbox, screen, show.settings)
        outputs = _outputs(sandbox)
        runs = cast("dict[str, dict[str, str]]", outputs["runs"])
        codes = _follow(sandbox, runs, screen)
        folders = _fetch(sandbox, runs, screen)
        print()
        sandbox.run(["pulumi", "stack", "output", "--stack", STACK], capture=False)
    return _summary(place, runs, codes, folders, show)


def _recover(place: Folder, screen: Screen, fresh: bool) -> None:
    """Start from nothing when asked to, or when a deployment was cut off half-way.

    A deployment that was killed has made things that its state does not know of: a stand-in cloud
    is quicker begun anew than repaired.
    """
    lock = _lock(place, screen)
    cut_off = place.deploying.exists()
    if cut_off:
        screen.say("an earlier demo was killed while it deployed; starting from an empty cloud")
    if fresh or cut_off:
        place.clear()
    os.close(lock)


def _lock(place: Folder, screen: Screen) -> int:
    """The folder's lock; one that was killed a moment ago is given time to end."""
    deadline = time.monotonic() + ENDING_SECONDS
    while True:
        try:
            return place.lock()
        except SandboxBusyError:
            if time.monotonic() > deadline:
                raise SandboxBusyError(
                    f"another sandbox runs in {place.root}; end it first, or set GEMMA_SANDBOX to "
                    "another folder"
                ) from None
        screen.say("waiting for an earlier sandbox in this folder to end")
        time.sleep(2)


def _deploy(sandbox: Sandbox, screen: Screen, settings: Path) -> None:
    screen.say("pulumi up: the same program as in the cloud, on the stack `sandbox`")
    # Left behind only by a kill: pulumi that ends by itself, well or badly, leaves a true state.
    sandbox.folder.deploying.touch()
    sandbox.run(["pulumi", "stack", "select", "--create", STACK])
    up = ["pulumi", "up", "--yes", "--skip-preview", "--non-interactive", "--stack", STACK]
    process = sandbox.popen(
        [*up, "--suppress-outputs", "--config-file", str(settings)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        screen.copy(process, "pulumi", quiet=re.compile(r"@ updating|creating \(\d+s\)$"))
        code = process.wait()
    except KeyboardInterrupt:  # pulumi has got it too, and ends what it has begun
        process.wait(CANCEL_SECONDS)
        sandbox.folder.deploying.unlink()
        raise
    sandbox.folder.deploying.unlink()
    if code != 0:
        raise SandboxError(f"pulumi up ended with {code}; its output is above")


def _outputs(sandbox: Sandbox) -> dict[str, Any]:
    return json.loads(sandbox.run(["pulumi", "stack", "output", "--json", "--stack", STACK]).stdout)


def _follow(sandbox: Sandbox, runs: dict[str, dict[str, str]], screen: Screen) -> dict[str, int]:
    """Show the logs of all runs until their end; returns their exit codes by name."""
    codes: dict[str, int] = {}

    def one(name: str) -> None:
        process = sandbox.popen(
            [sys.executable, "-m", "workloads.logs", runs[name]["id"]],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        screen.copy(process, name)
        codes[name] = process.wait()

    screen.say(f"following {' and '.join(runs)} to their end")
    threads = [threading.Thread(target=one, args=(name,), daemon=True) for name in runs]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        time.sleep(0.2)
        if not sandbox.alive:
            raise SandboxError(f"the sandbox has ended by itself\n{sandbox.why_dead()}")
    return codes


def _fetch(sandbox: Sandbox, runs: dict[str, dict[str, str]], screen: Screen) -> dict[str, Path]:
    """Copy what the runs left in the bucket to `outputs/`; returns their folders by name."""
    folders: dict[str, Path] = {}
    for name, run in runs.items():
        folder = sandbox.folder.root / "outputs" / name
        shutil.rmtree(folder, ignore_errors=True)
        _python(sandbox, "sandbox.bucket", "download", run["folder"], str(folder))
        folders[name] = folder
        screen.say(f"{name}: {run['folder']} is copied to {_short(folder)}")
    return folders


def _python(sandbox: Sandbox, module: str, *arguments: str) -> None:
    sandbox.run([sys.executable, "-m", module, *arguments])


def _summary(
    place: Folder,
    runs: dict[str, dict[str, str]],
    codes: dict[str, int],
    folders: dict[str, Path],
    show: Show,
) -> int:
    """Say how it went and what to do next."""
    print()
    good = True
    for name in runs:
        report = folders[name] / "report.html"
        if codes[name] == 0 and report.exists():
            print(f"  {name}: done. Its report, with loss curve and predictions: {_short(report)}")
            continue
        good = False
        print(f"  {name}: FAILED. Its logs: {_short(place.pod_logs)}/gemma_{name}-*")
    print("\nWhat next:")
    if good:
        again = f"make {show.name}"
        print(f"  {again:<32} again: nothing changes and nothing is retrained")
        print(f"  edit a learning rate in {show.settings.name}, {again}: that run is replaced")
    inside = ".venv/bin/python -m sandbox"
    print(f"  {inside} shell       a shell with pulumi and kubectl in the stand-in cloud")
    print(f"  {inside} exec -- pulumi destroy --stack {STACK}     tear the stack down")
    print("  make clean                       remove all that the demo left")
    print("  README.md, `Your project`         the same program on reserved B200s")
    return 0 if good else 1


def _short(path: Path) -> str:
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
