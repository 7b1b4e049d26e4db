"""Fixtures of several files: the text trainer's runs, the vision trainer, a stand-in of the Hub."""

import json
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.training.asking import GEMMA
from tests.training.asking import ROWS as DATA
from tests.training.hub import Hub, Repository
from tests.training.text_runs import LENGTH, ROWS, STEPS, Launch, Run, follow, start
from training.common.config import merge

# Nothing that an earlier run, or one beside this, has left in the user's caches counts. The
# libraries look when they are imported, and the processes that tests start do too.
CACHES = tempfile.TemporaryDirectory(prefix="gemma-tests-")
os.environ["HF_HOME"] = f"{CACHES.name}/huggingface"
os.environ["GEMMA_SCRATCH"] = f"{CACHES.name}/scratch"


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


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The vision trainer's: a tiny Gemma 3 in `model`, pictures of products in `products`."""
    from training.samples import products, vision_model

    place = tmp_path_factory.mktemp("samples")
    vision_model.write(place / "model")
    products.write(place / "products")
    return place


@pytest.fixture(scope="session")
def processor(samples: Path) -> Any:
    from training.gemma3_vision import model

    return model.load_processor(samples / "model")


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMMA_SCRATCH", str(tmp_path / "scratch"))
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def make_trainer(samples: Path, processor: Any, tmp_path: Path) -> Callable[..., Any]:
    """(trainer, split, settings) of the vision trainer; `sections` change its settings."""
    from tests.training import vision_trainers

    return vision_trainers.trainer_maker(samples, processor, tmp_path)


def questions(number: int) -> bytes:
    """Rows of the text trainer, as JSON lines."""
    rows = [
        {"sql_prompt": f"q{i}?", "sql_context": "CREATE TABLE t (a INT)", "sql": f"SELECT {i}"}
        for i in range(number)
    ]
    return "\n".join(map(json.dumps, rows)).encode()


@pytest.fixture
def hub() -> Iterator[Hub]:
    """A Hub with a gated model, its rows, and a private model of jane's."""
    files = {"README.md": b"# card", "config.json": b"{}", "model.safetensors": b"w" * 1000}
    with Hub() as server:
        server.repositories[f"models/{GEMMA}"] = Repository(files, gated=True, accepted={"jane"})
        server.repositories[f"datasets/{DATA}"] = Repository({"train.jsonl": questions(12)})
        server.repositories["models/jane/secret"] = Repository(files, private=True, owner="jane")
        yield server
