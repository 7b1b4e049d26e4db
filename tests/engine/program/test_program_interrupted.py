"""`pulumi up` killed by SIGKILL at ten random moments: the stack converges, nothing is orphaned."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infra import recover

KILLS = 10
#: Some seventy creations of resources and components, each a line as it starts and as it ends.
EVENTS = 140
EVENT = re.compile(r"^ \+ .* (creating|created)")


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory, make_stack: Any) -> Iterator[Any]:
    """A stack in a sandbox of its own."""
    with make_stack(tmp_path_factory.mktemp("interrupted")) as stack:
        yield stack


def killed(stack: Any, after: int) -> bool:
    """Starts `up` and kills the engine after so many events; False: it ended before."""
    command = ["pulumi", "up", "--yes", "--skip-preview", "--stack", stack.name]
    process = stack.sandbox.popen(
        [*command, "--non-interactive", "--color", "never"],
        cwd=stack.folder,
        env={"PYTHONPATH": str(stack.folder)},
        stdout=-1,
    )
    seen, lines = 0, []
    for line in process.stdout:
        lines.append(line)
        seen += EVENT.match(line) is not None
        if seen >= after:
            for pid in engines(stack):
                with contextlib.suppress(ProcessLookupError):  # that was its last event
                    os.kill(pid, signal.SIGKILL)
            process.wait(120)
            return True
    assert process.wait(120) == 0, "".join(lines)
    return False


def engines(stack: Any) -> list[int]:
    return [pid for pid in stack.sandbox.processes() if _arguments(pid)[:2] == ["pulumi", "up"]]


def _arguments(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    except OSError:  # it has just ended
        return []


def let_google_finish(stack: Any) -> None:
    """What Google was asked for it still does; providers that wait for nothing are ended."""
    deadline = time.monotonic() + 180
    while left := providers(stack, "pulumi-resource-gcp"):
        assert time.monotonic() < deadline, f"minutes after their engine there are still {left}"
        time.sleep(0.1)
    for pid in providers(stack, "pulumi-resource-"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def providers(stack: Any, name: str) -> list[int]:
    return [pid for pid in stack.sandbox.processes() if name in " ".join(_arguments(pid))]


def test_a_deployment_killed_ten_times_converges(own: Any, capsys: Any) -> None:
    seed = random.randrange(10**6)
    moments = random.Random(seed)
    print(f"seed {seed}")
    kills = 0
    while kills < KILLS:
        left = EVENTS - 2 * len(own.resources())
        after = moments.randint(1, max(2, 2 * left // (KILLS - kills)))
        if not killed(own, after):  # it was nearly done: from the start again
            own.destroy()
            continue
        kills += 1
        let_google_finish(own)
        assert recover.recover(own.name, pulumi_in(own)) == 0
    own.up()
    own.up("--expect-no-changes")
    in_the_cloud = {(r["type"], r["id"]) for r in own.sandbox.cloud_state()}
    in_the_state = {
        (r["type"], r["id"]) for r in own.resources().values() if r["type"].startswith("gcp:")
    }
    # Of what Google names itself, a second one may exist: then its name was said.
    doubled = in_the_cloud - in_the_state
    said = capsys.readouterr().out
    print(said)
    assert in_the_state <= in_the_cloud
    assert {kind for kind, _ in doubled} <= set(recover.NAMED_BY_GOOGLE)
    assert len(doubled) <= said.count("look here: ")
    own.destroy()
    assert own.resources() == {}


def pulumi_in(stack: Any) -> Any:
    def run(*arguments: str, input: str | None = None) -> str:
        return stack.sandbox.run(
            ["pulumi", *arguments, "--non-interactive", "--color", "never"],
            cwd=stack.folder,
            env={"PYTHONPATH": str(stack.folder)},
            input=input,
        ).stdout

    return run
