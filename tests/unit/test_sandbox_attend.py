"""A command in the foreground: its exit code is the one it ended with, whatever signals come."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time

import pytest

from sandbox.__main__ import attend


def test_the_code_of_a_command_that_dies_of_ctrl_c_is_never_lost():
    """The terminal signals both at once; Popen.wait() lost about one code in eighty."""
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
            code = attend(process)
            terminal.join()
        except KeyboardInterrupt:  # it came after the command's end
            terminal.join()
            continue
        assert code == 128 + signal.SIGINT


def test_sigterm_is_handed_on_and_the_handlers_are_put_back():
    command = f"trap 'exit 7' TERM; kill -TERM {os.getpid()}; sleep 60 & wait"
    process = subprocess.Popen(["sh", "-c", f'sh -c "{command}"; exit $?'])  # as nsenter would
    before = signal.getsignal(signal.SIGTERM)
    assert attend(process) == 7
    assert signal.getsignal(signal.SIGTERM) is before
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("code", [0, 3])
def test_a_code_is_handed_through(code: int):
    assert attend(subprocess.Popen(["sh", "-c", f"exit {code}"])) == code
