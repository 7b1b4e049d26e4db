"""The text trainer's runs, shared by the tests that only look at what they left."""

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.training.text_runs import LENGTH, ROWS, STEPS, Launch, Run, follow, start
from training.common.config import merge


@pytest.fixture(scope="session")
def text_samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from training.samples import text_model, text_to_sql

    out = tmp_path_factory.mktemp("samples")
    text_to_sql.write(out / "data")
    text_model.write(out / "model", hidden=64, layers=2)
    return out


@pytest.fixture(scope="session")
def launch(text_samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Launch:
    """Start the trainer in a folder of its own, by name; `changes` are sections of its settings."""

    def run(
        name: str,
        processes: int,
        *,
        nodes: int = 1,
        disturb: tuple[str, signal.Signals] | None = None,
        **changes: dict[str, Any],
    ) -> Run:
        place = tmp_path_factory.getbasetemp() / f"run-{name}"
        place.mkdir(exist_ok=True)
        config = {
            "model": {"model_name_or_path": str(text_samples / "model"), "dtype": "float32"},
            "data": {
                "dataset_name": str(text_samples / "data"),
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
        }
        machines = start(place, merge(config, changes), processes, nodes)
        return Run(*follow(machines, disturb), place / "out")

    return run


@pytest.fixture(scope="session")
def sharded(launch: Launch) -> Run:
    """The reference: two processes, never interrupted, and an evaluation."""
    run = launch("sharded", 2)
    assert run.code == 0, run.said[-4000:]
    return run
