"""What the demo shows: lines of several writers, without what only their own developers read."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator

COLORS = ("\033[36m", "\033[35m", "\033[33m", "\033[32m")
COLOR = re.compile(r"\x1b\[[0-9;]*m")  # of its own, which a program sends to no terminal
SPEAKER = re.compile(r"\((?:RayTrainWorker|TrainController) pid=\d+(?:, ip=\S+)?\) ?")
# Libraries that talk to themselves; whatever tells of a failure stays.
CHATTER = re.compile(
    r"(?:INFO|SUCC)\t? *(?:cli|sdk|worker|job_manager)\.py:\d+"
    r"|core_worker\.cc:\d+: Actor with class name: 'PreemptionWatcher'"
    r"|Loading weights: +\d+%|^\s*Reporting training result \d+:|^\s*Requesting resources:"
    r"|^\s*Attempting to start training worker group|^\s*- \(ip=|Setting up process group for"
    r"|Failed to load CPU gemm_4bit_forward|UserWarning: Could not find a config file in"
    r"|^\s*warnings\.warn\($"
)
# A message of the program itself, which pulumi shows as the stack's state, or a resource's way.
MESSAGE = re.compile(r"pulumi:pulumi:Stack \S+ (?:\w+ )?\(\d+s\) (?P<text>\S.*)$")
UNDER_WAY = re.compile(
    r" @ updating|(?:creating|updating|deleting|replacing)(?: \w+)? \(\d+s\)"
    r"|pulumi:pulumi:Stack \S+$"
)


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
        self, lines: Iterable[str], name: str, chosen: Callable[[Iterable[str]], Iterator[str]]
    ) -> None:
        """What `chosen` leaves of a program's output."""
        for text in chosen(lines):
            self.say(text, name)


def of_run(lines: Iterable[str]) -> Iterator[str]:
    """A run's log, without the chatter of the libraries."""
    for line in lines:
        # A progress bar rewrites its line: only its last state is worth one here.
        text = SPEAKER.sub("", COLOR.sub("", line.rstrip().rsplit("\r", 1)[-1]))
        if text.strip() and not CHATTER.search(text):
            yield text


def of_pulumi(lines: Iterable[str]) -> Iterator[str]:
    """A deployment's output: what came of each resource, and each message once."""
    told: set[str] = set()
    diagnostics: list[str] | None = None
    for line in lines:
        text = COLOR.sub("", line.rstrip())
        if text.strip() == "Diagnostics:":
            diagnostics = []
        elif diagnostics is not None and text.strip() != "Resources:":
            diagnostics.append(text)
        elif text.strip():
            yield from _untold(diagnostics or [], told)
            diagnostics = None
            if message := MESSAGE.search(text):
                told.add(message["text"].strip())
                if not re.fullmatch(r"\d+ messages?", message["text"]):
                    yield message["text"]
            elif not UNDER_WAY.search(text):
                yield text
    yield from _untold(diagnostics or [], told)


def _untold(diagnostics: list[str], told: set[str]) -> Iterator[str]:
    """The diagnostics that were not shown as they came, each below its resource."""
    resource = ""
    for text in diagnostics:
        if re.fullmatch(r"  \S+ \(.+\):", text):
            resource = text
        elif text.strip() and text.strip() not in told:
            if resource:
                yield resource
            resource = ""
            yield text
