"""A sandbox in which the benches run real trainers on tiny models, and disturb them."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

from tests.engine.workloads.simulation import (
    ARGS,
    Simulation,
    manifests,
    runs_of,
    wait_until,
)
from workloads.run import Run

REPOSITORY = Path(__file__).parents[2]
CPU = {"accelerator": "cpu", "capacity": "on-demand", "reservation": None}
STEP = re.compile(r"step (\d+)/\d+  loss")
BEGUN = re.compile(r"(?:starting|resuming) at step")


def text(steps: int, model: str = "tiny-gemma4-text", **keys: Any) -> dict[str, Any]:
    """A text-to-SQL run of so many steps, each one logged and every tenth one saved."""
    data = {"dataset_name": "gs://gemma-samples/data/text-to-sql"}
    sft = {"max_steps": steps, "save_steps": 10, "logging_steps": 1, "max_length": 256}
    sft |= {"learning_rate": 1e-3, "gradient_accumulation_steps": 1}
    return {
        "workload": "gemma4-text",
        "trainer": {
            "model": {"model_name_or_path": f"gs://gemma-samples/models/{model}"},
            "data": {**data, "train_rows": 160, "held_out_rows": 40},
            "sft": sft,
            "evaluation": {"rows": 4, "baseline": False, "max_new_tokens": 8},
        },
        **keys,
    }


def vision(steps: int, model: str = "tiny-gemma3-vision", **keys: Any) -> dict[str, Any]:
    """A vision run on two Ray workers, the same way."""
    sft = {"max_steps": steps, "save_steps": 10, "logging_steps": 1, "bf16": False}
    sft |= {"activation_checkpointing": False, "gradient_accumulation_steps": 1}
    return {
        "workload": "gemma3-vision",
        "nodes": 2,
        "workers_per_node": 1,
        "trainer": {
            "model": {"model_name_or_path": f"gs://gemma-samples/models/{model}"},
            "data": {"dataset_name": "gs://gemma-samples/data/products"},
            "sft": {**sft, "dataloader_num_workers": 0},
            "evaluation": {"rows": 2, "max_new_tokens": 8},
        },
        **keys,
    }


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

    def submit(self, **runs: dict[str, Any]) -> list[Run]:
        """Runs on the CPU, by name; all their objects are on the API server afterwards."""
        found = runs_of(runs, **CPU)
        self.apply(*(body for run in found for body in manifests(run)))
        return found

    def logs(self, run: Run) -> list[str]:
        """What each of the run's log sources has written, the oldest first."""
        source = "trainer" if run.kind == "Job" else "ray-job-submitter"
        files = self.sandbox.folder.pod_logs.glob(f"*_{run.object_name}-*/{source}/*")
        return [file.read_text(errors="replace") for file in sorted(files, key=_made)]

    def attempts(self, run: Run) -> list[list[int]]:
        """The steps that each attempt has logged: a pod of a Job, a worker group of Ray Train."""
        logs = self.logs(run)
        if run.kind == "RayJob":
            logs = BEGUN.split("\n".join(logs))
        found = [[int(step) for step in STEP.findall(log)] for log in logs]
        return [steps for steps in found if steps]

    def results(self, run: Run) -> Path:
        """A fresh copy of what the run has left in the bucket."""
        target = self.sandbox.folder.root / "fetched" / run.object_name
        shutil.rmtree(target, ignore_errors=True)
        uri = f"gs://bucket/{run.path}"
        self.sandbox.run(["python", "-m", "sandbox.bucket", "download", uri, str(target)])
        return target

    def check_end(self, run: Run, steps: int) -> None:
        """The run ends well, with every step counted once."""
        wait_until(f"the end of {run.name}", lambda: self.ended(run), 1200)
        results = self.results(run)
        lines = map(json.loads, (results / "metrics.jsonl").read_text().splitlines())
        assert [line["step"] for line in lines if "loss" in line] == [*range(1, steps + 1)]
        assert (results / "result.json").exists()

    def ended(self, run: Run) -> bool:
        """Whether it has succeeded; a failure is an error."""
        status = self.get(run.kind.lower(), run.object_name).get("status", {})
        conditions = {condition["type"] for condition in status.get("conditions", [])}
        assert "Failed" not in conditions, status
        assert status.get("jobDeploymentStatus") != "Failed", status
        return "Complete" in conditions or status.get("jobStatus") == "SUCCEEDED"

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
