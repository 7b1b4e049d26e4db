"""What a run's checkpoints hold, keep and wait for; crashes: test_common_crashes.py."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.training.saved import FILES, local
from training.common.checkpoints import Checkpoints, restore_on_all
from training.common.storage import Folder


def test_what_was_uploaded_comes_back(tmp_path: Path):
    checkpoints = Checkpoints(Folder(tmp_path / "run"), keep=2)
    assert checkpoints.newest() is None
    assert checkpoints.restore(tmp_path / "none") is None
    checkpoints.start(local(tmp_path, 10), 10)
    checkpoints.wait()
    found = checkpoints.restore(tmp_path / "back")
    assert found is not None
    assert found.step == 10
    for name, content in FILES.items():
        assert (tmp_path / "back" / name).read_bytes() == content + b"10"


def test_what_was_logged_is_safe_before_the_checkpoint_counts(tmp_path: Path):
    from training.common.metrics import keep

    logs, run = tmp_path / "logs", Folder(tmp_path / "run")
    (logs / "tensorboard").mkdir(parents=True)
    (logs / "metrics.jsonl").write_text('{"step": 10}\n')
    (logs / "tensorboard" / "events").write_bytes(b"10")
    checkpoints = Checkpoints(run, keep=2)
    found: list[dict[str, int]] = []

    def before() -> None:
        found.append(run.list("checkpoints") if (tmp_path / "run" / "checkpoints").exists() else {})
        keep(logs, run)

    checkpoints.start(local(tmp_path, 10), 10, before)
    checkpoints.wait()
    assert found == [{}]
    assert run.read("metrics.jsonl") == b'{"step": 10}\n'
    assert run.read("tensorboard/events") == b"10"

    def refuse() -> None:
        raise OSError("the bucket is gone")

    checkpoints.start(local(tmp_path, 20), 20, refuse)
    with pytest.raises(RuntimeError, match="could not be uploaded"):
        checkpoints.wait()
    newest = checkpoints.newest()
    assert newest is not None
    assert newest.step == 10


def test_a_second_crash_while_resuming_changes_nothing(tmp_path: Path):
    checkpoints = Checkpoints(Folder(tmp_path / "run"), keep=3)
    checkpoints.upload(local(tmp_path, 10), 10)
    target = tmp_path / "back"
    (target / "deep").mkdir(parents=True)
    (target / "adapter.bin").write_bytes(b"half of it")  # what a killed download left
    (target / "deep" / "optimizer.bin.partial").write_bytes(b"o")
    found = checkpoints.restore(target)
    assert found is not None
    assert (target / "adapter.bin").read_bytes() == FILES["adapter.bin"] + b"10"


def test_an_object_that_changed_is_not_loaded(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    checkpoints = Checkpoints(Folder(tmp_path / "run"), keep=3)
    for step in (10, 20):
        place = local(tmp_path, step)
        if step == 20:
            (place / "a_shard.bin").write_bytes(b"of more processes")
        checkpoints.upload(place, step)
    broken = tmp_path / "run" / "checkpoints" / "step-000020" / "adapter.bin"
    broken.write_bytes(b"x" * broken.stat().st_size)  # the same size, other bytes
    found = checkpoints.restore(tmp_path / "back")
    assert found is not None
    assert found.step == 10
    assert (tmp_path / "back" / "adapter.bin").read_bytes().endswith(b"10")
    assert "differs from its manifest" in capsys.readouterr().err
    assert not (tmp_path / "back" / "a_shard.bin").exists()  # nothing of the other is left


def test_an_object_that_is_shorter_or_gone_makes_no_checkpoint(tmp_path: Path):
    checkpoints = Checkpoints(Folder(tmp_path / "run"), keep=3)
    for step in (10, 20, 30):
        checkpoints.upload(local(tmp_path, step), step)
    place = tmp_path / "run" / "checkpoints"
    (place / "step-000030" / "rng_0.pth").unlink()
    (place / "step-000020" / "adapter.bin").write_bytes(b"a")
    newest = checkpoints.newest()
    assert newest is not None
    assert newest.step == 10
    Checkpoints(Folder(tmp_path / "run"), keep=1).prune()  # nor does it count as one that is kept
    assert checkpoints.newest() == newest


def test_the_newest_few_are_kept(tmp_path: Path):
    checkpoints = Checkpoints(Folder(tmp_path / "run"), keep=2)
    torn = Folder(tmp_path / "run" / "checkpoints")
    torn.write("step-000015/adapter.bin", b"never completed")
    for step in (10, 20, 30):
        checkpoints.upload(local(tmp_path, step), step)
    kept = {path.split("/")[0] for path in checkpoints.folder.list()}
    assert kept == {"step-000020", "step-000030"}
    # What another node uploads of the next one meanwhile is not touched.
    torn.write("step-000050/part-0-1.json", "{}")
    checkpoints.upload(local(tmp_path, 40), 40)
    assert torn.exists("step-000050/part-0-1.json")


def test_every_nodes_part_is_waited_for(tmp_path: Path):
    folder = Folder(tmp_path / "run")
    first = Checkpoints(folder, keep=2, node=0, nodes=2, patience=0.1)
    second = Checkpoints(folder, keep=2, node=1, nodes=2)
    place = local(tmp_path, 10)
    # A start before this one left its part: its files are not those that the next part names.
    Checkpoints(folder, keep=2, node=1, nodes=2, attempt="before").upload(place, 10)
    with pytest.raises(TimeoutError, match="node 1"):
        first.upload(place, 10)
    assert first.newest() is None
    other = tmp_path / "other"
    other.mkdir()
    (other / "rng_1.pth").write_bytes(b"second node")
    second.upload(other, 10)
    assert first.newest() is None
    first.upload(place, 10)
    found = first.newest()
    assert found is not None
    assert set(found.files) == {*FILES, "rng_1.pth"}


def test_the_trainer_may_delete_its_copy_while_it_is_uploaded(tmp_path: Path):
    checkpoints = Checkpoints(Folder(tmp_path / "run"), keep=2)
    place = local(tmp_path, 10)
    real = checkpoints.folder.upload

    def slow(source: Any, path: str) -> int:
        for file in sorted(place.rglob("*"), reverse=True):
            file.unlink() if file.is_file() else file.rmdir()
        checkpoints.folder.upload = real
        return real(source, path)

    checkpoints.folder.upload = slow
    checkpoints.start(place, 10)
    checkpoints.wait()
    manifest = json.loads(checkpoints.folder.read("step-000010/manifest.json"))
    assert set(manifest["files"]) == set(FILES)


def test_a_failed_upload_is_not_forgotten(tmp_path: Path):
    checkpoints = Checkpoints(Folder(tmp_path / "run"), keep=2)

    def fails(source: Any, path: str) -> int:
        raise OSError("No space left on device")

    checkpoints.folder.upload = fails
    checkpoints.start(local(tmp_path, 10), 10)
    with pytest.raises(RuntimeError, match="could not be uploaded"):
        checkpoints.wait()
    checkpoints.wait()
    checkpoints.start(local(tmp_path, 20), 20)
    with pytest.raises(RuntimeError, match="could not be uploaded"):
        checkpoints.start(local(tmp_path, 30), 30)  # the next save waits for the last, and tells


def test_a_process_that_dies_of_an_error_still_ends_its_upload(tmp_path: Path):
    run = tmp_path / "run"
    code = (
        "import time; from training.common.checkpoints import Checkpoints, Folder; "
        f"found = Checkpoints(Folder({str(run)!r}), keep=1); "
        f"found.start({str(local(tmp_path, 10))!r}, 10, lambda: time.sleep(0.5)); "
        "raise SystemExit(1)"
    )
    repository = Path(__file__).parents[2]
    ended = subprocess.run([sys.executable, "-c", code], cwd=repository, check=False)
    assert ended.returncode == 1
    assert Checkpoints(Folder(run), keep=1).newest() is not None


def test_every_rank_resumes_from_the_checkpoint_that_the_first_one_chose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """As where another machine sees an upload that ended only after the first one had looked."""
    checkpoints = Checkpoints(Folder(tmp_path / "run"), keep=3)
    checkpoints.upload(local(tmp_path, 10), 10)
    chosen = checkpoints.newest()
    checkpoints.upload(local(tmp_path, 20), 20)

    def from_the_first(objects: list[Any], src: int, device: Any) -> None:
        objects[:] = [chosen]

    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    monkeypatch.setattr("torch.distributed.barrier", lambda: None)
    monkeypatch.setattr("torch.distributed.broadcast_object_list", from_the_first)
    found = restore_on_all(checkpoints, tmp_path / "other", rank=8, local_rank=0)
    assert found == chosen
    for name, content in FILES.items():
        assert (tmp_path / "other" / name).read_bytes() == content + b"10"
    # The other ranks of that machine read what this one has brought.
    restore_on_all(checkpoints, tmp_path / "nothing", rank=9, local_rank=1)
    assert not (tmp_path / "nothing").exists()
