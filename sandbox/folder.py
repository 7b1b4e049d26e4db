"""The folder in which one sandbox keeps everything it has: data, logs, keys, Pulumi's home."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent


class SandboxError(RuntimeError):
    """Something the user can mend; the message says what to do."""


class SandboxBusyError(SandboxError):
    """Another process runs the sandbox of this folder."""


@dataclass(frozen=True)
class Folder:
    """Paths below `root`; nothing of a sandbox lies outside it."""

    root: Path

    @staticmethod
    def of(given: Path | str | None) -> Folder:
        """The given folder, else GEMMA_SANDBOX's, else `.sandbox` in the repository."""
        chosen = given or os.environ.get("GEMMA_SANDBOX") or REPOSITORY / ".sandbox"
        return Folder(Path(chosen).resolve())

    @property
    def etcd(self) -> Path:
        return self.root / "etcd"

    @property
    def pki(self) -> Path:
        return self.root / "pki"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def run(self) -> Path:
        """What is true only while the sandbox runs; emptied at each start."""
        return self.root / "run"

    @property
    def pods(self) -> Path:
        """Volumes of the pods, one folder for each pod's uid."""
        return self.root / "pods"

    @property
    def pod_logs(self) -> Path:
        return self.logs / "pods"

    @property
    def cloud(self) -> Path:
        """State of the stand-ins for Google's APIs."""
        return self.root / "cloud"

    @property
    def images(self) -> Path:
        """Unpacked container images, `sha256-<digest>/` each."""
        return self.root / "images"

    @property
    def bin(self) -> Path:
        return self.root / "bin"

    @property
    def pulumi_home(self) -> Path:
        return self.root / "pulumi-home"

    @property
    def pulumi_state(self) -> Path:
        return self.root / "pulumi"

    @property
    def kubeconfig(self) -> Path:
        return self.root / "kubeconfig"

    @property
    def hosts(self) -> Path:
        return self.run / "hosts"

    @property
    def running(self) -> Path:
        """JSON with the pid of the namespace and its environment, for processes that join it."""
        return self.run / "sandbox.json"

    @property
    def deploying(self) -> Path:
        """Exists while `pulumi up` or `destroy` of the demo is under way."""
        return self.root / "deploying"

    @property
    def clean_end(self) -> Path:
        """Written when a sandbox was stopped in order; absent while it runs and after a kill."""
        return self.root / "clean"

    def lock(self) -> int:
        """Take the folder for this process and those that inherit the descriptor returned.

        The lock lives as long as any of them, so whoever gets it knows that no process of an
        earlier sandbox is left.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        path = self.root / "lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise SandboxBusyError(
                f"the sandbox in {self.root} is already running{self._starter()}: end it with "
                "Ctrl-C where it was started, or set GEMMA_SANDBOX to another folder"
            ) from None
        if not path.exists() or not os.path.samestat(os.fstat(descriptor), path.stat()):
            os.close(descriptor)  # its holder removed the folder meanwhile
            return self.lock()
        return descriptor

    def _starter(self) -> str:
        """The process that started the sandbox, as far as it has said so."""
        try:
            return f" (process {json.loads(self.running.read_text())['starter']})"
        except (OSError, ValueError, KeyError):
            return ""

    def prepare(self) -> bool:
        """Make the folders; return True when an earlier sandbox was killed, not stopped.

        The caller holds the lock.
        """
        killed = self.etcd.exists() and not self.clean_end.exists()
        self.clean_end.unlink(missing_ok=True)
        # Left by a killed `pulumi up`: nobody holds them, since nobody else holds our lock.
        shutil.rmtree(self.pulumi_state / ".pulumi" / "locks", ignore_errors=True)
        shutil.rmtree(self.run, ignore_errors=True)
        for path in (self.run, self.logs, self.pod_logs, self.pods, self.cloud, self.images,
                     self.bin, self.pulumi_home, self.pulumi_state):  # fmt: skip
            path.mkdir(parents=True, exist_ok=True)
        return killed

    def clear(self) -> None:
        """Remove all state but the lock file, which the caller holds."""
        if not self.root.exists():
            return
        for path in self.root.iterdir():
            if path.name == "lock":
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()

    def remove(self) -> None:
        """Remove all of it; the caller holds the lock."""
        self.clear()
        (self.root / "lock").unlink()
        with contextlib.suppress(OSError):  # something else was put there since
            self.root.rmdir()
