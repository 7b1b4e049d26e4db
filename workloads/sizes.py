"""How large a run's model is, by its name: what its disk and a GPU must hold."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any


def disk_gib(config: Mapping[str, Any]) -> int:
    """Scratch space in GiB that a trainer's config needs, from the size in the model's name.

    Twice the bf16 weights (the download and its cache), once more for an exported merged model, and
    50 GiB for data, checkpoints on their way out and Ray's own files. A name without a size, such
    as a gs:// folder, is taken for 32 billion parameters.
    """
    copies = 3 if config.get("export", {}).get("merged") else 2
    return 50 + round(copies * 2 * (_billions(config) or 32))


def weights_gib(config: Mapping[str, Any]) -> float | None:
    """The weights alone in a GPU's memory, in GiB; None for a name that tells no size."""
    billions = _billions(config)
    quantization = config.get("quantization", {})
    bits = 4 if quantization.get("load_in_4bit") else 8 if quantization.get("load_in_8bit") else 16
    return None if billions is None else billions * 1e9 * bits / 8 / 2**30


def _billions(config: Mapping[str, Any]) -> float | None:
    """Parameters in billions, by the model's name."""
    name = str(config["model"]["model_name_or_path"]).rstrip("/").rsplit("/", 1)[-1]
    match = re.search(r"(?<![\w.])(e?)(\d+(?:\.\d+)?)(m|b)(?![a-z0-9])", name.lower())
    if match is None:
        return None
    # Gemma's E4B counts what a token touches; its file holds about twice that.
    return float(match[2]) * (2 if match[1] else 1) * (0.001 if match[3] == "m" else 1)
