"""A command in the foreground: its exit code is the one it ended with, whatever signals come."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator

import pytest

from sandbox.__main__ import attend


@pytest.fixture
def interruptible(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, bool]]:
    """Ctrl-C raises, as in any program, while `armed`; the others are for nobody in this process.

    The signals come from other processes: pytest itself would die of one that comes a moment early.
    """
    state = {"armed": False}

    def interrupt(number: int, frame: object) -> None:
        if state["armed"]:
            raise KeyboardInterrupt

    before = {n: signal.signal(n, interrupt) for n in (signal.SIGINT, signal.SIGTERM)}
    yield state
    for number, handler in before.items():
        signal.signal(number, handler)


def test_the_code_of_a_command_that_dies_of_ctrl_c_is_never_lost(interruptible: dict[str, bool]):
    """The terminal signals both at once; Popen.wait() lost about one code in eighty."""
    codes: list[int] = []
    for turn in range(200):
        process = subprocess.Popen(["sleep", "60"])

        def ctrl_c(process: subprocess.Popen[bytes] = process, turn: int = turn) -> None:
            time.sleep(0.005)
            os.kill(process.pid, signal.SIGINT)
            time.sleep(0.0002 * (turn % 10))
            os.kill(os.getpid(), signal.SIGINT)

        terminal = threading.Thread(target=ctrl_c)
        terminal.start()
        try:
            interruptible["armed"] = True
            codes.append(attend(process))
        except KeyboardInterrupt:  # before it waits, or after the command's end
            process.wait()
        finally:
            interruptible["armed"] = False
        terminal.join()
    assert len(codes) > 100
    assert set(codes) == {128 + signal.SIGINT}


def test_sigterm_is_handed_on_and_the_handlers_are_put_back(interruptible: dict[str, bool]):
    ask = f"trap 'exit 7' TERM; for _ in $(seq 600); do kill -TERM {os.getpid()}; sleep 0.05; done"
    as_nsenter = 'sh -c "$0"; exit $?'
    process = subprocess.Popen(["sh", "-c", as_nsenter, ask])
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert attend(process) == 7
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


@pytest.mark.parametrize("code", [0, 3])
def test_a_code_is_handed_through(code: int):
    assert attend(subprocess.Popen(["sh", "-c", f"exit {code}"])) == code
