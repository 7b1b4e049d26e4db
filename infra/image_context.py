"""The build context of the trainer image: a tarball that depends on its content and nothing else.

Its hash is the image's tag and a part of every run's id, so it must not change with the machine,
the checkout's path, file times or the compression library.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent
DOCKERFILE = "training/Dockerfile"
REQUIREMENTS = "requirements/training.txt"
TAG_DIGITS = 12

# What no trainer imports: a change there must not give a new image, which would train anew.
_EXCLUDED_FOLDERS = frozenset({"__pycache__", "samples", "tests"})
_SUFFIXES = frozenset({".py", ".yaml", ".json", ".jinja", ".html", ".txt", ".css", ".js"})


@dataclass(frozen=True)
class Context:
    """A build context.

    Attributes:
        tarball: gzipped tar, Dockerfile at its root.
        sha256: of the tar before compression, in hex.
        commit: that the files are from (`commit_of`), empty where it is unknown. It is told to the
            image and no part of its identity.
    """

    tarball: bytes
    sha256: str
    commit: str = ""

    @property
    def tag(self) -> str:
        """The tag of the image that is built from it, such as ctx-0123456789ab."""
        return f"ctx-{self.sha256[:TAG_DIGITS]}"


def build_context(root: Path = ROOT) -> Context:
    """Packs `training/`, the locked requirements and the Dockerfile of the program in `root`.

    Raises FileNotFoundError where one of them is absent.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, path in sorted(_files(root)):
            data = path.read_bytes()
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o644
            archive.addfile(info, io.BytesIO(data))
    plain = buffer.getvalue()
    return Context(gzip.compress(plain, mtime=0), hashlib.sha256(plain).hexdigest())


def commit_of(root: Path) -> str:
    """The commit of the repository at `root`; empty where there is none.

    It ends with `-dirty` where a file that an image is made of differs or is not in git. Others do
    not count: a stack's settings are rarely committed.
    """

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        commit = git("rev-parse", "HEAD")
        # Not `git describe --dirty`, which overlooks files that nobody has added.
        made_of = ("training", ":(exclude)training/samples", REQUIREMENTS)
        differs = git("status", "--porcelain", "--", *made_of)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return f"{commit}-dirty" if differs else commit


def _files(root: Path) -> Iterator[tuple[str, Path]]:
    """Names in the tarball with the files that they come from."""
    yield "Dockerfile", root / DOCKERFILE
    yield REQUIREMENTS, root / REQUIREMENTS
    for path in (root / "training").rglob("*"):
        name = PurePosixPath(path.relative_to(root).as_posix())
        hidden = any(part.startswith(".") for part in name.parts)
        if hidden or _EXCLUDED_FOLDERS.intersection(name.parts) or not path.is_file():
            continue
        if path.suffix in _SUFFIXES:
            yield str(name), path
