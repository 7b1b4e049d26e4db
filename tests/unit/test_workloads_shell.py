"""The shell of the containers, run by a real bash: exit codes, SIGTERM, the preStop hook."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from workloads import rayjob
from workloads.job import LAUNCH


def launch(tmp_path: Path, script: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["/bin/bash", "-c", LAUNCH, "launch", "/bin/bash", "-c", script],
        env={"PATH": "/usr/bin:/bin", "GEMMA_CONFIG_ERROR_FILE": str(tmp_path / "error")},
        cwd=tmp_path,
    )


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.02)


@pytest.mark.parametrize("code", [0, 1, 143])
def test_exit_code_of_the_trainer_is_the_containers(tmp_path, code):
    assert launch(tmp_path, f"exit {code}").wait(30) == code


def test_a_config_error_is_told_apart_although_torchrun_hides_its_code(tmp_path):
    assert launch(tmp_path, "touch error; exit 1").wait(30) == 78


def test_sigterm_reaches_the_trainer_and_its_checkpoint_is_waited_for(tmp_path):
    script = (
        "trap 'sleep 0.3; touch checkpoint; exit 143' TERM; touch up; while :; do sleep 0.05; done"
    )
    process = launch(tmp_path, script)
    wait_for(tmp_path / "up")
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 143
    assert (tmp_path / "checkpoint").exists()


def pre_stop(tmp_path: Path) -> subprocess.Popen[bytes]:
    script = rayjob.PRE_STOP.replace("/tmp/", f"{tmp_path}/")
    return subprocess.Popen(["/bin/bash", "-c", script])


def test_pre_stop_does_not_hold_up_an_idle_worker(tmp_path):
    assert pre_stop(tmp_path).wait(30) == 0
    assert not (tmp_path / "stop-requested").exists()


def test_pre_stop_asks_the_loop_to_stop_and_waits_for_it(tmp_path):
    (tmp_path / "training").touch()
    process = pre_stop(tmp_path)
    wait_for(tmp_path / "stop-requested")
    assert process.poll() is None
    (tmp_path / "training").unlink()
    assert process.wait(30) == 0


def test_ray_version_is_the_images():
    locked = (Path(__file__).parents[2] / "requirements" / "training.txt").read_text()
    match = re.search(r"^ray\S*==(\S+)", locked, re.MULTILINE)
    assert match is not None
    assert match[1] == rayjob.RAY_VERSION
