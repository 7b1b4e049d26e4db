"""Write `schema/*.json` from the installed libraries: `python -m training.common.schema.generate`.

A test holds the files fresh, so a new version of TRL or PEFT shows as a diff of its keys.
"""

from __future__ import annotations

import enum
import importlib.metadata
import inspect
import json
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# BitsAndBytesConfig's own __init__ is not annotated where None is the default.
QUANTIZATION = {
    "load_in_8bit": (["boolean"], []),
    "load_in_4bit": (["boolean"], []),
    "llm_int8_threshold": (["number"], []),
    "llm_int8_skip_modules": (["list", "null"], []),
    "llm_int8_enable_fp32_cpu_offload": (["boolean"], []),
    "llm_int8_has_fp16_weight": (["boolean"], []),
    "bnb_4bit_compute_dtype": (["string", "null"], ["bfloat16", "float16", "float32"]),
    "bnb_4bit_quant_type": (["string"], ["fp4", "nf4"]),
    "bnb_4bit_use_double_quant": (["boolean"], []),
    "bnb_4bit_quant_storage": (
        ["string", "null"],
        ["uint8", "bfloat16", "float16", "float32", "float64"],
    ),
}
SIMPLE = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}
# Plain text in the annotation, a closed set in __post_init__ or the documentation.
CHOICES = {
    "sft": {
        "packing_strategy": ["bfd", "bfd_split", "wrapped"],
        "truncation_mode": ["keep_start", "keep_end"],
        "loss_type": ["nll", "dft", "chunked_nll"],
    }
}


def describe(hint: Any) -> tuple[list[str], list[str]]:
    """(names of types, allowed texts) of one annotation."""
    kinds: list[str] = []
    choices: list[str] = []
    free_text = False
    pending = [hint]
    while pending:
        part = pending.pop(0)
        origin = typing.get_origin(part)
        if origin is typing.Annotated:
            pending.insert(0, typing.get_args(part)[0])
        elif origin in (typing.Union, types.UnionType):
            pending[:0] = typing.get_args(part)
        elif origin is typing.Literal:
            for literal in typing.get_args(part):
                kinds.append(SIMPLE[type(literal)])
                if isinstance(literal, str) and "[" not in literal:
                    choices.append(literal)
                elif isinstance(literal, str):
                    free_text = True  # a pattern such as pissa_niter_[number of iters]
        elif isinstance(part, type) and issubclass(part, enum.Enum):
            kinds.append("string")
            choices += [str(member.value) for member in part]
        elif part in SIMPLE:
            kinds.append(SIMPLE[part])
        elif origin in (list, tuple):
            kinds.append("list")
        else:  # dicts and the libraries' own nested configuration classes
            kinds.append("mapping")
    return list(dict.fromkeys(kinds)), [] if free_text else list(dict.fromkeys(choices))


def keys_of(config: type, name: str) -> dict[str, dict[str, list[str]]]:
    """Rules of a library's configuration dataclass, by key."""
    import dataclasses

    hints = typing.get_type_hints(config, include_extras=True)
    keys: dict[str, dict[str, list[str]]] = {}
    for field in dataclasses.fields(config):  # pyright: ignore[reportArgumentType]
        if field.init:
            kinds, choices = describe(hints[field.name])
            keys[field.name] = rule(kinds, CHOICES.get(name, {}).get(field.name, choices))
    return keys


def rule(kinds: list[str], choices: list[str]) -> dict[str, list[str]]:
    """One key's entry of the JSON file."""
    return {"types": kinds, "choices": choices} if choices else {"types": kinds}


def schemas() -> dict[str, Mapping[str, Any]]:
    """All schemas, by name: {"library": "trl 1.16.0", "class": ..., "keys": {...}}."""
    from peft import LoraConfig
    from transformers import BitsAndBytesConfig
    from trl.trainer.sft_config import SFTConfig

    signature = inspect.signature(BitsAndBytesConfig.__init__).parameters
    own = set(signature) - {"self", "kwargs"}
    if own != set(QUANTIZATION):
        raise RuntimeError(f"BitsAndBytesConfig changed: {sorted(own ^ set(QUANTIZATION))}")
    tables = {
        "sft": ("trl", "SFTConfig", keys_of(SFTConfig, "sft")),
        "lora": ("peft", "LoraConfig", keys_of(LoraConfig, "lora")),
        "quantization": (
            "transformers",
            "BitsAndBytesConfig",
            {key: rule(*value) for key, value in QUANTIZATION.items()},
        ),
    }
    return {
        name: {
            "library": f"{library} {importlib.metadata.version(library)}",
            "class": owner,
            "keys": keys,
        }
        for name, (library, owner, keys) in tables.items()
    }


def main() -> None:
    """Write every schema next to this file."""
    for name, content in schemas().items():
        path = Path(__file__).parent / f"{name}.json"
        path.write_text(written(content), encoding="utf-8")
        print(path)


def written(content: Mapping[str, Any]) -> str:
    """A schema as text, one key a line, so that a diff reads well."""
    head = {name: value for name, value in content.items() if name != "keys"}
    lines = [
        f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in content["keys"].items()
    ]
    text = json.dumps(head, indent=1)[:-2]
    return text + ',\n "keys": {\n' + ",\n".join(lines) + "\n }\n}\n"


if __name__ == "__main__":
    main()
