"""Starts, joins and stops a sandbox from outside its namespaces."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from sandbox import namespace, surroundings
from sandbox.folder import REPOSITORY, Folder, SandboxBusyError, SandboxError

STOP_SECONDS = 20  # for an orderly stop; then everything is killed


class Sandbox:
    """A running stand-in cloud.

    Use it as a context manager. It ends with the process that started it, however that ends.
    """

    def __init__(
        self,
        folder: Path | str | None = None,
        *,
        run_pods: bool = True,
        kwok: bool = False,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        """`folder` keeps the state, `.sandbox` in the repository or GEMMA_SANDBOX by default.

        With `run_pods` false the node holds pods as Running and starts no process for them. With
        `kwok` nodes that carry the annotation `kwok.x-k8s.io/node: fake` are simulated.
        `progress` gets one line for each step.
        """
        self.folder = Folder.of(folder)
        self.was_killed = False  # whether an earlier sandbox in this folder was killed
        self._options = {"run_pods": run_pods, "kwok": kwok}
        self._progress: Callable[[str], None] = progress or (lambda text: None)
        self._process: subprocess.Popen[str] | None = None
        self._pid = 0
        self._failure = ""
        self._ended = threading.Event()
        self._cloud: dict[str, str] = {}

    def __enter__(self) -> Sandbox:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start everything; returns when it is ready.

        Raises SandboxBusyError when this folder's sandbox already runs and SandboxError, with the
        last log lines of the server concerned, when it cannot be started.
        """
        surroundings.require_virtual_environment()
        namespace.check(self._progress)
        lock = self.folder.lock()
        try:
            self.was_killed = self.folder.prepare()
            self._spawn(lock)
        finally:
            os.close(lock)  # the supervisor holds it from here on
        try:
            self._await_ready()
        except BaseException:
            self._kill()
            raise

    def _spawn(self, lock: int) -> None:
        command = [
            sys.executable, "-m", "sandbox.supervisor",
            str(self.folder.root), json.dumps(self._options),
        ]  # fmt: skip
        base = namespace.environment()
        base["PYTHONPATH"] = str(REPOSITORY)
        base["PATH"] = os.pathsep.join(
            [str(self.folder.bin), str(surroundings.binaries()), base["PATH"]]
        )
        with (self.folder.logs / "supervisor.log").open("wb") as log:
            self._process = subprocess.Popen(
                namespace.enter_command(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=base,
                cwd=REPOSITORY,
                pass_fds=(lock,),
                start_new_session=True,  # Ctrl-C is for us alone: we stop it in order
            )

    def _await_ready(self) -> None:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        while line := process.stdout.readline():
            message: dict[str, Any] = json.loads(line)
            match message["event"]:
                case "progress":
                    self._progress(message["text"])
                case "failed":
                    raise SandboxError(message["error"])
                case _:
                    self._cloud = message["environment"]
                    threading.Thread(target=self._listen, args=(process,), daemon=True).start()
                    break
        else:
            log = (self.folder.logs / "supervisor.log").read_text(errors="replace")
            raise SandboxError(f"the sandbox did not start:\n{log[-3000:]}")
        self._pid = namespace.first_child(process.pid) or 0
        running = {"pid": self._pid, "cloud": self._cloud, "starter": os.getpid()}
        self.folder.running.write_text(json.dumps(running))

    def _listen(self, process: subprocess.Popen[str]) -> None:
        """Read what the supervisor says from now on: nobody else empties its pipe."""
        assert process.stdout is not None
        with contextlib.suppress(ValueError):  # closed by _kill
            for line in process.stdout:
                message: dict[str, Any] = json.loads(line)
                if message["event"] == "failed":
                    self._failure = message["error"]
                else:
                    self._progress(message.get("text", ""))
        self._ended.set()

    @classmethod
    def join(cls, folder: Path | str | None = None) -> Sandbox:
        """The sandbox that another process runs in this folder; `stop` leaves it running."""
        sandbox = cls(folder)
        try:
            running = json.loads(sandbox.folder.running.read_text())
        except (OSError, ValueError):
            raise SandboxError(f"no sandbox is ready in {sandbox.folder.root}") from None
        sandbox._pid, sandbox._cloud = running["pid"], running["cloud"]
        return sandbox

    def stop(self) -> None:
        """Stop in order; whatever is left after STOP_SECONDS is killed."""
        process = self._process
        if process is None:
            return
        try:
            assert process.stdin is not None
            process.stdin.write("stop\n")
            process.stdin.flush()
            process.wait(STOP_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            pass
        finally:
            self._kill()

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()  # `unshare` takes the namespace's pid 1 along
        # With a limit: a Ctrl-C inside an earlier wait may have left Popen's lock taken for ever.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    @property
    def alive(self) -> bool:
        """Whether the sandbox that this object started still runs."""
        return self._process is not None and not self._ended.is_set()

    def why_dead(self) -> str:
        """What the sandbox said before it ended by itself."""
        return self._failure

    def environment(self) -> dict[str, str]:
        """All variables of a process in the sandbox: Pulumi, kubectl, Google's clients."""
        values = namespace.environment()
        return {**values, **surroundings.environment(self.folder, self._cloud)}

    def command(self, command: Sequence[str], cwd: Path | str | None = None) -> list[str]:
        """The command line that runs `command` inside; give it `environment()`."""
        return namespace.join_command(self._pid, command, str(cwd or Path.cwd()))

    def run(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | str | None = None,
        check: bool = True,
        capture: bool = True,
        timeout: float | None = None,
        input: str | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside, with `env` on top of `environment()`.

        With `check`, a failure raises SandboxError with the end of its output.
        """
        done = subprocess.run(
            self.command(command, cwd or REPOSITORY),
            env={**self.environment(), **(env or {})},
            capture_output=capture,
            text=True,
            timeout=timeout,
            input=input,
            check=False,
        )
        if check and done.returncode != 0:
            output = f"{done.stdout or ''}{done.stderr or ''}"[-6000:]
            raise SandboxError(f"{' '.join(command)} ended with {done.returncode}\n{output}")
        return done

    def popen(self, command: Sequence[str], **options: Any) -> subprocess.Popen[str]:
        """Start a command inside; `options` as for subprocess.Popen."""
        environment = {**self.environment(), **(options.pop("env", None) or {})}
        cwd = options.pop("cwd", None) or REPOSITORY
        return subprocess.Popen(self.command(command, cwd), env=environment, text=True, **options)

    def kubectl(self, *arguments: str, check: bool = True, input: str | None = None) -> str:
        """kubectl's standard output."""
        return self.run(["kubectl", *arguments], check=check, input=input).stdout

    def objects(self, *arguments: str) -> list[dict[str, Any]]:
        """The items of `kubectl get ARGUMENTS -o json`."""
        answer = json.loads(self.kubectl("get", *arguments, "-o", "json"))
        return cast("list[dict[str, Any]]", answer.get("items", [answer]))

    def cloud_state(self) -> list[dict[str, Any]]:
        """The resources that exist in the stand-in cloud."""
        from sandbox import cloud

        return cloud.state(self.folder.root)

    def processes(self) -> list[int]:
        """The pids, as this process sees them, of all that runs in the sandbox."""
        own = Path(f"/proc/{self._pid}/ns/pid").readlink()
        found: list[int] = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and (entry / "ns/pid").readlink() == own:
                    found.append(int(entry.name))
            except OSError:
                continue  # it has ended meanwhile
        return found


__all__ = ["Sandbox", "SandboxBusyError", "SandboxError"]
