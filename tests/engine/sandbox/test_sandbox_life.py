"""The sandbox's life: one a folder, apart from others, and an end that leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox import Sandbox, SandboxBusyError, SandboxError
from sandbox.folder import REPOSITORY
from tests.engine.sandbox.kit import (
    alive,
    apply,
    give_image,
    look,
    make_namespace,
    pod,
    until,
    wait_for_phase,
)


def test_two_sandboxes_side_by_side_do_not_meet(cloud: Sandbox, sandbox: Sandbox):
    namespaces = sandbox.kubectl("get", "namespaces", "-o", "name").split()
    assert "namespace/t" not in namespaces
    assert not set(cloud.processes()) & set(sandbox.processes())


def test_held_pods_run_without_a_process(sandbox: Sandbox):
    make_namespace(sandbox)
    apply(sandbox, pod("held", "exit 1"))
    wait_for_phase(sandbox, "held", "Running")
    sandbox.kubectl("delete", "pod", "held", "-nt")


def test_a_running_folder_is_not_started_twice(cloud: Sandbox):
    with pytest.raises(SandboxBusyError):
        Sandbox(cloud.folder.root).start()
    joined = Sandbox.join(cloud.folder.root)
    assert "namespace/t" in joined.kubectl("get", "namespaces", "-o", "name").split()


def test_a_server_that_cannot_start_shows_its_log(tmp_path: Path):
    (tmp_path / "etcd").write_text("not a folder")
    with pytest.raises(SandboxError, match=r"(?s)etcd ended with exit code 1.*not a directory"):
        Sandbox(tmp_path).start()


def test_state_outlives_a_kill_and_lost_pods_are_seen_as_lost(tmp_path: Path):
    give_image(tmp_path)
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
    )
    try:
        assert starter.stdout is not None
        assert starter.stdout.readline() == "ready\n"
        first = Sandbox.join(tmp_path)
        make_namespace(first)
        always, never = pod("always", "echo up; sleep 600"), pod("never", "echo up; sleep 600")
        always["spec"]["restartPolicy"] = "Always"
        apply(first, always, never)
        for name in ("always", "never"):
            wait_for_phase(first, name, "Running")
        inside = first.processes()
        assert len(inside) > 8  # the servers and two pods
    finally:
        starter.kill()
        starter.wait()
    until("all processes to end", lambda: not [pid for pid in inside if alive(pid)])

    with Sandbox(tmp_path) as second:
        assert second.was_killed
        lost = wait_for_phase(second, "never", "Failed")["status"]["containerStatuses"][0]
        assert lost["state"]["terminated"]["exitCode"] == 137
        until(
            "the other one's second start",
            lambda: (
                [
                    status["restartCount"]
                    for status in look(second, "always")["status"]["containerStatuses"]
                    if "running" in status["state"]
                ]
                == [1]
            ),
        )
        inside = second.processes()
    assert not [pid for pid in inside if alive(pid)]
    assert second.folder.clean_end.exists()


STARTER = """
import sys, time
from sandbox import Sandbox
sandbox = Sandbox(sys.argv[1])
sandbox.start()
print("ready", flush=True)
time.sleep(600)
"""


ENDS_WHAT_IT_HAS_BEGUN = """
trap 'echo ending; sleep 1; echo ended; exit 7' INT TERM
echo up
sleep 600 &
wait
"""


@pytest.mark.parametrize(
    "interrupt",
    [
        pytest.param(lambda pid: os.killpg(pid, signal.SIGINT), id="Ctrl-C"),
        pytest.param(lambda pid: os.kill(pid, signal.SIGTERM), id="kill"),
    ],
)
def test_an_interrupted_command_ends_what_it_has_begun_and_then_the_sandbox(
    tmp_path: Path, interrupt: Callable[[int], None]
):
    command = [sys.executable, "-m", "sandbox", "--folder", str(tmp_path), "exec", "--"]
    process = subprocess.Popen(
        [*command, "sh", "-c", ENDS_WHAT_IT_HAS_BEGUN],
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    inside = Sandbox.join(tmp_path).processes()
    interrupt(process.pid)
    rest, _ = process.communicate(timeout=180)
    assert rest == "ending\nended\n"
    assert process.returncode == 7
    assert not [pid for pid in inside if alive(pid)]
