"""Runs that are disturbed and go on: real trainers, tiny models, the sandbox's own node.

    pytest -q -s tests/bench/recovery.py        (about ten minutes each on two cores)

A killed worker process, a killed rank 0, a deleted pod (SIGTERM, the grace period, a checkpoint),
a restarted API server: after each the run resumes from its newest complete checkpoint and ends
well, every step counted once in its metrics.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.engine.workloads.simulation import (
    ARGS,
    NAMESPACE,
    Simulation,
    manifests,
    runs_of,
    wait_until,
)
from workloads.run import Run

REPOSITORY = Path(__file__).parents[2]
CPU = {"accelerator": "cpu", "capacity": "on-demand", "reservation": None}
STEPS = 60
TEXT = {
    "workload": "gemma4-text",
    "workers_per_node": 2,
    "trainer": {
        "model": {"model_name_or_path": "gs://gemma-samples/models/tiny-gemma4-text"},
        "data": {
            "dataset_name": "gs://gemma-samples/data/text-to-sql",
            "train_rows": 160,
            "held_out_rows": 40,
        },
        "sft": {"max_steps": STEPS, "save_steps": 2, "logging_steps": 1, "max_length": 256,
                "learning_rate": 1e-3, "gradient_accumulation_steps": 1},
        "evaluation": {"rows": 4, "baseline": False, "max_new_tokens": 8},
    },
}  # fmt: skip
VISION = {
    "workload": "gemma3-vision",
    "nodes": 2,
    "workers_per_node": 1,
    "trainer": {
        "model": {"model_name_or_path": "gs://gemma-samples/models/tiny-gemma3-vision"},
        "data": {"dataset_name": "gs://gemma-samples/data/products"},
        "sft": {"max_steps": STEPS, "save_steps": 2, "logging_steps": 1, "bf16": False,
                "activation_checkpointing": False, "gradient_accumulation_steps": 1,
                "dataloader_num_workers": 0},
        "evaluation": {"rows": 2, "max_new_tokens": 8},
    },
}  # fmt: skip


class Lab(Simulation):
    """A sandbox whose node really runs pods, with the image and the samples in place."""

    run_pods = True

    def __enter__(self) -> Lab:
        super().__enter__()
        folder = self.sandbox.folder
        image = folder.images / f"sha256-{str(ARGS.image).rsplit(':', 1)[-1]}"
        shutil.copytree(REPOSITORY / "training", image / "training")
        shutil.copy(REPOSITORY / "training" / "Dockerfile", image / "Dockerfile")
        samples = Path(os.environ.get("GEMMA_SAMPLES") or folder.root / "samples")
        if not samples.exists():
            self.sandbox.run(["python", "-m", "training.samples.make", str(samples)])
        upload = ["python", "-m", "sandbox.bucket", "upload"]
        self.sandbox.run([*upload, str(samples), "gs://gemma-samples"])
        empty = folder.root / "empty"
        (empty / "made").mkdir(parents=True)
        (empty / "made" / "by-the-test").touch()
        self.sandbox.run([*upload, str(empty), "gs://bucket"])
        return self

    def log(self, run: Run) -> str:
        """All that the run's log sources have written, over all attempts."""
        folder = self.sandbox.folder.pod_logs
        names = ("trainer", "ray-job-submitter")
        paths = [p for p in folder.rglob("*") if p.is_file() and any(n in str(p) for n in names)]
        mine = [path for path in paths if run.object_name in str(path)]
        return "\n".join(path.read_text(errors="replace") for path in sorted(mine, key=_made))

    def last_step(self, run: Run) -> int:
        """The newest step in the run's metrics."""
        return max((line["step"] for line in self.metrics(run)), default=0)

    def metrics(self, run: Run) -> list[dict[str, float]]:
        """The run's training metrics as the bucket has them."""
        target = self.sandbox.folder.root / "fetched"
        uri = f"gs://bucket/{run.path}"
        command = ["python", "-m", "sandbox.bucket", "download", uri, str(target)]
        self.sandbox.run(command, check=False)
        path = target / "metrics.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [m for m in map(json.loads, lines) if "loss" in m]

    def kill(self, pattern: str, variable: str = "") -> None:
        """SIGKILL to one process in the sandbox, pods included.

        Args:
            pattern: of its command line.
            variable: `NAME=VALUE` that its environment holds, if that matters.
        """
        for pid in _descendants(os.getpid()):
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                environment = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
            except OSError:
                continue
            if re.search(pattern, command) and (not variable or variable in environment):
                os.kill(pid, signal.SIGKILL)
                return
        raise AssertionError(f"no process {pattern} {variable}")


