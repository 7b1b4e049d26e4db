"""A vision run's checkpoint under fire: SIGKILL at every request, 503s, torn objects, a full disk.

The bucket is fake-gcs-server behind a proxy; the process that saves is a real one and really dies.
"""

import itertools
import os
import signal
import time
import traceback
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from tests.training.faults import CUT, PASS, REFUSE, FaultyBucket, needs_bucket
from training.common import storage
from training.common.checkpoints import Checkpoints, restore_on_all
from training.common.storage import Folder
from training.gemma3_vision.checkpointing import RayCheckpoints, rng_state, write_rng

pytestmark = needs_bucket
FILES = ("adapter_model.safetensors", "optimizer.pt", "trainer_state.json", "rng_state_0.pth")


@pytest.fixture(scope="module")
def bucket() -> Iterator[FaultyBucket]:
    with FaultyBucket() as server, pytest.MonkeyPatch.context() as patch:
        server.use(patch)
        yield server


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, bucket: FaultyBucket) -> None:
    """Retries soon, as many as ever; no fault is left from the test before."""
    bucket.watch()
    wait = time.sleep
    monkeypatch.setattr(storage.time, "sleep", lambda seconds: wait(min(seconds, 0.01)))


def saved(folder: Path, step: int) -> Path:
    """A local checkpoint whose files all name their step."""
    place = folder / f"checkpoint-{step}"
    place.mkdir(exist_ok=True)
    for name in FILES:
        (place / name).write_text(f"{name} of step {step} " * 50)
    return place


def saver(run: Folder, scratch: Path) -> RayCheckpoints:
    run = Folder(run.uri)  # its client does not outlive a fork
    return RayCheckpoints(Checkpoints(run, 3), run, scratch)


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """What goes with each checkpoint."""
    (tmp_path / "tensorboard").mkdir()
    (tmp_path / "tensorboard" / "events").write_text("events")
    (tmp_path / "metrics.jsonl").write_text('{"step": 20}\n')
    return tmp_path


def newest(run: Folder, target: Path) -> int | None:
    """The step that a resume would start from; each of its files is looked at."""
    found = Checkpoints(Folder(run.uri), 3).restore(target)
    if found is None:
        return None
    for name in FILES:
        assert (target / name).read_text() == f"{name} of step {found.step} " * 50, name
    return found.step


def killed_at(bucket: FaultyBucket, work: Callable[[], object], number: int, when: str) -> int:
    """Run `work` in a process that is killed around its request `number`; minus the signal."""
    waits, goes = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(waits, 1)
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)

    def strike(request: int) -> str:
        if request == number:
            os.kill(child, signal.SIGKILL)
            return REFUSE
        return PASS

    bucket.watch(**{when: strike})
    os.write(goes, b".")
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    bucket.watch()
    os.close(waits)
    os.close(goes)
    return status


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_killed_at_any_request_leaves_a_whole_checkpoint(when, bucket, scratch):
    """Around each request that saving step 20 makes, with step 10 in the bucket."""
    found: list[int | None] = []
    for number in itertools.count(0, 2 if when == "before" else 1):
        run = Folder(f"gs://bucket/runs/{when}-{number}")
        saver(run, scratch).put(saved(scratch, 10), 10)

        def put(run: Folder = run) -> None:
            saver(run, scratch).put(saved(scratch, 20), 20)

        if killed_at(bucket, put, number, when) == 0:
            break  # it makes fewer requests
        complete = bucket.holds(f"runs/{when}-{number}/checkpoints/step-000020/manifest.json")
        found.append(newest(run, scratch / f"{when}-{number}"))
        assert found[-1] == (20 if complete else 10), number
        put()  # the next process trains to the same step and saves it over the rest
        assert newest(run, scratch / f"{when}-{number}-again") == 20
    print(f"killed {when} {len(found)} requests, then resumed from {found}")
    assert set(found) == {10, 20}


def test_a_bucket_that_forbids_says_so_and_leaves_the_checkpoint_before(bucket, scratch):
    run = Folder("gs://bucket/runs/forbidden")
    saver(run, scratch).put(saved(scratch, 10), 10)
    bucket.status = 403
    bucket.watch(before=lambda number: REFUSE if number >= 8 else PASS)
    with pytest.raises(OSError, match="Forbidden"):
        saver(run, scratch).put(saved(scratch, 20), 20)
    bucket.watch()
    assert newest(run, scratch / "back") == 10


