"""The run's folder on a real Cloud Storage API (fake-gcs-server), by unchanged code."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.training.faults import FaultyBucket, needs_bucket
from training.common.checkpoints import Checkpoints
from training.common.config import ConfigError
from training.common.sources import check, fetch
from training.common.storage import Folder

pytestmark = needs_bucket


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """Address of an empty bucket on a server of this module's own."""
    with FaultyBucket() as server, pytest.MonkeyPatch.context() as patch:
        server.use(patch)
        yield "gs://bucket"


def test_a_bucket_gives_what_a_folder_gives(bucket: str, tmp_path: Path):
    import fsspec

    folder = Folder(f"{bucket}/runs/text/1")
    assert folder.list() == {}
    folder.write("a/b.txt", "one")
    folder.write("a/c/d.bin", b"\x00\x01")
    assert folder.list() == {"a/b.txt": 3, "a/c/d.bin": 2}
    assert folder.list("a") == {"b.txt": 3, "c/d.bin": 2}
    assert folder.read("a/b.txt") == b"one"
    assert folder.exists("a/b.txt")
    assert not folder.exists("a")
    folder.download("a", tmp_path / "a")
    assert (tmp_path / "a" / "c" / "d.bin").read_bytes() == b"\x00\x01"
    folder.delete("a/c")
    folder.delete("nothing")
    assert folder.list() == {"a/b.txt": 3}
    with pytest.raises(FileNotFoundError):
        folder.read("nothing")
    # What another pod writes is seen at once.
    fsspec.filesystem("gs", consistency="md5").pipe_file(f"{bucket}/runs/text/1/a/new", b"!")
    assert folder.list() == {"a/b.txt": 3, "a/new": 1}
    assert folder.exists("a/new")


def test_checkpoints_are_kept_restored_and_dated(bucket: str, tmp_path: Path):
    import fsspec

    place = tmp_path / "checkpoint"
    place.mkdir()
    (place / "weights.bin").write_bytes(b"w" * 1_000_000)
    run = Folder(f"{bucket}/runs/text/2")
    run.write("result.json", "{}")
    checkpoints = Checkpoints(run, keep=2)
    for step in (10, 20, 30):
        checkpoints.upload(place, step)
    assert {name.split("/")[0] for name in checkpoints.folder.list()} == {
        "step-000020",
        "step-000030",
    }
    run.write("checkpoints/step-000030/weights.bin", b"torn")
    found = checkpoints.restore(tmp_path / "back")
    assert found is not None
    assert found.step == 20
    files = fsspec.filesystem("gs")
    kept = "bucket/runs/text/2"
    # The bucket's lifecycle rule goes by this date: checkpoints have one, results never.
    assert "customTime" in files.info(f"{kept}/checkpoints/step-000020/weights.bin")
    assert "customTime" not in files.info(f"{kept}/result.json")


def test_a_model_comes_from_a_bucket_without_its_weights_when_they_are_not_needed(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("GEMMA_SCRATCH", str(tmp_path))
    name = f"{bucket}/models/tiny"
    Folder(name).write("config.json", "{}")
    Folder(name).write("model.safetensors", b"weights")
    light = fetch(name, "main", "model", weights=False)
    assert {path.name for path in light.iterdir()} == {"config.json"}
    assert (fetch(name, "main", "model") / "model.safetensors").read_bytes() == b"weights"
    check(name, "main", "model")
    for absent in (f"{bucket}/models/none", "gs://no-such-bucket/models"):
        with pytest.raises(ConfigError, match="holds objects"):
            check(absent, "main", "model")


def test_a_pod_that_outlives_a_run_reads_what_the_bucket_holds_now(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("GEMMA_SCRATCH", str(tmp_path))
    folder = Folder(f"{bucket}/data/rows")
    folder.write("a.jsonl", "one")
    folder.write("b.jsonl", "two")
    place = fetch(folder.uri, "main", "dataset")
    untouched = (place / "a.jsonl").stat().st_mtime_ns
    folder.write("b.jsonl", "TWO")  # as many bytes
    folder.write("c.jsonl", "three")
    assert fetch(folder.uri, "main", "dataset") == place
    assert {p.name: p.read_text() for p in place.iterdir()} == {
        "a.jsonl": "one",
        "b.jsonl": "TWO",
        "c.jsonl": "three",
    }
    folder.delete("c.jsonl")
    fetch(folder.uri, "main", "dataset")
    assert {p.name for p in place.iterdir()} == {"a.jsonl", "b.jsonl"}
    assert (place / "a.jsonl").stat().st_mtime_ns == untouched