def _descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit():
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
        except OSError:
            continue  # it has ended meanwhile
    found, queue = [], [root]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def _made(path: Path) -> float:
    return path.stat().st_ctime


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with Lab(tmp_path_factory.mktemp("recovery")) as running:
        yield running


def disturb(lab: Lab, run: Run, what: str, action) -> None:
    """Do something to a run that has trained further, then wait until it trains again."""
    before = lab.last_step(run)
    step = wait_until(
        f"a step after {before}", lambda: (s := lab.last_step(run)) > before + 2 and s, 600
    )
    began = time.monotonic()
    action()
    reached = lab.last_step(run)  # it trains on until it is really gone
    wait_until(f"training after: {what}", lambda: lab.last_step(run) > reached, 900)
    print(f"{what} at step {step}: training again after {time.monotonic() - began:.0f} s")


def check_end(lab: Lab, run: Run, ended) -> None:
    wait_until("the run's end", ended, 1200)
    steps = [line["step"] for line in lab.metrics(run)]
    assert steps == sorted(set(steps)), "a step is counted twice"
    assert steps[-1] == STEPS
    assert (lab.sandbox.folder.root / "fetched" / "result.json").exists()


def test_text_job(lab):
    (run,) = runs_of({"text": TEXT}, **CPU)
    lab.apply(*manifests(run))
    trainer = r"python.* -m training\.gemma4_text\.train"

    def delete_pod() -> None:
        (pod,) = [p for p in lab.pods() if p["status"]["phase"] == "Running"]
        lab.kubectl("delete", "pod", pod["metadata"]["name"], "-n", NAMESPACE)

    disturb(lab, run, "a worker process killed", lambda: lab.kill(trainer, "RANK=1"))
    disturb(lab, run, "rank 0 killed", lambda: lab.kill(trainer, "RANK=0"))
    disturb(lab, run, "the pod deleted (SIGTERM)", delete_pod)
    disturb(lab, run, "the API server killed", lambda: lab.kill(r"/kube-apiserver "))
    check_end(lab, run, lambda: lab.get("job", run.object_name)["status"].get("succeeded"))


def test_vision_ray_job(lab):
    (run,) = runs_of({"vision": VISION}, **CPU)
    lab.apply(*manifests(run))

    def delete(kind: str) -> None:
        pod = lab.pods(**{"ray.io/node-type": kind})[-1]
        lab.kubectl("delete", "pod", pod["metadata"]["name"], "-n", NAMESPACE)

    disturb(lab, run, "a training process killed", lambda: lab.kill(r"^ray::\S*Worker"))
    disturb(lab, run, "a worker pod deleted", lambda: delete("worker"))
    disturb(lab, run, "the head pod deleted", lambda: delete("head"))
    disturb(lab, run, "the API server killed", lambda: lab.kill(r"/kube-apiserver "))
    check_end(
        lab,
        run,
        lambda: lab.get("rayjob", run.object_name)["status"].get("jobStatus") == "SUCCEEDED",
    )
    wait_until("the Ray cluster's end", lambda: not lab.pods(**{"ray.io/node-type": "worker"}))
