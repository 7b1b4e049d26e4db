"""Checkpoints in the run's folder: complete or not there, uploaded without stopping the step.

    checkpoints/step-000020/<files>           each node uploads the files on its own disk
    checkpoints/step-000020/part-A-1.json     what node 1 uploaded in attempt A, after its files
    checkpoints/step-000020/manifest.json     written last, by node 0, once all parts are there

Whatever lacks a manifest, or does not match it in size and SHA-256, was never a checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.common.storage import Folder

MANIFEST = "manifest.json"
STEP = re.compile(r"step-(\d+)$")


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint: its optimizer step and its files, {path: {"size", "sha256"}}."""

    step: int
    files: dict[str, dict[str, Any]]


class TornCheckpoint(RuntimeError):
    """Objects of a checkpoint do not match its manifest."""


class Checkpoints:
    """The checkpoints of one run.

    Args:
        folder: the run's folder.
        keep: how many complete ones stay; older ones are deleted.
        node: this machine's rank; node 0 writes the manifests.
        nodes: how many machines upload a part.
        attempt: a word that all nodes of one start share, so that a part left by an earlier one
            does not count.
        patience: seconds that node 0 waits for the other nodes' parts.
    """

    def __init__(
        self,
        folder: Folder,
        keep: int,
        *,
        node: int = 0,
        nodes: int = 1,
        attempt: str = "0",
        patience: float = 600,
    ) -> None:
        self.folder = Folder(f"{folder.uri}/checkpoints", dated=True)
        self.keep, self.node, self.nodes, self.patience = keep, node, nodes, patience
        self.attempt = attempt
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def start(
        self, local: str | os.PathLike[str], step: int, before: Callable[[], None] | None = None
    ) -> None:
        """Upload the local folder in the background; waits for the upload before it, if any.

        The files are hard-linked first, so that the trainer may delete its own copy at once.

        Args:
            local: the checkpoint.
            step: the optimizer step at which it was saved.
            before: called in the background first; if it fails, nothing is uploaded.

        Raises:
            Whatever the upload before it died of.
        """
        self.wait()
        source = Path(local)
        linked = source.with_name(f".uploading-{step}")
        shutil.rmtree(linked, ignore_errors=True)
        shutil.copytree(source, linked, copy_function=_link)

        def work() -> None:
            try:
                if before is not None:
                    before()
                self.upload(linked, step)
            except BaseException as error:
                self._error = error
                print(f"upload of step {step} failed: {error!r}", file=sys.stderr, flush=True)
            finally:
                shutil.rmtree(linked, ignore_errors=True)

        self._thread = threading.Thread(target=work, name=f"checkpoint-{step}")
        self._thread.start()

    def wait(self) -> None:
        """Wait for the upload under way and raise what it died of."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise RuntimeError("a checkpoint could not be uploaded") from error

    def upload(self, local: str | os.PathLike[str], step: int) -> None:
        """Upload the local folder as this node's part; on node 0, complete the checkpoint."""
        source, name = Path(local), f"step-{step:06d}"
        if self.node == 0:
            self.folder.delete(f"{name}/{MANIFEST}")  # incomplete while its files are replaced
        files = sorted(p for p in source.rglob("*") if p.is_file())
        part: dict[str, dict[str, Any]] = {}
        for path in files:
            relative = path.relative_to(source).as_posix()
            part[relative] = {"size": path.stat().st_size, "sha256": sha256(path)}
            self.folder.upload(path, f"{name}/{relative}")
        self.folder.write(self._part(name, self.node), json.dumps(part))
        if self.node == 0:
            self._complete(name, step)
            self.prune()

    def newest(self) -> Checkpoint | None:
        """The newest complete checkpoint, or None. Torn ones are passed over with a warning."""
        objects = self.folder.list()
        for name in _names(objects):
            checkpoint = self._read(name, objects)
            if checkpoint is not None:
                return checkpoint
        return None

    def download(self, checkpoint: Checkpoint, local: str | os.PathLike[str]) -> Path:
        """Copy a checkpoint to a local folder, checked against its manifest.

        Raises:
            TornCheckpoint: an object differs from what was written.
        """
        target, name = Path(local), f"step-{checkpoint.step:06d}"
        for path, want in checkpoint.files.items():
            place = target / path
            if place.is_file() and sha256(place) == want["sha256"]:
                continue
            self.folder.download(f"{name}/{path}", place)
            if sha256(place) != want["sha256"]:
                place.unlink()
                raise TornCheckpoint(f"{self.folder.uri}/{name}/{path} differs from its manifest")
        return target

    def restore(self, local: str | os.PathLike[str]) -> Checkpoint | None:
        """Download the newest checkpoint that is whole; a torn one is deleted and passed over."""
        while (checkpoint := self.newest()) is not None:
            try:
                self.download(checkpoint, local)
            except TornCheckpoint as error:
                print(f"checkpoint passed over: {error}", file=sys.stderr, flush=True)
                shutil.rmtree(local, ignore_errors=True)
                self.folder.delete(f"step-{checkpoint.step:06d}")
            else:
                return checkpoint
        return None

    def prune(self) -> None:
        """Delete complete checkpoints beyond the newest `keep`, and torn ones older than those."""
        objects = self.folder.list()
        names = _names(objects)
        kept = [name for name in names if self._read(name, objects) is not None][: self.keep]
        for name in names:
            if kept and name < kept[0] and name not in kept:
                self.folder.delete(name)

    def _read(self, name: str, objects: dict[str, int]) -> Checkpoint | None:
        if f"{name}/{MANIFEST}" not in objects:
            return None
        try:
            manifest = json.loads(self.folder.read(f"{name}/{MANIFEST}"))
            found = Checkpoint(int(manifest["step"]), manifest["files"])
        except (FileNotFoundError, ValueError, KeyError):
            return None
        for path, want in found.files.items():
            if objects.get(f"{name}/{path}") != want["size"]:
                print(f"checkpoint {name} passed over: torn at {path}", file=sys.stderr)
                return None
        return found

    def _part(self, name: str, node: int) -> str:
        return f"{name}/part-{self.attempt}-{node}.json"

    def _complete(self, name: str, step: int) -> None:
        files: dict[str, dict[str, Any]] = {}
        limit = time.monotonic() + self.patience
        for node in range(self.nodes):
            path = self._part(name, node)
            while not self.folder.exists(path):
                if time.monotonic() > limit:
                    raise TimeoutError(f"node {node} did not upload its part of {name}")
                time.sleep(0.5)
            files.update(json.loads(self.folder.read(path)))
        self.folder.write(f"{name}/{MANIFEST}", json.dumps({"step": step, "files": files}))


def restore_on_all(
    checkpoints: Checkpoints,
    local: str | os.PathLike[str],
    rank: int,
    local_rank: int,
    device: Any = None,
) -> Checkpoint | None:
    """The newest whole checkpoint in a local folder, the same one on every rank, or None.

    Rank 0 chooses and tells the others: what a lost pod's upload still ends, one machine may see
    and another not. One process of each machine downloads.
    """
    import torch.distributed as dist

    chosen: list[Any] = [checkpoints.restore(local) if rank == 0 else None]
    if dist.is_initialized():
        dist.broadcast_object_list(chosen, src=0, device=device)
    if chosen[0] is not None and local_rank == 0 and rank != 0:
        checkpoints.download(chosen[0], local)
    if dist.is_initialized():
        dist.barrier()
    return chosen[0]


def _names(objects: dict[str, int]) -> list[str]:
    """Folders of checkpoints, the newest first."""
    names = {path.split("/", 1)[0] for path in objects if "/" in path}
    return sorted((name for name in names if STEP.match(name)), reverse=True)


def sha256(path: Path) -> str:
    """Hex digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copy2(source, target)
