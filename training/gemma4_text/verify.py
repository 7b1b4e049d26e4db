"""Load the saved adapter in a fresh process, without FSDP, and say what it answers.

    python -m training.gemma4_text.verify REQUEST.json      # prints one JSON line

An adapter that loads and changes nothing (wrong module names), or that is not what the trainer
held (a shard, an empty file), shows here and not in production.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

from training.common import quiet

TOLERANCE = {"float32": 1e-3, "bfloat16": 3e-2, "float16": 3e-2}  # of a loss in nats, relative


def measure(request: dict[str, Any]) -> dict[str, Any]:
    """Losses of the given encoded rows, base and adapted.

    Args:
        request: model (folder), adapter (folder), dtype, device, attn_implementation and rows
            (encoded: input_ids, labels).
    """
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    from training.gemma4_text.evaluate import nll, pad

    base = AutoModelForCausalLM.from_pretrained(
        request["model"],
        dtype=getattr(torch, request["dtype"]),
        attn_implementation=request["attn_implementation"],
        device_map={"": request["device"]},
    )
    model = PeftModel.from_pretrained(base, request["adapter"]).eval()
    device = torch.device(request["device"])
    losses: dict[str, list[float]] = {"tuned": [], "base": []}
    with torch.no_grad():
        for row in request["rows"]:
            batch = pad([row], 0, device)
            losses["tuned"].append(_mean(nll(model, batch)))
            with model.disable_adapter():
                losses["base"].append(_mean(nll(model, batch)))
    return losses


def compare(trainer: dict[str, Any], fresh: dict[str, Any], dtype: str) -> list[str]:
    """What is wrong with the saved adapter; empty when it equals the trainer's and has effect."""
    found: list[str] = []
    limit = TOLERANCE[dtype]
    for name in ("tuned", "base"):
        for index, (a, b) in enumerate(zip(trainer[name], fresh[name], strict=True)):
            if not (math.isfinite(a) and abs(a - b) <= limit * max(1.0, abs(a))):
                found.append(
                    f"row {index}, {name}: the trainer's loss is {a:.5f}, reloaded {b:.5f}"
                )
    if all(a == b for a, b in zip(fresh["tuned"], fresh["base"], strict=True)):
        found.append("the reloaded adapter changes nothing")
    return found


def _mean(sums: tuple[float, int]) -> float:
    return sums[0] / max(sums[1], 1)


if __name__ == "__main__":
    quiet.libraries()
    asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    print(json.dumps(measure(asked)))
