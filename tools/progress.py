"""Says what is being done and how long is left: one line that renews itself, or one every 10 s."""

from __future__ import annotations

import sys
import time
from typing import TextIO

EVERY_S = 10.0  # between two lines in a log
EVERY_TTY_S = 0.5


def duration(seconds: float) -> str:
    """3 s, 4m10s, 12 min: as exact as it deserves."""
    seconds = max(0, round(seconds))
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 600:
        return f"{seconds // 60}m{seconds % 60:02d}s"
    return f"{round(seconds / 60)} min"


class Progress:
    """Lines on stderr, so that stdout stays for what a caller wants to read."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._tty = self._stream.isatty()
        self._last = 0.0
        self._open = False

    def say(self, text: str) -> None:
        """A line that stays."""
        self._clear()
        print(f"[tools] {text}", file=self._stream, flush=True)

    def tick(self, text: str) -> None:
        """Where things stand; shown only when the last showing is long enough ago."""
        now = time.monotonic()
        if now - self._last < (EVERY_TTY_S if self._tty else EVERY_S):
            return
        self._last = now
        if self._tty:
            self._clear()
            print(f"[tools] {text}"[:120], end="", file=self._stream, flush=True)
            self._open = True
        else:
            print(f"[tools] {text}", file=self._stream, flush=True)

    def _clear(self) -> None:
        if self._open:
            print("\r\x1b[K", end="", file=self._stream)
            self._open = False


class Estimate:
    """Time left of a build whose work is known in bytes of source.

    It starts from the measured speed and moves to the speed of this machine as work gets done.
    """

    def __init__(self, total: float, later: float, seconds_per_unit: float) -> None:
        self._total = total
        self._later = later  # work of the builds after this one
        self._guess = seconds_per_unit
        self._start = time.monotonic()
        self.done = 0.0

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._start

    def left(self) -> float:
        """Seconds until everything is built, this build and the later ones."""
        speed = self._guess
        if self.done > 0 and self.elapsed > 5:
            trust = min(1.0, self.done / self._total * 5)  # fully after a fifth of the work
            speed = (1 - trust) * self._guess + trust * self.elapsed / self.done
        return speed * (max(0.0, self._total - self.done) + self._later)
