"""One container as a bubblewrap process: its file system, its user, its signals."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sandbox.api import Json
from sandbox.folder import REPOSITORY
from sandbox.images import BASE_PATH, Image
from sandbox.variables import ConfigurationError

SITE = "/opt/sandbox/site"  # sitecustomize.py, on PYTHONPATH
TOOLS = "/opt/sandbox/bin"  # what the image installs and this machine may lack, last on PATH
SHARED_MEMORY = 64 << 20  # bytes of /dev/shm, containerd's default
# By full path: the variables of a Popen are the container's, and so is the PATH it would search.
_NSENTER = shutil.which("nsenter") or "/usr/bin/nsenter"
_BWRAP = shutil.which("bwrap") or "/usr/bin/bwrap"
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_CONFIGURATION = ("ssl", "ca-certificates", "pki", "alternatives", "ld.so.cache", "ld.so.conf",
                  "ld.so.conf.d", "localtime", "mime.types", "protocols", "services")  # fmt: skip


@dataclass(frozen=True)
class Security:
    """The parts of a security context that the sandbox honours."""

    user: int
    group: int
    read_only_root: bool
    all_capabilities_dropped: bool


def security(container: Json, pod: Json, image: Image) -> Security:
    """The container's security context over the pod's over the image's USER."""
    merged: Json = {
        **(pod["spec"].get("securityContext") or {}),
        **(container.get("securityContext") or {}),
    }
    name, _, group_name = image.user.partition(":")
    user = merged.get("runAsUser")
    if user is None:
        if name.isdigit() or name in ("", "root"):
            user = int(name) if name.isdigit() else 0
        elif merged.get("runAsNonRoot"):
            raise ConfigurationError(
                f"container has runAsNonRoot and image has non-numeric user ({name}), cannot "
                "verify user is non-root"
            )
        else:
            user = 1000
    if merged.get("runAsNonRoot") and int(user) == 0:
        raise ConfigurationError("container has runAsNonRoot and image will run as root")
    group = merged.get("runAsGroup")
    if group is None:
        group = int(group_name) if group_name.isdigit() else 0
    dropped = (merged.get("capabilities") or {}).get("drop") or []
    return Security(
        user=int(user),
        group=int(group),
        read_only_root=bool(merged.get("readOnlyRootFilesystem")),
        all_capabilities_dropped="ALL" in dropped or int(user) != 0,
    )


def base_environment(image: Image, user: int, host_name: str) -> dict[str, str]:
    """What a container's variables start from; the virtual environment is part of the image."""
    path = image.environment.get("PATH", BASE_PATH)
    return {
        "HOME": "/root" if user == 0 else "/",
        **image.environment,
        "HOSTNAME": host_name,
        "PATH": f"{Path(sys.prefix) / 'bin'}:{path}:{TOOLS}",
    }


