"""`make demo`: the whole way from an empty cloud to trained adapters, on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, cast

from sandbox import namespace
from sandbox.client import Sandbox
from sandbox.folder import Folder, SandboxBusyError, SandboxError
from sandbox.samples import TINY, Samples, Show
from sandbox.screen import Screen, of_pulumi, of_run

STACK = "sandbox"
CANCEL_SECONDS = 60
ENDING_SECONDS = CANCEL_SECONDS + 30


def demo(folder: Path | None, show: Show = TINY, *, fresh: bool = False) -> int:
    """Deploy, train, fetch, report; returns the exit code."""
    screen = Screen()
    place = Folder.of(folder)
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
    return _summary(place, outputs, codes, folders, show)


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
    said = False
    while True:
        try:
            return place.lock()
        except SandboxBusyError as error:
            if time.monotonic() > deadline:
                raise
            if not said:
                screen.say(f"{error}. Waiting {ENDING_SECONDS} s for its end.")
            said = True
        time.sleep(0.5)


def _deploy(sandbox: Sandbox, screen: Screen, settings: Path) -> None:
    screen.say("pulumi up: the same program as in the cloud, on the stack `sandbox`")
    sandbox.run(["pulumi", "stack", "select", "--create", STACK])
    # Left behind only by a kill: pulumi that ends by itself, well or badly, leaves a true state.
    sandbox.folder.deploying.touch()
    up = ["pulumi", "up", "--yes", "--skip-preview", "--non-interactive", "--stack", STACK]
    process = sandbox.popen(
        [*up, "--suppress-outputs", "--config-file", str(settings)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        screen.copy(process.stdout, "pulumi", of_pulumi)
        code = process.wait()
    except KeyboardInterrupt as interrupt:  # pulumi ends what it has begun
        if interrupt.args:  # not a Ctrl-C, which it has got by the terminal
            namespace.send_signal(process, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=CANCEL_SECONDS)
            sandbox.folder.deploying.unlink()
        raise
    sandbox.folder.deploying.unlink()
    if code != 0:
        raise SandboxError(f"pulumi up ended with {code}; its output is above")


def _outputs(sandbox: Sandbox) -> dict[str, Any]:
    return json.loads(sandbox.run(["pulumi", "stack", "output", "--json", "--stack", STACK]).stdout)


def _follow(sandbox: Sandbox, runs: dict[str, dict[str, str]], screen: Screen) -> dict[str, int]:
    """Show the logs of all runs until their end; returns their exit codes by name.

    Of a run that an earlier demo has trained nothing is left to be followed.
    """
    status = sandbox.run([sys.executable, "-m", "workloads.status", "--json"]).stdout
    over = {run["id"] for run in json.loads(status) if run["phase"] == "Succeeded"}
    codes = {name: 0 for name, run in runs.items() if run["id"] in over}
    for name in codes:
        screen.say(f"{name} ({runs[name]['id']}): already complete, not trained again")
    left = [name for name in runs if name not in codes]
    if not left:
        return codes

    def one(name: str) -> None:
        process = sandbox.popen(
            [sys.executable, "-m", "workloads.logs", runs[name]["id"]],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert process.stdout is not None
        screen.copy(process.stdout, name, of_run)
        codes[name] = process.wait()

    screen.say(f"following {' and '.join(left)} to the end")
    threads = [threading.Thread(target=one, args=(name,), daemon=True) for name in left]
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
        copy = [sys.executable, "-m", "sandbox.bucket", "download", run["folder"], str(folder)]
        sandbox.run(copy)
        folders[name] = folder
        screen.say(f"{name}: {run['folder']} is copied to {_short(folder)}")
    return folders


def _summary(
    place: Folder,
    outputs: dict[str, Any],
    codes: dict[str, int],
    folders: dict[str, Path],
    show: Show,
) -> int:
    """Say what there is, how it went and what to do next."""
    print()
    for name in ("cluster", "bucket", "image"):
        print(f"  {name:<8} {outputs[name]}")
    print()
    good = True
    for name, folder in folders.items():
        report = folder / "report.html"
        if codes[name] == 0 and report.exists():
            print(f"  {name}: done. Its report, with loss curve and predictions: {_short(report)}")
            continue
        good = False
        print(f"  {name}: FAILED. Its logs: {_short(place.pod_logs)}/gemma_{name}-*")
    print("\nWhat next:")
    if good:
        again = f"make {show.name}"
        print(f"  {again:<42} again: nothing changes and nothing is retrained")
        print(f"  edit a learning rate in {show.settings.name}, {again}: that run is replaced")
    for command, what in (
        (f"make status STACK={STACK}", "how the runs are doing, as for any stack"),
        (f"make logs STACK={STACK} RUN={next(iter(folders))}", "a run's log"),
        (f"make shell STACK={STACK}", "a shell with pulumi and kubectl in the stand-in cloud"),
        (f"make destroy STACK={STACK}", "tear the stack down"),
        ("make clean", "remove all that the demo left"),
        ("README.md, `Your project`", "the same program on reserved B200s"),
    ):
        print(f"  {command:<42} {what}")
    return 0 if good else 1


def _short(path: Path) -> str:
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
