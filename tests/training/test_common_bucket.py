"""The run's folder on a real Cloud Storage API (fake-gcs-server), by unchanged code."""

import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import tools
from training.common.checkpoints import Checkpoints
from training.common.config import ConfigError
from training.common.sources import check, fetch
from training.common.storage import Folder

BINARY = shutil.which("fake-gcs-server", path=str(tools.bin_dir())) or shutil.which(
    "fake-gcs-server"
)
pytestmark = pytest.mark.skipif(BINARY is None, reason="fake-gcs-server is absent: `make tools`")


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """Address of an empty bucket on a server of this module's own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{probe.getsockname()[1]}"
    command = [str(BINARY), "-scheme", "http", "-backend", "memory", "-port", host.split(":")[1]]
    command += ["-public-host", host, "-external-url", f"http://{host}"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("STORAGE_EMULATOR_HOST", f"http://{host}")
            # Else gcsfs first asks by gRPC what kind of bucket it is, and waits a minute.
            patch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
            _make(f"http://{host}/storage/v1/b")
            yield "gs://bucket"
    finally:
        server.kill()
        server.wait()


def _make(address: str) -> None:
    request = urllib.request.Request(
        address, b'{"name": "bucket"}', {"Content-Type": "application/json"}
    )
    for _ in range(200):
        try:
            urllib.request.urlopen(request).close()
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
        else:
            return
    raise RuntimeError("fake-gcs-server did not start")


def test_a_bucket_gives_what_a_folder_gives(bucket: str, tmp_path: Path):
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
