"""A run's folder on this machine; the bucket gives the same through fake-gcs-server elsewhere."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from training.common import storage
from training.common.config import ConfigError
from training.common.sources import check, fetch
from training.common.storage import Folder


def test_what_is_written_is_read_listed_and_deleted(tmp_path: Path):
    folder = Folder(tmp_path / "run")
    folder.write("a/b.txt", "one")
    folder.write("a/c/d.bin", b"\x00\x01")
    assert folder.read("a/b.txt") == b"one"
    assert folder.list() == {"a/b.txt": 3, "a/c/d.bin": 2}
    assert folder.list("a") == {"b.txt": 3, "c/d.bin": 2}
    assert folder.exists("a/b.txt")
    assert not folder.exists("a")
    folder.delete("a/c")
    assert folder.list() == {"a/b.txt": 3}
    folder.delete("nothing/there")
    with pytest.raises(FileNotFoundError):
        folder.read("nothing")


def test_folders_go_up_and_come_down_unchanged(tmp_path: Path):
    source = tmp_path / "source"
    (source / "x").mkdir(parents=True)
    (source / "x" / "y.txt").write_text("deep")
    (source / "z.txt").write_text("flat")
    folder = Folder(tmp_path / "run")
    assert folder.upload(source, "copy") == 8
    folder.download("copy", tmp_path / "back")
    assert (tmp_path / "back" / "x" / "y.txt").read_text() == "deep"
    folder.download("copy/z.txt", tmp_path / "one.txt")
    assert (tmp_path / "one.txt").read_text() == "flat"
    with pytest.raises(FileNotFoundError):
        folder.download("absent", tmp_path / "no")


def test_a_write_that_dies_leaves_the_old_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = Folder(tmp_path)
    folder.write("x", "old")

    def dies(self: Path, data: bytes) -> int:
        with self.open("wb") as file:
            file.write(data[:1])
        raise OSError("No space left on device")

    monkeypatch.setattr(Path, "write_bytes", dies)
    with pytest.raises(OSError, match="space"):
        folder.write("x", "new")
    assert folder.read("x") == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    with pytest.raises(OSError, match="space"):
        folder.download("x", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    (tmp_path / ".writing-1-2-x").touch()  # of a process that was killed
    assert folder.list("") == {"copy.partial": 1, "x": 3}


def test_an_object_is_known_here_only_once_it_is_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("GEMMA_SCRATCH", str(tmp_path / "scratch"))
    folder, uri = Folder(tmp_path / "bucket"), f"file://{tmp_path}/bucket"
    folder.write("rows.jsonl", "one")
    assert (fetch(uri, "main", "dataset") / "rows.jsonl").read_text() == "one"
    folder.write("rows.jsonl", "three")
    with monkeypatch.context() as lost:
        lost.setattr(Folder, "download", lambda *_: pytest.fail("killed"))
        with pytest.raises(BaseException, match="killed"):
            fetch(uri, "main", "dataset")
    assert (fetch(uri, "main", "dataset") / "rows.jsonl").read_text() == "three"


def test_threads_that_write_one_object_leave_one_of_their_texts(tmp_path: Path):
    """A checkpoint's upload and the Mirror both write metrics.jsonl."""
    folder = Folder(tmp_path)
    texts = [letter * 100_000 for letter in "abcd"]
    with ThreadPoolExecutor(len(texts)) as pool:
        written = pool.map(folder.write, ["x"] * 200, texts * 50)
        assert [*written] == [None] * 200  # and none raised
    assert folder.read("x").decode() in texts
    assert folder.list() == {"x": 100_000}


class Flaky:
    """A bucket that answers 503 a few times."""

    def __init__(self, failures: int) -> None:
        self.failures, self.objects = failures, {}

    def pipe_file(self, path: str, data: bytes, **_: Any) -> None:
        if self.failures:
            self.failures -= 1
            raise RuntimeError("503 Service Unavailable")
        self.objects[path] = data


def test_a_bucket_that_answers_503_is_asked_again(monkeypatch: pytest.MonkeyPatch):
    pauses: list[float] = []
    monkeypatch.setattr(storage.time, "sleep", pauses.append)
    folder = Folder("gs://bucket/run")
    folder._fs = bucket = Flaky(3)
    folder.write("x", "content")
    assert bucket.objects == {"bucket/run/x": b"content"}
    assert pauses == sorted(pauses)
    assert len(pauses) == 3
    folder._fs = Flaky(99)
    with pytest.raises(RuntimeError, match="503"):
        folder.write("x", "content")


def test_a_folder_is_fetched_where_it_lies_and_a_missing_one_refused(tmp_path: Path):
    assert fetch(str(tmp_path), "main", "model") == tmp_path
    with pytest.raises(ConfigError, match="model_name_or_path"):
        fetch(str(tmp_path / "no"), "main", "model")
    with pytest.raises(ConfigError, match="dataset_name"):
        check(str(tmp_path / "no"), "main", "dataset")
