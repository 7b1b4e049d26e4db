"""Servers as child processes: log files, readiness by asking them, errors that show the log."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sandbox.folder import Folder, SandboxError


class ServerError(SandboxError):
    """A server died or did not become ready; the message ends with its last log lines."""


class Process:
    """One server."""

    def __init__(
        self, name: str, start: Callable[[], subprocess.Popen[bytes]], log: Path, grace: float
    ) -> None:
        self.name = name
        self.log = log
        self.grace = grace
        self.popen = start()
        self._start = start
        self.stopping = False

    @property
    def alive(self) -> bool:
        return self.popen.poll() is None

    def stop(self) -> None:
        """SIGTERM, then SIGKILL after its grace."""
        self.stopping = True
        if not self.alive:
            return
        self.popen.terminate()
        try:
            self.popen.wait(self.grace)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()

    def start_again(self) -> None:
        """After its death."""
        self.popen = self._start()

    def tail(self, lines: int = 15) -> str:
        """The end of its log."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(line[:400] for line in text.splitlines()[-lines:])


class Supervisor:
    """Starts servers inside the namespace and ends the sandbox when one of them dies."""

    def __init__(self, folder: Folder, progress: Callable[[str], None]) -> None:
        self.folder = folder
        self.progress = progress
        self.failure = threading.Event()
        self.failed_because = ""
        self._processes: list[Process] = []

    def spawn(
        self,
        name: str,
        command: Sequence[str | os.PathLike[str]],
        *,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        ready: Callable[[], bool] | None = None,
        timeout: float = 60,
        restart: bool = False,
        grace: float = 5,
    ) -> Process:
        """Start a server and wait until `ready` says yes (exceptions in it count as no).

        Its output goes to `<folder>/logs/<name>.log`. Raises ServerError when it dies or is not
        ready within `timeout` seconds. Its later death ends the sandbox, unless `restart` is
        true: then it is started again, as a Deployment's pod would be. It is given `grace` seconds
        to end when the sandbox does.
        """
        log = self.folder.logs / f"{name}.log"
        log.unlink(missing_ok=True)

        def start() -> subprocess.Popen[bytes]:
            with log.open("ab") as out:
                return subprocess.Popen(
                    [os.fspath(part) for part in command],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **(environment or {})},
                    cwd=cwd or self.folder.root,
                )

        try:
            process = Process(name, start, log, grace)
        except FileNotFoundError as error:
            raise ServerError(f"{error.filename} is missing: run `make tools`") from None
        self._processes.append(process)
        threading.Thread(target=self._watch, args=(process, restart), daemon=True).start()
        if ready is not None:
            self.wait(process, ready, timeout)
        return process

    def wait(self, process: Process, ready: Callable[[], bool], timeout: float = 60) -> None:
        """Poll `ready` until it is true."""
        deadline = time.monotonic() + timeout
        while True:
            if _true(ready):
                return
            if not process.alive:
                raise ServerError(self._death(process))
            if time.monotonic() > deadline:
                raise ServerError(
                    f"{process.name} was not ready after {timeout:.0f} s; "
                    f"the end of {process.log}:\n{process.tail()}"
                )
            time.sleep(0.05)

    def stop_all(self) -> None:
        """Stop the servers in reverse order of their start."""
        for process in self._processes:
            process.stopping = True
        for process in reversed(self._processes):
            process.stop()

    def _watch(self, process: Process, restart: bool) -> None:
        process.popen.wait()
        while restart and not process.stopping:
            self.progress(f"{process.name} has died and is started again")
            time.sleep(1)
            process.start_again()
            process.popen.wait()
        if not process.stopping:
            self.failed_because = self._death(process)
            self.failure.set()

    def _death(self, process: Process) -> str:
        code = process.popen.returncode
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return f"{process.name} ended with {how}; the end of {process.log}:\n{process.tail()}"


def _true(check: Callable[[], bool]) -> bool:
    try:
        return check()
    except Exception:  # any failure of a probe means "not yet"
        return False
