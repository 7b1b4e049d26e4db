"""What is written besides the adapter: the merged model, and the adapter as vLLM needs it.

The merged model is the base with the adapter folded in, one file of weights at a time. A 31B model
is 62 GB in bfloat16: neither it nor the result is ever held whole, in memory or on disk, so the
merge fits the node that trained it.
"""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

from training.common.storage import Folder
from training.gemma4_text.config import UNMERGED


def merge(base: Path, adapter: Path, folder: Folder, scratch: Path) -> int:
    """Write the merged checkpoint to `merged/` in the run's folder; return the layers changed.

    Args:
        base: local folder of the base checkpoint.
        adapter: local folder of the saved adapter.
        folder: the run's folder.
        scratch: local folder for the file in hand.

    Raises:
        ValueError: an adapter that is more than W + scale * B A, or whose layers are not all in
            the base's files under their own names.
    """
    import torch
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    settings = json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8"))
    scale = _scale(settings)
    lora = load_file(adapter / "adapter_model.safetensors")
    pairs: dict[str, dict[str, torch.Tensor]] = {}
    for name, tensor in lora.items():
        layer, side, _ = name.removeprefix("base_model.model.").rsplit(".", 2)
        pairs.setdefault(f"{layer}.weight", {})[side] = tensor
    scratch.mkdir(parents=True, exist_ok=True)
    changed: set[str] = set()
    for file in sorted(base.glob("*.safetensors")):
        tensors: dict[str, torch.Tensor] = {}
        with safe_open(file, "pt") as stored:
            metadata: dict[str, str] = stored.metadata() or {}
            for name in stored.keys():  # noqa: SIM118 - not a dict
                weight = stored.get_tensor(name)
                pair = pairs.get(name)
                if pair is not None:
                    delta = pair["lora_B"].float() @ pair["lora_A"].float() * scale
                    weight = (weight.float() + delta).to(weight.dtype)
                    changed.add(name)
                tensors[name] = weight
        target = scratch / file.name
        save_file(tensors, target, metadata=metadata)
        folder.upload(target, f"merged/{file.name}")
        target.unlink()
        del tensors
    missing = sorted(pairs.keys() - changed)
    if missing:
        folder.delete("merged")
        raise ValueError(f"{len(missing)} adapted layers are not in the base, {missing[0]} first")
    for file in sorted(base.iterdir()):
        if file.is_file() and file.suffix in (".json", ".jinja", ".model", ".txt"):
            folder.upload(file, f"merged/{file.name}")
    shutil.rmtree(scratch, ignore_errors=True)
    return len(changed)


def for_vllm(base: Path, adapter: Path, target: Path) -> int:
    """Write the adapter for vLLM to `target`, where it needs another one; the layers completed.

    The global layers of Gemma 4 31B have no v_proj: the keys serve as values. vLLM gives them one,
    a copy of k_proj, and an adapter's change to k_proj would reach the keys alone. So here v_proj
    gets k_proj's adapter too. (PEFT needs the adapter without it.)

    Args:
        base: local folder of the base checkpoint.
        adapter: local folder of the saved adapter.
        target: local folder; written only if some layer lacks v_proj.
    """
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    names: set[str] = set()
    for file in base.glob("*.safetensors"):
        with safe_open(file, "pt") as stored:
            names.update(stored.keys())
    tensors = load_file(adapter / "adapter_model.safetensors")
    copies = {}
    for name, tensor in tensors.items():
        layer, found, _ = name.removeprefix("base_model.model.").partition(".k_proj.")
        if found and f"{layer}.k_proj.weight" in names and f"{layer}.v_proj.weight" not in names:
            copies[name.replace(".k_proj.", ".v_proj.")] = tensor.clone()
    if copies:
        shutil.copytree(adapter, target, dirs_exist_ok=True)
        file = target / "adapter_model.safetensors"
        save_file({**tensors, **copies}, file, metadata={"format": "pt"})
    return len(copies) // 2


def _scale(settings: dict[str, Any]) -> float:
    used = [name for name in UNMERGED if settings.get(name)]
    if used:
        raise ValueError(f"a streamed merge does not know {', '.join(used)}")
    rank = settings["r"]
    return settings["lora_alpha"] / (math.sqrt(rank) if settings.get("use_rslora") else rank)
