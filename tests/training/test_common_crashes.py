"""A crash at every single call to the bucket, while saving, pruning and resuming.

The bucket is fsspec's own in memory, behind the calls that Cloud Storage gets; a call dies before
it did anything, after it did all, or half-way, as a store that shows half an object would let it.
"""

import contextlib
import errno
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from tests.training.saved import FILES, local
from training.common import checkpoints as module
from training.common import storage
from training.common.checkpoints import Checkpoints
from training.common.storage import Folder

WAYS = ("before", "after", "half")


class Crash(BaseException):
    """As SIGKILL: nothing may catch it."""


class Bucket:
    """A bucket in memory whose n-th call that changes or reads an object meets `fate`."""

    def __init__(self) -> None:
        self.files = MemoryFileSystem()
        self.files.store.clear()
        self.at, self.way, self.fate = -1, "before", Crash
        self.calls = 0

    def fail(self, at: int, way: str, fate: Any = Crash) -> None:
        self.at, self.way, self.fate, self.calls = at, way, fate, 0

    def find(self, prefix: str, **more: Any) -> Any:
        return {name.lstrip("/"): info for name, info in self.files.find(prefix, **more).items()}

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.files, name)
        if name not in ("pipe_file", "put_file", "rm_file", "get_file"):
            return real

        def call(*arguments: Any, **more: Any) -> Any:
            self.calls += 1
            if self.calls - 1 != self.at:
                return real(*arguments, **more)
            if self.way == "after":
                with contextlib.suppress(FileNotFoundError):
                    real(*arguments, **more)
            elif self.way == "half" and name in ("pipe_file", "put_file"):
                self._half(*arguments)
            elif self.way == "half" and name == "get_file":
                Path(arguments[1]).write_bytes(self.files.cat_file(arguments[0])[:3])
            raise self.fate(f"{name} {arguments[0]}")

        return call

    def _half(self, first: Any, second: Any) -> None:
        path, data = (
            (first, second) if isinstance(second, bytes) else (second, Path(first).read_bytes())
        )
        self.files.pipe_file(path, data[: len(data) // 2])


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


def checkpoints(bucket: Bucket, keep: int = 1) -> Checkpoints:
    """The run's checkpoints as a new process sees them."""
    found = Checkpoints(Folder("memory://bucket/run"), keep=keep)
    found.folder._fs = bucket
    return found


def whole(bucket: Bucket, folder: Path) -> int:
    """The step that a new process resumes from, all of its files right."""
    found = checkpoints(bucket).restore(folder)
    assert found is not None
    read = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert read >= set(FILES)
    for name, content in FILES.items():
        assert (folder / name).read_bytes() == content + str(found.step).encode()
    return found.step


@pytest.mark.parametrize("way", WAYS)
def test_a_crash_at_any_call_of_a_save_leaves_a_whole_checkpoint(
    bucket: Bucket, tmp_path: Path, way: str
):
    ten, twenty = local(tmp_path, 10), local(tmp_path, 20)
    checkpoints(bucket).upload(ten, 10)
    checkpoints(bucket).upload(twenty, 20)
    calls = 0
    seen: list[int] = []
    while True:
        bucket.files.store.clear()
        bucket.fail(-1, way)
        checkpoints(bucket).upload(ten, 10)
        bucket.fail(calls, way)
        try:
            checkpoints(bucket).upload(twenty, 20)
        except Crash:
            pass
        else:
            break
        bucket.fail(-1, way)
        seen.append(whole(bucket, tmp_path / f"{way}-{calls}"))
        # The restarted run trains on and saves the same step again, over what is left.
        checkpoints(bucket).upload(twenty, 20)
        assert whole(bucket, tmp_path / f"{way}-{calls}-again") == 20
        steps = {name.split("/")[0] for name in checkpoints(bucket).folder.list()}
        assert steps == {"step-000020"}
        calls += 1
    # Each file, the part and the manifest are written; the five of step 10 are then deleted, after
    # a try to delete a manifest of step 20 that is not there yet.
    assert len(seen) == 1 + len(FILES) + 2 + len(FILES) + 2
    assert seen == sorted(seen)
    assert set(seen) == {10, 20}


@pytest.mark.parametrize("way", WAYS)
def test_a_crash_at_any_call_of_a_resume_is_survived(bucket: Bucket, tmp_path: Path, way: str):
    checkpoints(bucket).upload(local(tmp_path, 10), 10)
    for call in range(len(FILES)):
        target = tmp_path / f"{way}-{call}"
        bucket.fail(call, way)
        with pytest.raises(Crash):
            checkpoints(bucket).restore(target)
        bucket.fail(-1, way)
        assert whole(bucket, target) == 10


@pytest.mark.parametrize("way", WAYS)
def test_a_crash_while_a_torn_checkpoint_is_put_away_is_survived(
    bucket: Bucket, tmp_path: Path, way: str
):
    for call in range(len(FILES) + 2):
        bucket.files.store.clear()
        bucket.fail(-1, way)
        for step in (10, 20):
            checkpoints(bucket, keep=2).upload(local(tmp_path, step), step)
        torn = "/bucket/run/checkpoints/step-000020/rng_0.pth"
        bucket.files.pipe_file(torn, b"x" * bucket.files.info(torn)["size"])
        reads = len(FILES)  # all of step 20 is read before it is known to be torn
        bucket.fail(reads + call, way)
        with pytest.raises(Crash):
            checkpoints(bucket).restore(tmp_path / f"{way}-{call}")
        bucket.fail(-1, way)
        assert whole(bucket, tmp_path / f"{way}-{call}") == 10


class Unavailable(Exception):
    """503 Service Unavailable."""


@pytest.mark.parametrize("way", WAYS)
def test_a_503_at_any_call_costs_a_pause(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
):
    pauses: list[float] = []
    monkeypatch.setattr(storage.time, "sleep", pauses.append)
    calls = 2 * (1 + len(FILES) + 2) + len(FILES) + 2  # two saves, one of which is pruned
    for call in range(calls):
        bucket.files.store.clear()
        bucket.fail(call, way, Unavailable)
        checkpoints(bucket).upload(local(tmp_path, 10), 10)
        checkpoints(bucket).upload(local(tmp_path, 20), 20)
        assert whole(bucket, tmp_path / f"{way}-{call}") == 20
        assert {name.split("/")[0] for name in checkpoints(bucket).folder.list()} == {"step-000020"}
    assert len(pauses) == calls


def test_a_checkpoint_is_none_from_the_first_call_of_its_deletion(bucket: Bucket, tmp_path: Path):
    found = checkpoints(bucket)
    found.upload(local(tmp_path, 10), 10)
    bucket.fail(1, "before")
    with pytest.raises(Crash):
        found.folder.delete("step-000010")
    left = found.folder.list()
    assert left
    assert "step-000010/manifest.json" not in left


def test_a_full_disk_stops_the_save_and_leaves_what_there_was(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    checkpoints(bucket).upload(local(tmp_path, 10), 10)

    def full(source: str, target: str) -> None:
        Path(target).write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(module, "_link", full)
        with pytest.raises(OSError, match="No space left"):
            checkpoints(bucket).start(local(tmp_path, 20), 20)
    assert whole(bucket, tmp_path / "back") == 10
    again = checkpoints(bucket)
    again.start(local(tmp_path, 20), 20)
    again.wait()
    assert whole(bucket, tmp_path / "again") == 20
