"""`python -m sandbox demo | exec -- COMMAND... | shell | clean`."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sandbox import namespace
from sandbox.client import Sandbox
from sandbox.folder import Folder, SandboxBusyError, SandboxError


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m sandbox", description=__doc__)
    parser.add_argument("--folder", type=Path, help="state folder, GEMMA_SANDBOX or .sandbox")
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser("demo", help="deploy the sandbox stack, follow both runs")
    demo.add_argument("--fresh", action="store_true", help="forget an earlier demo first")
    demo.add_argument("--real", action="store_true", help="with the real Gemma 3 270M")
    inside = commands.add_parser("exec", help="run a command inside")
    inside.add_argument(
        "--existing", action="store_true", help="only where a sandbox has state; start no new one"
    )
    inside.add_argument("words", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    commands.add_parser("shell", help="a shell inside")
    commands.add_parser("clean", help="remove the sandbox's state")
    given = parser.parse_args(arguments)
    # A closed terminal and `kill` end the sandbox in order, as Ctrl-C does.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        match given.command:
            case "demo":
                from sandbox import samples
                from sandbox.demo import demo as run_demo

                _end_with_starter()
                show = samples.REAL if given.real else samples.TINY
                return run_demo(given.folder, show, fresh=given.fresh)
            case "exec":
                words: list[str] = given.words
                words = words[1:] if words[:1] == ["--"] else words
                if not words:
                    parser.error("exec: which command?")
                if given.existing:
                    _require_state(given.folder)
                return _inside(given.folder, words)
            case "shell":
                return _inside(given.folder, [os.environ.get("SHELL", "/bin/sh")])
            case _:
                return _clean(given.folder)
    except SandboxError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        again = "; `make demo` goes on from here" if given.command == "demo" else ""
        print(f"interrupted; everything in the sandbox has ended{again}", file=sys.stderr)
        return 130


def _end_with_starter() -> None:
    """Be told to end (SIGTERM) when `make` is killed: nobody would watch the demo any more."""
    set_parent_death_signal = 1  # linux/prctl.h
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)


@contextlib.contextmanager
def running(folder: Path | None) -> Iterator[Sandbox]:
    """The sandbox of this folder: the one that runs, or one that ends with the block."""
    sandbox = Sandbox(folder, progress=lambda text: print(f"[sandbox] {text}", file=sys.stderr))
    try:
        sandbox.start()
    except SandboxBusyError:
        sandbox = Sandbox.join(folder)
    try:
        yield sandbox
    finally:
        sandbox.stop()


def _inside(folder: Path | None, words: list[str]) -> int:
    with running(folder) as sandbox:
        return attend(subprocess.Popen(sandbox.command(words), env=sandbox.environment()))


def attend(joined: subprocess.Popen[Any]) -> int:
    """Wait for a command inside, which decides what a signal does; its exit code.

    Ctrl-C reaches it by the terminal; SIGTERM is handed on.
    """
    # No exception may come out of a signal here: between the kernel's answer and Popen's note of
    # it the exit code would be lost, and the next wait() would take it for 0.
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, lambda *_: None),
        signal.SIGTERM: signal.signal(
            signal.SIGTERM, lambda number, _: namespace.send_signal(joined, number)
        ),
    }
    try:
        code = joined.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 128 - code if code < 0 else code


def _require_state(folder: Path | None) -> None:
    place = Folder.of(folder)
    if not place.etcd.exists():
        raise SandboxError(f"no demo has run in {place.root}: `make demo` first")


def _clean(folder: Path | None) -> int:
    place = Folder.of(folder)
    if not place.root.exists():
        print(f"nothing to remove: no sandbox in {place.root}")
        return 0
    lock = place.lock()
    place.remove()
    os.close(lock)
    print(f"removed {place.root}: the stand-in cloud, its runs and their outputs")
    return 0


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt(signal.Signals(number))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
