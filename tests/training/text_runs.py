"""Starts the text trainer as the Job does: FSDP2 on CPU processes, on one machine or several.

FSDP on CPUs comes from the sandbox's sitecustomize; the trainer's code is the product's own.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psutil
import yaml

from tests.ports import free_port
from training.common.config import merge
from training.gemma4_text.config import accelerate_config

REPOSITORY = Path(__file__).parents[2]
STEPS = 5
ROWS, LENGTH = 58, 640  # which pack into 40 sequences: one epoch of 5 steps of 8


@dataclass
class Run:
    """A finished launch: exit code, what it said, and the folder of the run."""

    code: int
    said: str
    folder: Path

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(x) for x in (self.folder / "metrics.jsonl").read_text().splitlines()]

    def losses(self) -> dict[int, float]:
        return {line["step"]: line["loss"] for line in self.lines() if "loss" in line}

    def result(self) -> dict[str, Any]:
        return json.loads((self.folder / "result.json").read_text())

    def adapter(self, name: str = "adapter") -> dict[str, Any]:
        from safetensors.torch import load_file

        return load_file(self.folder / name / "adapter_model.safetensors")


Launch = Callable[..., Run]


def start(
    place: Path, config: dict[str, Any], processes: int, nodes: int = 1, log: IO[str] | int = -1
) -> list["subprocess.Popen[str]"]:
    """One launcher a machine; `config` gets its section `run`, with the results in `place`/out.

    Args:
        place: folder for the configuration, the results and each machine's scratch.
        config: sections of the trainer's configuration.
        processes: over all machines.
        nodes: machines.
        log: where the first machine's output goes, a pipe by default.
    """
    run = {"output_dir": str(place / "out"), "name": "test", "device": "cpu", "nodes": nodes}
    run |= {"workers_per_node": processes // nodes}
    (place / "run.yaml").write_text(yaml.safe_dump(merge({"run": run}, config)))
    launcher = accelerate_config(nodes, processes // nodes, "cpu")
    (place / "accelerate.yaml").write_text(yaml.safe_dump(launcher))
    command = [sys.executable]
    if processes > 1:  # as the Job does
        command += ["-m", "accelerate.commands.launch"]
        command += ["--config_file", str(place / "accelerate.yaml")]
        command += ["--main_process_ip", "127.0.0.1", "--main_process_port", str(free_port())]
        command += ["--machine_rank", "{node}"]
    command += ["-m", "training.gemma4_text.train", "--config", str(place / "run.yaml")]
    environment = {
        **os.environ,
        "ACCELERATE_USE_CPU": "true",
        "HF_HUB_OFFLINE": os.environ.get("HF_HUB_OFFLINE", "1"),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": f"{REPOSITORY / 'sandbox' / 'pod_site'}:{REPOSITORY}",
        "PYTHONUNBUFFERED": "1",
    }
    return [
        subprocess.Popen(
            [word.format(node=node) for word in command],
            env={**environment, "GEMMA_SCRATCH": str(place / f"scratch-{node}")},
            cwd=place,
            stdout=log if node == 0 else subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for node in range(nodes)
    ]


def follow(
    machines: "list[subprocess.Popen[str]]", disturb: tuple[str, signal.Signals] | None = None
) -> tuple[int, str]:
    """(exit code, output) once all machines have ended.

    `disturb` is how a line begins and the signal that is then sent: SIGTERM to the launcher, as
    Kubernetes does, SIGKILL to all processes, as a lost machine does.
    """
    first, said = machines[0], ""
    assert first.stdout is not None
    for line in first.stdout:
        said += line
        if disturb is not None and line.startswith(disturb[0]):
            if disturb[1] == signal.SIGKILL:
                time.sleep(random.random() / 2)  # a checkpoint takes about that long
                launcher = psutil.Process(first.pid)
                for one in [launcher, *launcher.children(recursive=True)]:
                    with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
                        one.kill()
            else:
                first.send_signal(disturb[1])
            disturb = None
    return max((machine.wait() for machine in machines), key=abs), said
