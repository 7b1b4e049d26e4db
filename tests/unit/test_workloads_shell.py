"""The shell of the containers, run by a real bash: exit codes, SIGTERM, the preStop hook."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from infra.schema import Settings
from training.gemma3_vision.eviction import Eviction
from workloads import plan, raycluster, rayjob
from workloads.job import LAUNCH, command
from workloads.pods import PodArgs
from workloads.run import Run
from workloads.trainers import CONFIG_FILE

WAIT = 120  # seconds, for what takes one on an idle machine


def launch(tmp_path: Path, script: str, check: str = "exit 0") -> subprocess.Popen[bytes]:
    """The container's shell around `script`; `check` stands for the trainer with --check."""
    stand_in = tmp_path / "bin" / "python"
    stand_in.parent.mkdir()
    stand_in.write_text(f'#!/bin/bash\necho "$@" > check-arguments\n{check}\n')
    stand_in.chmod(0o755)
    return subprocess.Popen(
        ["/bin/bash", "-c", LAUNCH, "a.trainer", "/bin/bash", "-c", script],
        env={
            "PATH": f"{stand_in.parent}:/usr/bin:/bin",
            "GEMMA_CONFIG_ERROR_FILE": str(tmp_path / "error"),
        },
        cwd=tmp_path,
    )


@pytest.mark.parametrize(
    ("nodes", "workers", "program"), [(1, 1, "python"), (1, 8, "accelerate"), (2, 1, "accelerate")]
)
def test_a_single_process_gets_sigterm_and_no_launcher(nodes, workers, program):
    run = {"workload": "gemma4-text", "nodes": nodes, "workersPerNode": workers}
    stack = {"project": "my-project", "region": "r", "stack": "dev", "accelerator": "nvidia-l4"}
    stack |= {"capacity": "spot", "runs": {"a": run}}
    (found,) = plan(Settings.model_validate(stack, by_name=True), "key")
    assert command(found)[3:5] == ["training.gemma4_text.train", program]


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + WAIT
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.02)


@pytest.mark.parametrize("code", [0, 1, 143])
def test_exit_code_of_the_trainer_is_the_containers(tmp_path, code):
    assert launch(tmp_path, f"exit {code}").wait(WAIT) == code


def test_a_config_error_is_told_apart_although_torchrun_hides_its_code(tmp_path):
    assert launch(tmp_path, "touch error; exit 1").wait(WAIT) == 78


@pytest.mark.parametrize("code", [1, 78])
def test_no_rank_starts_where_the_check_fails(tmp_path, code):
    assert launch(tmp_path, "touch started", check=f"exit {code}").wait(WAIT) == code
    assert not (tmp_path / "started").exists()
    asked = (tmp_path / "check-arguments").read_text().split()
    assert asked == ["-m", "a.trainer", "--config", CONFIG_FILE, "--check"]


def test_sigterm_during_the_check_ends_the_container(tmp_path):
    process = launch(tmp_path, "touch started", check="touch up; while :; do sleep 0.05; done")
    wait_for(tmp_path / "up")
    process.send_signal(signal.SIGTERM)
    assert process.wait(WAIT) == 143
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("check", ["kill -TERM $PPID; exec sleep 60", "kill -TERM $PPID"])
def test_sigterm_is_not_lost_where_the_shell_does_not_know_its_child_yet(tmp_path, check):
    """The moment the check starts; when it has ended, and the trainer is not there yet."""
    assert launch(tmp_path, "exec sleep 60", check=check).wait(50) == 143


def test_sigterm_reaches_the_trainer_and_its_checkpoint_is_waited_for(tmp_path):
    script = (
        "trap 'sleep 0.3; touch checkpoint; exit 143' TERM; touch up; while :; do sleep 0.05; done"
    )
    process = launch(tmp_path, script)
    wait_for(tmp_path / "up")
    process.send_signal(signal.SIGTERM)
    assert process.wait(WAIT) == 143
    assert (tmp_path / "checkpoint").exists()


def pre_stop(tmp_path: Path, seconds: int = 60) -> subprocess.Popen[bytes]:
    """The hook of a worker, with a `ray` that notes what it is called with."""
    script = raycluster.pre_stop(seconds).replace("/tmp/", f"{tmp_path}/").replace("sleep 8", ":")
    program(
        tmp_path / "ray",
        f"import pathlib, sys; pathlib.Path('{tmp_path}/drained').write_text(' '.join(sys.argv))",
    )
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    return subprocess.Popen(["/bin/bash", "-c", script], env=path)


