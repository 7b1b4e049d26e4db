"""The base model, its adapter, and how both are sharded.

Rank 0 alone reads the weights; the other ranks build the model without storage, and FSDP2 hands
each its shard. So the host's memory over all ranks is one copy of the model at most: where shards
lie on GPUs, the page cache of the file that rank 0 reads.

What must be known of a model (wrap class, linear layers of the language model) is found from the
model itself, so any Gemma text model trains here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from training.common.config import ConfigError, Problem
from training.gemma4_text.config import FsdpConfig, ModelConfig

TOWERS = ("vision_tower", "audio_tower", "embed_vision", "embed_audio", "multi_modal_projector")


def load(folder: Path, model: ModelConfig, *, weights: bool) -> Any:
    """The base model in its dtype, on the CPU; without `weights` on the meta device.

    Weights stored in `model.dtype` are mapped from their files and not copied: what rank 0 reads is
    page cache, which the kernel takes back when memory is short.

    Args:
        folder: local folder of the checkpoint.
        model: dtype and attention.
        weights: whether this rank reads them.

    Raises:
        ConfigError: no model for text, or an attention that it does not have.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    dtype = getattr(torch, model.dtype)
    options: dict[str, Any] = {"dtype": dtype, "attn_implementation": model.attn_implementation}
    try:
        if weights:
            loaded = AutoModelForCausalLM.from_pretrained(folder, **options)
        else:
            config = AutoConfig.from_pretrained(folder)
            with torch.device("meta"):
                loaded = AutoModelForCausalLM.from_config(config, **options)
    except ValueError as error:
        said = str(error)
        if "Unrecognized" in said or "does not recognize this architecture" in said:
            key, value = "trainer.model.model_name_or_path", model.model_name_or_path
            allowed = f"a Gemma text model ({said.splitlines()[0]})"
        elif "attn_implementation" in said or "attention" in said.lower():
            key, value, allowed = (
                "trainer.model.attn_implementation",
                model.attn_implementation,
                said,
            )
        else:
            raise
        raise ConfigError([Problem(key, value, allowed)]) from error
    loaded.config.use_cache = False
    return loaded


def decoder_layers(model: nn.Module) -> tuple[str, list[str]]:
    """(class name of the language model's layers, their module names).

    Raises:
        ConfigError: no list of decoder layers is found; the model is not supported.
    """
    named = dict(model.named_modules())
    lists = {
        name: module
        for name, module in named.items()
        if isinstance(module, nn.ModuleList)
        and name.endswith("layers")
        and not any(tower in name for tower in TOWERS)
        and len(module) > 0
        and hasattr(module[0], "self_attn")
    }
    if len(lists) != 1:
        allowed = f"a Gemma text model; {type(model).__name__} has {len(lists)} stacks of layers"
        raise ConfigError([Problem("trainer.model.model_name_or_path", str(lists), allowed)])
    (name, layers), *_ = lists.items()
    return type(layers[0]).__name__, [f"{name}.{index}" for index in range(len(layers))]


def wrap_class(model: nn.Module, fsdp: FsdpConfig) -> str:
    """Class of the layers that FSDP2 shards one by one.

    Raises:
        ConfigError: the class named in the configuration is not in the model.
    """
    found, _ = decoder_layers(model)
    wanted = fsdp.transformer_layer_cls_to_wrap
    if wanted is None:
        return found
    names = {type(module).__name__ for module in model.modules()}
    if wanted not in names:
        allowed = f"a class of the model's layers ({found}), or null to find it"
        key = "trainer.fsdp.transformer_layer_cls_to_wrap"
        raise ConfigError([Problem(key, wanted, allowed)])
    return wanted


def lora_config(model: nn.Module, lora: Mapping[str, Any]) -> Any:
    """PEFT's configuration for adapters on linear layers of the language model, and no others.

    Endings of names are kept as they are (serving engines read them); what lies outside of the
    language model is excluded by a pattern: towers have layers of the same names, and their
    Gemma4ClippableLinear takes no adapter.

    Args:
        model: the base model.
        lora: keys of LoraConfig; `target_modules` are endings such as `q_proj`, `all-linear`, or a
            regular expression for whole names.

    Raises:
        ConfigError: the targets match nothing.
    """
    from peft import LoraConfig

    _, layers = decoder_layers(model)
    stack = layers[0].rsplit(".", 1)[0] + "."
    linears = [
        path
        for path, module in model.named_modules()
        if isinstance(module, nn.Linear) and path.startswith(stack)
    ]
    endings = sorted({path.rsplit(".", 1)[1] for path in linears})
    wanted = lora.get("target_modules") or "all-linear"
    if wanted == "all-linear":
        wanted = endings
    if isinstance(wanted, str):
        matched = [path for path in linears if re.fullmatch(wanted, path)]
        missing = [] if matched else [wanted]
    else:
        missing = [end for end in wanted if not any(p.endswith(f".{end}") for p in linears)]
    if missing:
        allowed = f"endings of the language model's linear layers: {', '.join(endings)}"
        raise ConfigError([Problem("trainer.lora.target_modules", missing, allowed)])
    settings = {
        "exclude_modules": rf"(?!{re.escape(stack)}).*",
        **lora,
        "target_modules": wanted,
    }
    return LoraConfig(task_type="CAUSAL_LM", **settings)


def materialise(model: nn.Module) -> None:
    """Give storage to what FSDP2 will not hand out: trainable parameters and buffers.

    accelerate's own loading on rank 0 fails on Gemma 4, whose layers keep a scalar as a persistent
    buffer ('Tensor' object has no attribute 'device_mesh', accelerate 1.15), and maps optimizer
    parameters by address, which the meta device has none of. So trainable parameters become empty
    CPU tensors (FSDP2 then copies rank 0's values), and buffers leave the state dict and are
    broadcast here. Can go when accelerate loads persistent buffers.
    """
    for module in model.modules():
        for name, parameter in list(module._parameters.items()):
            if parameter is not None and parameter.requires_grad and parameter.is_meta:
                empty = torch.empty_like(parameter, device="cpu")
                module._parameters[name] = nn.Parameter(empty)
        for name, buffer in list(module._buffers.items()):
            if buffer is None:
                continue
            if buffer.is_meta:
                module._buffers[name] = torch.zeros_like(buffer, device="cpu")
            module._non_persistent_buffers_set.add(name)


def share_buffers(model: nn.Module, device: torch.device) -> None:
    """Copy rank 0's buffers to all ranks (by way of `device`, which the backend can reach)."""
    for _, buffer in sorted(model.named_buffers()):
        moved = buffer.detach().to(device)
        dist.broadcast(moved, 0)
        buffer.copy_(moved)


def precision() -> Any:
    """FSDP2's policy: compute in bfloat16, reduce gradients and hand out results in float32.

    accelerate would set all three to bfloat16 (a loss 0.02 off).
    """
    from torch.distributed.fsdp import MixedPrecisionPolicy

    return MixedPrecisionPolicy(
        param_dtype=torch.bfloat16, reduce_dtype=torch.float32, output_dtype=torch.float32
    )


def whole(model: nn.Module, yes: bool) -> None:
    """Keep every parameter whole on this rank (generation needs it at each token), or shard again.

    Costs one unsharded copy of the model in its dtype on each device: 62 GB of a B200's 180 for
    Gemma 4 31B.
    """
    from torch.distributed.fsdp import FSDPModule

    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_reshard_after_forward(not yes, recurse=False)
            if yes:
                module.unshard()
            else:
                module.reshard()
