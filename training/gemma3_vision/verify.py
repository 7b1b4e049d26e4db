"""A fresh process that loads a run's adapter from its folder and compares it with the trainer's.

    python -m training.gemma3_vision.verify REQUEST.json

Prints one JSON line; exit code 78 where the adapter is not the trained one, or does nothing.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from training.common import sources
from training.common.config import EXIT_CODE
from training.common.storage import Folder
from training.gemma3_vision import data, evaluate, model
from training.gemma3_vision.config import Config, typed

# The same kernels on the same machine give the same numbers; a GPU may choose others for them.
TOLERANCE = {"cpu": 1e-4, "cuda": 5e-3}  # nats


def reload(config: Config, adapter: Path) -> tuple[Any, Any]:
    """(base model with the adapter in `adapter`, processor saved beside it)."""
    from peft import PeftModel

    weights = sources.fetch(config.model.model_name_or_path, config.model.model_revision, "model")
    base = model.load_base(config, weights)
    return PeftModel.from_pretrained(base, adapter), model.load_processor(adapter)


def compare(trainer: dict[str, Any], fresh: dict[str, Any], device: str) -> list[str]:
    """What is wrong with the saved adapter; empty when it equals the trainer's and has effect.

    Args:
        trainer: what `evaluate.probe` found there.
        fresh: the same of the reloaded one.
        device: cpu or cuda.
    """
    problems = [
        f"the {name} loss is {fresh[key]}, the trainer's {trainer[key]}"
        for name, key in (("tuned", "tuned_loss"), ("base's", "base_loss"))
        if not abs(fresh[key] - trainer[key]) <= TOLERANCE[device]  # so that NaN is wrong too
    ]
    if fresh["tuned_loss"] == fresh["base_loss"]:
        problems.append("the adapter changes nothing")
    if device == "cpu" and fresh["text"] != trainer["text"]:
        problems.append("the description differs from the trainer's")
    return problems


def main(request: Path) -> int:
    asked = json.loads(request.read_text(encoding="utf-8"))
    config, expected = typed(asked["config"]), asked["expected"]
    with tempfile.TemporaryDirectory() as folder:
        Folder(config.run.output_dir).download("adapter", folder)
        tuned, processor = reload(config, Path(folder))
    rows = sources.fetch(config.data.dataset_name, config.data.dataset_revision, "dataset")
    held_out = data.prepare(config.data, rows).held_out
    found = evaluate.probe(tuned, processor, held_out, config)
    problems = compare(expected, found, config.run.device)
    print(json.dumps({**found, "expected": expected, "problems": problems}))
    return EXIT_CODE if problems else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