@pytest.fixture
def evictions(tmp_path, monkeypatch):
    """What two ranks in the pod know of its end."""
    monkeypatch.setenv("GEMMA_TRAINING_FOLDER", str(tmp_path / "training"))
    monkeypatch.setenv("GEMMA_STOP_FILE", str(tmp_path / "stop-requested"))
    other = subprocess.Popen(["sleep", "60"])
    found = Eviction(), Eviction()
    found[1].training = tmp_path / "training" / str(other.pid)
    yield found, other
    other.kill()
    other.wait()


def test_pre_stop_does_not_hold_up_an_idle_worker(tmp_path):
    assert pre_stop(tmp_path).wait(WAIT) == 0
    assert not (tmp_path / "stop-requested").exists()
    assert not (tmp_path / "drained").exists()


def test_pre_stop_asks_the_ranks_to_stop_and_waits_for_the_last(tmp_path, evictions):
    (first, second), _ = evictions
    first.begin()
    second.begin()
    assert not first.asked()
    process = pre_stop(tmp_path)
    wait_for(tmp_path / "stop-requested")
    assert first.asked()
    first.end()
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1.5)  # it looks once a second
    assert not (tmp_path / "drained").exists()
    second.end()
    assert process.wait(WAIT) == 0
    assert "DRAIN_NODE_REASON_PREEMPTION" in (tmp_path / "drained").read_text()


def test_pre_stop_drains_the_node_where_no_checkpoint_comes_in_time(tmp_path, evictions):
    (rank, _), _ = evictions
    rank.begin()
    assert pre_stop(tmp_path, seconds=1).wait(WAIT) == 0
    assert rank.asked()
    assert (tmp_path / "drained").exists()


def test_a_rank_that_was_killed_holds_no_machine(tmp_path, evictions):
    (_, killed), process = evictions
    killed.begin()
    process.kill()
    process.wait()
    assert killed.training.exists()
    assert pre_stop(tmp_path).wait(WAIT) == 0


def test_config_of_a_run_on_a_shared_cluster_survives_all_shells(tmp_path):
    """KubeRay puts entrypoint and runtime env through bash, Ray the entrypoint through sh."""
    config = "a: $HOME `id` \"x\" 'y' \\\\ \n" + "b: ü\n" * 50
    body = rayjob.manifest(shared_run(), PodArgs("image"), "gemma", config=config, image_key="key")[
        "spec"
    ]
    entrypoint = body["entrypoint"].replace("/tmp/", f"{tmp_path}/")
    program(tmp_path / "ray", "import json, sys; print(json.dumps(sys.argv[1:]))")
    program(
        tmp_path / "python",
        "import pathlib, sys; print(pathlib.Path(sys.argv[-1]).read_text(), end='')",
    )
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    # As KubeRay's BuildJobSubmitCommand writes it, with Go's strconv.Quote.
    runtime_env = json.dumps(body["runtimeEnvYAML"])
    submit = f"ray job submit --runtime-env-json {runtime_env} -- {entrypoint} ;"
    arguments = json.loads(shell(submit, path))
    variables = json.loads(arguments[arguments.index("--runtime-env-json") + 1])["env_vars"]
    # As Ray's command line and job manager treat what follows `--`.
    line = shlex.join(arguments[arguments.index("--") + 1 :])
    assert shell(line, {**path, **variables}) == config


def shared_run() -> Run:
    run = {"workload": "gemma3-vision", "cluster": "lab"}
    stack = {"project": "my-project", "region": "r", "stack": "dev", "reservation": "r1"}
    (found,) = plan(Settings.model_validate({**stack, "runs": {"a": run}}, by_name=True), "key")
    return found


def program(path: Path, code: str) -> None:
    script = path.with_suffix(".code")
    script.write_text(code)
    # Not in its first line: that takes no path with a space.
    path.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, str(script)])} "$@"\n')
    path.chmod(0o755)


def shell(line: str, variables: dict[str, str]) -> str:
    done = subprocess.run(
        ["/bin/bash", "-c", line], env=variables, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_ray_version_is_the_images():
    locked = (Path(__file__).parents[2] / "requirements" / "training.txt").read_text()
    match = re.search(r"^ray\S*==(\S+)", locked, re.MULTILINE)
    assert match is not None
    assert match[1] == raycluster.RAY_VERSION


def test_ray_knows_the_drain_that_pre_stop_asks_for():
    from ray.scripts.scripts import cli

    (line,) = re.findall(r"^ray (drain-node .*?) &&", raycluster.pre_stop(1), re.M | re.S)
    name, *arguments = shlex.split(line.replace("\\\n", ""))
    asked = cli.commands[name].make_context(name, arguments).params
    assert asked["reason"] == "DRAIN_NODE_REASON_PREEMPTION"
    assert asked["deadline_remaining_seconds"] == 1
    assert asked["node_id"] is None  # Ray takes its own node