class Container:
    """A running container."""

    def __init__(
        self, popen: subprocess.Popen[bytes], inner: int, environment: Mapping[str, str]
    ) -> None:
        self._popen = popen
        self._environment = dict(environment)
        self._inner = inner  # pid 1 of the container, seen from here

    def wait(self) -> int:
        """Its exit code; 128 + N after signal N."""
        code = self._popen.wait()
        return 128 - code if code < 0 else code

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to its pid 1 (which may ignore SIGTERM, as in any container)."""
        try:
            os.kill(self._inner, number)
        except ProcessLookupError:
            self._popen.kill()

    def execute(self, command: list[str], timeout: float) -> int:
        """Run a command in the container, as `kubectl exec` does; 124 after `timeout` seconds."""
        join = [_NSENTER, f"--target={self._inner}", "--user", "--net", "--mount", "--pid",
                "--uts", "--ipc", "--preserve-credentials", "--wd=/", "--", *command]  # fmt: skip
        popen = subprocess.Popen(
            join, env=self._environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            return popen.wait(timeout)
        except subprocess.TimeoutExpired:
            os.killpg(popen.pid, signal.SIGKILL)
            popen.wait()
            return 124


def start(
    *,
    command: list[str],
    environment: Mapping[str, str],
    image: Image,
    container: Json,
    limits: Security,
    network: str,
    host_name: str,
    hosts: Path,
    mounts: list[str],
    scratch: Path,
    log: Path,
) -> Container:
    """Start a container in the network namespace `network`; its output goes to `log`.

    `scratch` is a folder of its own that is emptied at each start: what a container writes
    outside its volumes is lost when it restarts.
    """
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    report, write_end = os.pipe()
    workdir: str = container.get("workingDir") or image.workdir
    prefixes = sorted({sys.prefix, sys.base_prefix} - {"/usr"})
    words = [
        _NSENTER, f"--net=/run/netns/{network}", "--",
        _BWRAP, "--unshare-user", "--uid", str(limits.user), "--gid", str(limits.group),
        "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--hostname", host_name,
        "--as-pid-1", "--new-session", "--info-fd", str(write_end),
        *_root(image, limits, hosts, host_name, scratch),
        *mounts,
        # After the volumes: one mounted on a parent folder must not hide the image's packages.
        *(word for prefix in prefixes for word in ("--ro-bind", prefix, prefix)),
        *_read_only(image, limits),
        *(["--cap-drop", "ALL"] if limits.all_capabilities_dropped else []),
        "--chdir", workdir,
        "--", *command,
    ]  # fmt: skip
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        popen = subprocess.Popen(
            words, env=dict(environment), stdin=subprocess.DEVNULL, stdout=out,
            stderr=subprocess.STDOUT, pass_fds=(write_end,),
        )  # fmt: skip
    os.close(write_end)
    with os.fdopen(report) as pipe:
        text = pipe.read()
    inner = int(json.loads(text)["child-pid"]) if text else popen.pid
    return Container(popen, inner, environment)


def _root(image: Image, limits: Security, hosts: Path, host_name: str, scratch: Path) -> list[str]:
    """The container's file system: the system's programs and the image; nothing else of the host.

    The root is in memory and belongs to the container's user, so a folder that only root may
    write in the cloud can be written here unless the root is read-only.
    """
    words: list[str] = []
    for path in map(Path, _SYSTEM):
        if path.is_symlink():
            words += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            words += ["--ro-bind", str(path), str(path)]
    for name in _CONFIGURATION:
        if Path("/etc", name).exists():
            words += ["--ro-bind", f"/etc/{name}", f"/etc/{name}"]
    etc = scratch / "etc"
    etc.mkdir()
    home = image.environment.get("HOME", "/")
    users = [("root", 0, 0, "/root")]
    if limits.user != 0:
        users.append(("user", limits.user, limits.group, home))
    (etc / "passwd").write_text(
        "".join(f"{name}:x:{uid}:{gid}::{where}:/bin/sh\n" for name, uid, gid, where in users)
    )
    groups = {0: "root", limits.group: "root" if limits.group == 0 else "user"}
    (etc / "group").write_text("".join(f"{name}:x:{gid}:\n" for gid, name in groups.items()))
    (etc / "nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files\n")
    (etc / "hostname").write_text(f"{host_name}\n")
    for file in etc.iterdir():
        words += ["--ro-bind", str(file), f"/etc/{file.name}"]
    words += ["--ro-bind", str(hosts), "/etc/hosts"]
    words += ["--ro-bind", "/etc/resolv.conf", "/etc/resolv.conf"]
    words += ["--ro-bind", str(REPOSITORY / "sandbox/pod_site"), SITE]
    words += ["--ro-bind", str(REPOSITORY / "sandbox/pod_bin"), TOOLS]
    words += ["--proc", "/proc", "--dev", "/dev"]
    words += ["--perms", "1777", "--size", str(SHARED_MEMORY), "--tmpfs", "/dev/shm"]
    for folder in ("/run", "/var/tmp", "/root", "/home"):
        words += ["--dir", folder]
    if limits.read_only_root:
        words += ["--dir", "/tmp"]
    else:
        temporary = scratch / "tmp"
        temporary.mkdir()
        temporary.chmod(0o1777)
        words += ["--bind", str(temporary), "/tmp"]
    if image.workdir != "/":
        # A copy, so that bubblewrap can make mount points in it.
        shutil.copytree(image.files, scratch / "image", symlinks=True)
        words += ["--bind", str(scratch / "image"), image.workdir]
    return words


def _read_only(image: Image, limits: Security) -> list[str]:
    """Arguments that come after all mounts, whose mount points they would forbid to make."""
    if not limits.read_only_root:
        return []
    inner = ["--remount-ro", image.workdir] if image.workdir != "/" else []
    return [*inner, "--remount-ro", "/"]
