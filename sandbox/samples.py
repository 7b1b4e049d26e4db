"""What a demo shows: which files lie in its bucket, and which settings its stack has."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sandbox.client import Sandbox
from sandbox.folder import REPOSITORY, Folder, SandboxError

BUCKET = "gs://gemma-samples"
CODE = REPOSITORY / "training" / "samples"


@dataclass(frozen=True)
class Show:
    """One demo.

    Attributes:
        name: the `make` command.
        module: writes the bucket's files: `python -m MODULE FOLDER`.
        sources: of what it writes, besides the locked packages.
        settings: of the stack.
    """

    name: str
    module: str
    sources: tuple[Path, ...]
    settings: Path


TINY = Show("demo", "training.samples.make", (CODE,), REPOSITORY / "Pulumi.sandbox.yaml")
REAL = Show(
    "demo-real",
    "sandbox.real",
    (CODE, REPOSITORY / "sandbox" / "real.py"),
    REPOSITORY / "Pulumi.sandbox-real.yaml",
)


class Samples:
    """Data and checkpoints: made while the servers start, then copied to the bucket."""

    def __init__(self, place: Folder, show: Show, say: Callable[[str], None]) -> None:
        self._say = say
        self._folder = place.root / "samples" / show.name
        self._done = self._folder / f"made-{_fingerprint(show.sources)}"
        self._process: subprocess.Popen[str] | None = None
        if self._done.exists():
            return
        say("making sample data and checkpoints")
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        quiet = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
        quiet |= {"TRANSFORMERS_VERBOSITY": "error", "TQDM_DISABLE": "1"}
        if not os.environ.get("HUB_MODEL"):
            quiet["HF_HUB_OFFLINE"] = "1"
        self._process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--",
             sys.executable, "-m", show.module, str(self._folder / "files")],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=quiet, cwd=REPOSITORY,
        )  # fmt: skip

    def __enter__(self) -> None:
        """Ends what is still being made when the block does."""

    def __exit__(self, *error: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()

    def upload(self, sandbox: Sandbox) -> None:
        """Wait for the files and copy them, unless the bucket has them."""
        if self._process is not None:
            output, _ = self._process.communicate()
            if self._process.returncode != 0:
                raise SandboxError(f"the sample data could not be made:\n{output[-3000:]}")
            self._done.touch()
        uploaded = sandbox.folder.root / f"uploaded-{self._folder.name}-{self._done.name}"
        if not uploaded.exists():
            self._say(f"copying them to {BUCKET}")
            files = str(self._folder / "files")
            sandbox.run([sys.executable, "-m", "sandbox.bucket", "upload", files, BUCKET])
            uploaded.touch()


def _fingerprint(sources: tuple[Path, ...]) -> str:
    digest = hashlib.sha256(os.environ.get("HUB_MODEL", "").encode())
    for source in sources:
        for path in sorted(source.rglob("*.py")) if source.is_dir() else [source]:
            digest.update(path.relative_to(REPOSITORY).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:12]
