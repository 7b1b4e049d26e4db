"""`pulumi up` killed at any moment goes on from there; production refuses to be destroyed.

One sandbox of its own; each test brings the stack into the state that it starts from.
"""

from __future__ import annotations

import os
import random
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

#: The issue is any moment; ten were tried by hand (KILLS=10), a few keep the suite short.
KILLS = int(os.environ.get("KILLS", "3"))
SEED = int(os.environ.get("KILL_SEED", "1"))


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory, make_stack: Any) -> Iterator[Any]:
    """A stack in a sandbox of its own."""
    with make_stack(tmp_path_factory.mktemp("own")) as stack:
        yield stack


def identities(stack: Any) -> set[tuple[str, str]]:
    """Type and id of every Google Cloud resource that the state knows."""
    found = stack.resources().values()
    return {(r["type"], r["id"]) for r in found if r["type"].startswith("gcp:")}


def in_the_cloud(stack: Any) -> set[tuple[str, str]]:
    return {(r["type"], r["id"]) for r in stack.sandbox.cloud_state()}


def kill_after(stack: Any, lines: int) -> bool:
    """Starts `pulumi up` and kills the engine when it has said so much; whether it was at work.

    Counted in lines, not in seconds: the moments are as random, and the same on every machine.
    """
    process = stack.start("up", "--yes", "--skip-preview", "--stack", stack.name)
    for _, _line in zip(range(lines), process.stdout, strict=False):
        pass
    running = process.poll() is None
    for engine in engines(stack):
        os.kill(engine, signal.SIGKILL)
    process.stdout.close()
    process.wait(60)
    return running


def engines(stack: Any) -> list[int]:
    """Process ids, as seen from here, of the engine that works on this stack."""
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().split(b"\0")
            at_work = command[0].endswith(b"pulumi") and b"up" in command
            if at_work and (entry / "cwd").resolve() == stack.folder:
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def test_production_refuses_to_be_destroyed_and_says_how_to_do_it(own: Any) -> None:
    own.configure({"environment": "prod"})
    own.up()
    refused = own.destroy(check=False)
    assert refused.returncode != 0
    text = refused.stdout + refused.stderr
    assert re.search(r"protect", text)
    assert "gemma:cluster.deletionProtection" in text
    assert in_the_cloud(own) == identities(own) != set()
    # On purpose: the two settings, one `up`, and then it goes.
    own.configure(
        {"environment": "prod", "cluster.deletionProtection": False, "bucket.forceDestroy": True}
    )
    own.up()
    own.destroy()
    assert in_the_cloud(own) - enabled_services(own) == set()


def test_destroy_leaves_nothing(own: Any) -> None:
    own.configure()
    own.up()
    own.destroy()
    assert own.resources() == {}
    assert in_the_cloud(own) - enabled_services(own) == set()
    names = {item["metadata"]["name"] for item in own.sandbox.objects("namespaces")}
    assert "gemma" not in names
    kinds = "job,rayjob,raycluster,pod,service,configmap,secret"
    left = own.sandbox.objects(kinds, "-A", "-l", "app.kubernetes.io/part-of=gemma")
    assert left == []


def test_killed_ups_converge_and_leave_no_orphan(own: Any) -> None:
    own.configure()
    moments = random.Random(SEED)
    killed = 0
    for _ in range(KILLS):
        killed += kill_after(own, moments.randint(5, 60))
        own.recover()
        assert in_the_cloud(own) - enabled_services(own) == identities(own) - enabled_services(own)
    assert killed
    own.up()
    own.up("--expect-no-changes")
    assert in_the_cloud(own) == identities(own)


def enabled_services(stack: Any) -> set[tuple[str, str]]:
    """Enabled APIs stay on purpose: something else in the project may rely on them."""
    return {item for item in in_the_cloud(stack) if item[0] == "gcp:projects/service:Service"}
