"""One user, network, mount and process namespace for a whole sandbox.

Everything that runs in it dies with its pid 1, no port of the host is taken, and there is no way
out to a network. No root is needed where the kernel lets users make namespaces.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sandbox.folder import SandboxError

# program -> Debian package
PROGRAMS = {
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "mount": "mount",
    "ip": "iproute2",
    "bwrap": "bubblewrap",
}


def check(progress: Callable[[str], None]) -> None:
    """Raise SandboxError where no sandbox can be made; as root, install what is missing."""
    missing = sorted({package for program, package in PROGRAMS.items() if not _find(program)})
    if missing and os.geteuid() == 0 and shutil.which("apt-get"):
        progress(f"installing {' '.join(missing)} with apt-get")
        _install(missing)
        missing = sorted({package for program, package in PROGRAMS.items() if not _find(program)})
    if missing:
        raise SandboxError(
            f"the sandbox needs the Debian packages {', '.join(missing)}: "
            f"run `sudo apt-get install {' '.join(missing)}`, or your system's counterpart"
        )
    trial = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--net", "--mount", "--pid", "--fork",
         "--mount-proc", "ip", "link", "set", "lo", "up"],
        capture_output=True, text=True, env=environment(), check=False,
    )  # fmt: skip
    if trial.returncode != 0:
        raise SandboxError(
            f"this machine lets you make no user namespace ({trial.stderr.strip()}). Switch it on "
            "with `sudo sysctl kernel.unprivileged_userns_clone=1` (Debian), "
            "`sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0` (Ubuntu 24.04 and "
            "later) or `sudo sysctl user.max_user_namespaces=10000`; in a container start it with "
            "`--privileged`; or run as root"
        )


def enter_command(command: Sequence[str]) -> list[str]:
    """The command line that runs `command` as pid 1 of new namespaces.

    When the process that starts it dies, so does `unshare` (setpriv), and with it pid 1
    (--kill-child), and with that every process inside.
    """
    # The kernel's death signal is tied to the thread that forked: a helper thread that ends
    # early would take the sandbox along. The control pipe covers that case (supervisor.py).
    main = threading.current_thread() is threading.main_thread()
    return [
        *(["setpriv", "--pdeathsig", "KILL", "--"] if main else []),
        "unshare", "--user", "--map-root-user", "--net", "--mount", "--pid", "--uts", "--ipc",
        "--fork", "--kill-child=KILL", "--mount-proc", "--",
        *command,
    ]  # fmt: skip


def join_command(pid: int, command: Sequence[str], cwd: str) -> list[str]:
    """The command line that runs `command` in the namespaces of `pid`."""
    # nsenter waits for the command. Were it to die of a Ctrl-C, which reaches both, a command that
    # first ends what it has begun (pulumi) would be cut off in it, and its exit code be lost.
    # nsenter's own --wd opens the folder in the old mount namespace, where getcwd() then fails.
    return [
        "env", "--ignore-signal=INT,TERM",
        "nsenter", f"--target={pid}", "--user", "--net", "--mount", "--pid", "--uts", "--ipc",
        "--preserve-credentials", "--",
        "env", "--default-signal=INT,TERM", f"--chdir={cwd}", *command,
    ]  # fmt: skip


def send_signal(joined: subprocess.Popen[Any], number: int) -> None:
    """Signal the command that `join_command` runs; nothing where it has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(first_child(joined.pid) or joined.pid, number)


def first_child(pid: int) -> int | None:
    """The host's pid of the only child of `pid`: pid 1 of the namespace below `unshare`."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return None
    return int(children[0]) if children else None


def environment() -> dict[str, str]:
    """This process's environment with the system's programs on PATH and no proxies."""
    values = {
        name: value
        for name, value in os.environ.items()
        if not name.lower().endswith("_proxy") and not name.startswith(("PULUMI_", "KUBE"))
    }
    # A user's PATH on Debian lacks the sbin folders, where `ip` lives.
    values["PATH"] = f"{values.get('PATH', '/usr/bin:/bin')}:/usr/sbin:/sbin"
    return values


def _find(program: str) -> str | None:
    return shutil.which(program, path=environment()["PATH"])


def _install(packages: Sequence[str]) -> None:
    command = ["apt-get", "install", "--yes", "--no-install-recommends", *packages]
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for step in (command, ["apt-get", "update"], command):
        done = subprocess.run(step, env=quiet, capture_output=True, check=False)
        if step is command and done.returncode == 0:
            return
