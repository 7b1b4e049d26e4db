"""The text trainer as the Job starts it: FSDP2 on two CPU processes, against one process.

FSDP on CPUs comes from the sandbox's sitecustomize; the trainer's code is the product's own.
"""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

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


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from training.samples import text_model, text_to_sql

    out = tmp_path_factory.mktemp("samples")
    text_to_sql.write(out / "data")
    text_model.write(out / "model", hidden=64, layers=2)
    return out


Launch = Callable[..., Run]


@pytest.fixture(scope="session")
def launch(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Launch:
    """Start the trainer in a folder of its own.

    `disturb` is how a line begins and the signal that is then sent: SIGTERM to the launcher, as
    Kubernetes does, SIGKILL to all processes, as a lost machine does.
    """

    def start(
        name: str,
        processes: int,
        *,
        nodes: int = 1,
        disturb: tuple[str, signal.Signals] | None = None,
        **changes: dict[str, Any],
    ) -> Run:
        place = tmp_path_factory.getbasetemp() / f"run-{name}"
        place.mkdir(exist_ok=True)
        config = merge(
            {
                "model": {"model_name_or_path": str(samples / "model"), "dtype": "float32"},
                "data": {
                    "dataset_name": str(samples / "data"),
                    "train_rows": ROWS,
                    "held_out_rows": 8,
                    "accumulate": "sequences",
                },
                "sft": {
                    "max_length": LENGTH,
                    "max_steps": STEPS,
                    "per_device_train_batch_size": 4 // processes,
                    "gradient_accumulation_steps": 2,
                    "learning_rate": 5e-3,
                    "bf16": False,
                    "save_steps": 2,
                    "eval_strategy": "no",
                },
                "lora": {"lora_dropout": 0.0},
                "evaluation": {"rows": 4, "batch_size": 2, "max_new_tokens": 4},
                "run": {
                    "output_dir": str(place / "out"),
                    "name": "test",
                    "device": "cpu",
                    "nodes": nodes,
                    "workers_per_node": processes // nodes,
                },
            },
            changes,
        )
        (place / "run.yaml").write_text(yaml.safe_dump(config))
        launcher = accelerate_config(nodes, processes // nodes, "cpu")
        (place / "accelerate.yaml").write_text(yaml.safe_dump(launcher))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        command = [sys.executable, "-m", "accelerate.commands.launch"]
        command += ["--config_file", str(place / "accelerate.yaml")]
        command += ["--main_process_ip", "127.0.0.1", "--main_process_port", port]
        command += ["--machine_rank", "{node}", "-m", "training.gemma4_text.train"]
        command += ["--config", str(place / "run.yaml")]
        environment = {
            **os.environ,
            "ACCELERATE_USE_CPU": "true",
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": f"{REPOSITORY / 'sandbox' / 'pod_site'}:{REPOSITORY}",
            "PYTHONUNBUFFERED": "1",
        }
        machines = [
            subprocess.Popen(
                [word.format(node=node) for word in command],
                env={**environment, "GEMMA_SCRATCH": str(place / f"scratch-{node}")},
                cwd=place,
                stdout=subprocess.PIPE if node == 0 else subprocess.DEVNULL,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for node in range(nodes)
        ]
        process = machines[0]
        said: list[str] = []
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line)
            if disturb is not None and line.startswith(disturb[0]):
                if disturb[1] == signal.SIGKILL:
                    time.sleep(random.random() / 2)  # a checkpoint takes about that long
                    launcher = psutil.Process(process.pid)
                    for one in [launcher, *launcher.children(recursive=True)]:
                        one.kill()
                else:
                    process.send_signal(disturb[1])
                disturb = None
        codes = [machine.wait() for machine in machines]
        return Run(max(codes, key=abs), "".join(said), place / "out")

    return start


@pytest.fixture(scope="session")
def sharded(launch: Launch) -> Run:
    """The reference: two processes, never interrupted, and an evaluation."""
    run = launch("sharded", 2)
    assert run.code == 0, run.said[-4000:]
    return run


def adapter(run: Run) -> dict[str, Any]:
    from safetensors.torch import load_file

    return load_file(run.folder / "adapter" / "adapter_model.safetensors")


def test_a_run_leaves_all_that_is_promised(sharded: Run, samples: Path):
    names = {path.name for path in sharded.folder.iterdir()}
    assert names >= {
        *("adapter", "checkpoints", "tensorboard", "config.yaml"),
        *("metrics.jsonl", "evaluation.json", "report.html", "result.json"),
    }
    assert list(sharded.losses()) == list(range(1, STEPS + 1))
    evaluation = json.loads((sharded.folder / "evaluation.json").read_text())
    assert evaluation["tuned"]["held_out_loss"] < evaluation["base"]["held_out_loss"]
    assert evaluation["tuned"]["judged"] == 4
    resolved = yaml.safe_load((sharded.folder / "config.yaml").read_text())
    assert resolved["sft"]["max_steps"] == STEPS
    assert "equals the trainer's" in sharded.said
    page = (sharded.folder / "report.html").read_text()
    assert "<polyline" in page
    kept = {path.name for path in (sharded.folder / "checkpoints").iterdir()}
    assert kept == {"step-000002", "step-000004", "step-000005"}


def test_two_sharded_processes_train_what_one_process_trains(
    sharded: Run, launch: Launch, samples: Path
):
    base = f"file://{samples / 'model'}"  # read as a bucket's folder is
    alone = launch("alone", 1, model={"model_name_or_path": base})
    assert alone.code == 0, alone.said[-4000:]
    saved = json.loads((alone.folder / "adapter" / "adapter_config.json").read_text())
    assert saved["base_model_name_or_path"] == base  # not the pod's copy of it
    for noise in ("Could not find a config file", "gemm_4bit_forward"):
        assert noise not in alone.said
    assert alone.losses() == pytest.approx(sharded.losses(), abs=1e-4)
    one, two = adapter(alone), adapter(sharded)
    assert one.keys() == two.keys()
    for name, tensor in one.items():
        assert (tensor - two[name]).abs().max() < 2e-3, name
    figures = [run.result()["evaluation"]["tuned"]["held_out_loss"] for run in (alone, sharded)]
    assert figures[0] == pytest.approx(figures[1], abs=1e-3)


def test_a_run_that_is_stopped_and_killed_ends_as_if_it_never_had_been(
    sharded: Run, launch: Launch
):
    changes = {"fsdp": {"state_dict_type": "SHARDED_STATE_DICT"}}
    step = random.randint(1, STEPS - 3)
    stopped = launch("stopped", 2, disturb=(f"step {step}/", signal.SIGTERM), **changes)
    assert stopped.code != 0
    assert not (stopped.folder / "result.json").exists()
    assert "checkpoint complete" in stopped.said, stopped.said[-4000:]
    # Lost while it resumes, then while it saves: neither leaves anything that stands in the way.
    for moment in ("resuming from", f"step {STEPS}/"):
        lost = launch("stopped", 2, disturb=(moment, signal.SIGKILL), **changes)
        assert lost.code == -signal.SIGKILL, lost.said[-4000:]
        assert "resuming from" in lost.said
    resumed = launch("stopped", 2, **changes)
    assert resumed.code == 0, resumed.said[-4000:]
    assert "resuming from" in resumed.said
    assert resumed.losses() == pytest.approx(sharded.losses(), abs=1e-6)
    for name, tensor in adapter(resumed).items():
        assert (tensor - adapter(sharded)[name]).abs().max() < 1e-5, name


def test_a_run_that_died_after_its_last_step_trains_no_more(launch: Launch):
    steps = {"sft": {"max_steps": 2}}
    first = launch("short", 1, **steps)
    assert first.code == 0, first.said[-4000:]
    trained = adapter(first)
    (first.folder / "result.json").unlink()
    again = launch("short", 1, **steps)
    assert again.code == 0, again.said[-4000:]
    assert again.losses().keys() == {1, 2}
    assert again.result()["steps"] == 2
    for name, tensor in adapter(again).items():
        assert bool((tensor == trained[name]).all()), name


def test_two_machines_meet_and_each_uploads_its_part(sharded: Run, launch: Launch):
    apart = launch("apart", 2, nodes=2)
    assert apart.code == 0, apart.said[-4000:]
    assert apart.losses() == pytest.approx(sharded.losses(), abs=1e-6)
    newest = apart.folder / "checkpoints" / "step-000005"
    files = json.loads((newest / "manifest.json").read_text())["files"]
    assert {"rng_state_0.pth", "rng_state_1.pth"} <= set(files)
    parts = sorted(newest.glob("part-*.json"))
    assert [path.stem[-1] for path in parts] == ["0", "1"]
    assert "rng_state_1.pth" in json.loads(parts[1].read_text())


def test_a_finished_run_is_not_run_again(sharded: Run, launch: Launch):
    before = sharded.result()
    again = launch("sharded", 2)
    assert again.code == 0
    assert "already complete" in again.said
    assert again.result() == before


def test_the_adapter_is_whole_and_on_the_language_model_only(sharded: Run, samples: Path):
    from transformers import AutoModelForCausalLM

    saved = adapter(sharded)
    base = AutoModelForCausalLM.from_pretrained(samples / "model")
    ends = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    linears = {
        name: module
        for name, module in base.named_modules()
        if "language_model" in name and name.endswith(ends)
    }
    wanted = {
        f"base_model.model.{name}.lora_{side}.weight": shape
        for name, module in linears.items()
        for side, shape in (
            ("A", (16, module.in_features)),
            ("B", (module.out_features, 16)),
        )
    }
    assert {name: tuple(tensor.shape) for name, tensor in saved.items()} == wanted
    moved = [name for name, tensor in saved.items() if "lora_B" in name and tensor.abs().max() > 0]
    assert len(moved) == len(wanted) / 2  # lora_B starts at zero


# Where vLLM has the linear layers of Gemma 4's language model, and which of a checkpoint's layers
# it joins in each: Gemma4ForConditionalGeneration in vllm/model_executor/models/gemma4_mm.py and
# gemma4.py. An adapter under any other name is loaded and changes nothing (vllm#34186, #41754).
VLLM_PREFIX = {"model.language_model.": "language_model.model."}
VLLM_LAYERS = {
    "self_attn.qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "self_attn.o_proj": ("o_proj",),
    "mlp.gate_up_proj": ("gate_proj", "up_proj"),
    "mlp.down_proj": ("down_proj",),
}


def test_vllm_finds_a_layer_for_every_tensor_of_the_adapter(sharded: Run):
    from safetensors.torch import load_file

    served = {
        f"language_model.model.layers.{index}.{joined.rsplit('.', 1)[0]}.{part}"
        for index in range(2)
        for joined, parts in VLLM_LAYERS.items()
        for part in parts
    }
    (old, new), *_ = VLLM_PREFIX.items()
    folder = sharded.folder / "adapter-vllm"
    tensors = load_file(folder / "adapter_model.safetensors")
    found: set[str] = set()
    for name in tensors:
        path, side, kind = name.removeprefix("base_model.model.").rsplit(".", 2)
        assert (side, kind) in (("lora_A", "weight"), ("lora_B", "weight"))
        assert path.startswith(old)
        found.add(path.replace(old, new, 1))
    assert found == served
    # The second layer is global and has no v_proj: its keys serve as values. vLLM gives it one, a
    # copy of k_proj's weight (load_weights in gemma4.py): k_proj's adapter is needed there too.
    saved = adapter(sharded)
    ours = "base_model.model.model.language_model.layers.1.self_attn.{}_proj.lora_{}.weight"
    added = {ours.format("v", side): ours.format("k", side) for side in "AB"}
    assert tensors.keys() - saved.keys() == added.keys()
    assert all(bool((tensors[new] == saved[old]).all()) for new, old in added.items())
    assert all(bool((tensors[name] == tensor).all()) for name, tensor in saved.items())
    settings = json.loads((folder / "adapter_config.json").read_text())
    refused = {
        "bias": "none",
        "use_dora": False,
        "modules_to_save": None,
    }  # vllm/lora/peft_helper.py
    assert {key: settings[key] for key in refused} == refused


def test_tokens_are_counted_as_the_data_has_them(sharded: Run, samples: Path):
    from transformers import AutoTokenizer

    from training.gemma4_text import data
    from training.gemma4_text.config import DataConfig, resolve

    settings = DataConfig(
        **{
            **resolve({})["data"],
            "dataset_name": str(samples / "data"),
            "train_rows": ROWS,
            "held_out_rows": 8,
        }
    )
    tokenizer = AutoTokenizer.from_pretrained(samples / "model")
    split = data.split(data.read(samples / "data", settings), settings)
    rows = data.tokenise(tokenizer, split.train, settings, LENGTH)
    counted = data.counts(rows)
    lines = [line for line in sharded.lines() if "loss" in line]
    assert lines[-1]["epoch"] == 1
    assert sum(line["tokens"] for line in lines) == counted["tokens"]
    assert sum(line["trained_tokens"] for line in lines) == counted["trained_tokens"]
    assert sum(line["padding"] for line in lines) == 0