def test_a_bucket_that_is_busy_now_and_then_delays_and_nothing_else(bucket, scratch, monkeypatch):
    monkeypatch.setattr("gcsfs.retry.random.random", lambda: -1.0)  # its first pause is 1 s + this
    bucket.status = 503
    run = Folder("gs://bucket/runs/busy")
    bucket.watch(before=lambda number: REFUSE if number % 3 == 0 else PASS)
    saver(run, scratch).put(saved(scratch, 20), 20)
    assert newest(run, scratch / "busy") == 20
    assert len(bucket.seen) > 20


@pytest.mark.parametrize("name", [*FILES, "manifest.json"])
@pytest.mark.parametrize("keep", [0.0, 0.5])
def test_a_truncated_object_is_not_resumed_from(name, keep, bucket, scratch):
    run = Folder(f"gs://bucket/runs/torn-{name}-{keep}")
    for step in (10, 20):
        saver(run, scratch).put(saved(scratch, step), step)
    path = f"checkpoints/step-000020/{name}"
    content = run.read(path)
    run.write(path, content[: int(len(content) * keep)])
    assert newest(run, scratch / "back") == 10


def test_a_download_that_breaks_off_is_taken_up_again(bucket, scratch):
    run = Folder("gs://bucket/runs/cut")
    saver(run, scratch).put(saved(scratch, 20), 20)
    cut: list[int] = []

    def once(number: int) -> str:
        if (
            "alt=media" in bucket.seen[number]
            and "adapter_model" in bucket.seen[number]
            and not cut
        ):
            cut.append(number)
            return CUT
        return PASS

    bucket.watch(before=once)
    assert newest(run, scratch / "back") == 20
    assert cut


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    """A process group of this process alone."""
    dist.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1
    )
    yield
    dist.destroy_process_group()


def test_a_node_that_is_to_go_is_held_until_its_checkpoint_is_complete(
    bucket, scratch, group, monkeypatch
):
    monkeypatch.setenv("GEMMA_STOP_FILE", str(scratch / "stop"))
    monkeypatch.setenv("GEMMA_TRAINING_FOLDER", str(scratch / "training"))
    run = Folder("gs://bucket/runs/evicted")
    callback = saver(run, scratch)
    args = types.SimpleNamespace(device=torch.device("cpu"))

    def step() -> bool:
        control = types.SimpleNamespace(should_save=False)
        callback.on_step_end(args, types.SimpleNamespace(global_step=20), control)
        return control.should_save

    callback.on_train_begin(args, None, None)
    training = scratch / "training" / str(os.getpid())  # what the pod's preStop hook looks for
    assert training.exists()
    assert not step()
    (scratch / "stop").touch()
    assert step()  # saves now, wherever save_steps stands
    assert not step()  # and once
    callback.put(saved(scratch, 10), 10)  # was under way
    assert training.exists()
    held: list[bool] = []
    manifest = "runs/evicted/checkpoints/step-000020/manifest.json"

    def look(number: int) -> None:
        held.append(training.exists() or bucket.holds(manifest))

    bucket.watch(after=look)
    callback.put(saved(scratch, 20), 20)
    assert held
    assert all(held)
    assert not training.exists()
    assert newest(run, scratch / "back") == 20


def test_a_rank_goes_on_with_its_random_state(bucket, scratch, group):
    run = Folder("gs://bucket/runs/ranks")
    store = Checkpoints(run, 3)
    assert restore_on_all(store, scratch / "nothing", 0, 0) is None
    place = saved(scratch, 20)
    write_rng(place, 0, 1, rng_state())
    expected = torch.rand(3)
    store.upload(place, 20)
    found = restore_on_all(store, scratch / "back", 0, 0)
    assert found is not None
    assert found.step == 20
    torch.set_rng_state(torch.load(scratch / "back" / "rng_state.pth", weights_only=False)["cpu"])
    assert torch.equal(torch.rand(3), expected)
