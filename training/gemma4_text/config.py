"""Configuration of the text trainer: defaults, checks, types. No heavy import: preview uses it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from training.common import rules
from training.common.config import Problem
from training.common.keys import Bound, bounded, keys_of, schema
from training.common.sections import (
    LORA_BOUNDS,
    LORA_RESERVED,
    SFT_BOUNDS,
    SFT_RESERVED,
    ExportConfig,
    ModelConfig,
    RunConfig,
    build,
    read_yaml,
)

DEFAULTS = Path(__file__).parent / "config.yaml"


@dataclass(frozen=True)
class DataConfig:
    """Rows of question, schema and SQL, and how they are split; config.yaml explains each key."""

    dataset_name: str
    train_rows: Annotated[int, Bound(least=1)]
    held_out_rows: Annotated[int, Bound(least=1)]
    system_prompt: str
    user_prompt: str
    dataset_revision: str = "main"
    dataset_split: str = "train"
    question_column: str = "sql_prompt"
    schema_column: str = "sql_context"
    answer_column: str = "sql"
    held_out_by: Literal["question", "schema"] = "question"
    seed: Annotated[int, Bound(least=0)] = 42
    too_long: Literal["drop", "stop"] = "drop"
    accumulate: Literal["rows", "sequences"] = "rows"


@dataclass(frozen=True)
class FsdpConfig:
    """FSDP2 in accelerate's names, without the prefix `fsdp_`."""

    reshard_after_forward: bool = True
    offload_params: bool = False
    state_dict_type: Literal["FULL_STATE_DICT", "SHARDED_STATE_DICT"] = "FULL_STATE_DICT"
    transformer_layer_cls_to_wrap: str | None = None


@dataclass(frozen=True)
class EvaluationConfig:
    """Generation on the held-out rows, and the limits under which their SQL runs."""

    rows: Annotated[int, Bound(least=0)] = 0
    baseline: bool = True
    batch_size: Annotated[int, Bound(least=1)] = 32
    max_new_tokens: Annotated[int, Bound(least=1)] = 256
    timeout_seconds: Annotated[float, Bound(above=0)] = 2.0
    result_rows: Annotated[int, Bound(least=1)] = 10000
    memory_mib: Annotated[int, Bound(least=16)] = 256
    samples: Annotated[int, Bound(least=1)] = 12


@dataclass(frozen=True)
class Config:
    """A checked configuration; `sft` and `lora` are keyword arguments of the libraries' classes."""

    model: ModelConfig
    data: DataConfig
    sft: Mapping[str, Any]
    lora: Mapping[str, Any]
    fsdp: FsdpConfig
    evaluation: EvaluationConfig
    export: ExportConfig
    run: RunConfig


SFT_OWN_RESERVED: Mapping[str, str] = {
    "fsdp": "see the section fsdp",
    "fsdp_config": "see the section fsdp",
    "assistant_only_loss": "Gemma 4's template marks no answers; prompt/completion rows do that",
    "completion_only_loss": "the loss is on the SQL only",
    "padding_free": "follows packing",
    "dataset_kwargs": "rows are encoded and packed before TRL sees them",
    "formatting_func": "see data.user_prompt",
    "chat_template_path": "the model's own chat template is used",
    "push_to_hub": "see hub_model_id: set it and the adapter is pushed",
    "load_best_model_at_end": "the adapter of the last step is saved and evaluated",
}
FSDP_RESERVED: Mapping[str, str] = {
    "activation_checkpointing": "PEFT would save an empty adapter; sft.activation_checkpointing "
    "does it without that",
    "cpu_ram_efficient_loading": "rank 0 alone reads the weights already",
    "version": "FSDP2",
    "auto_wrap_policy": "layers are wrapped by class",
}
MODEL_RESERVED: Mapping[str, str] = {
    "device_map": "each process holds its shard; `auto` would put the whole model on one GPU",
}
# Documents packed into one row stay apart with these (measured: the loss equals the unpacked one).
ISOLATING_ATTENTION = ("sdpa", "eager", "flex_attention", "flash_attention_2", "flash_attention_3")

# Layers that FSDP2 wraps, by the family in a model's name.
LAYERS: Mapping[str, str] = {
    "2": "Gemma2DecoderLayer",
    "3": "Gemma3DecoderLayer",
    "4": "Gemma4TextDecoderLayer",
}
# Adapters that are more than W + scale * B A: a merge file by file does not know them.
UNMERGED = (
    *("use_dora", "rank_pattern", "alpha_pattern", "lora_bias", "modules_to_save"),
    *("target_parameters", "trainable_token_indices", "layer_replication"),
)


def resolve(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults with `overrides` laid over them, checked: see `rules.resolve`."""
    sft = bounded(schema("sft"), SFT_BOUNDS)
    sections: rules.Rules = {
        "model": (keys_of(ModelConfig), MODEL_RESERVED),
        "data": (keys_of(DataConfig), {}),
        "sft": (sft, {**SFT_RESERVED, **SFT_OWN_RESERVED}),
        "lora": (bounded(schema("lora"), LORA_BOUNDS), LORA_RESERVED),
        "fsdp": (keys_of(FsdpConfig), FSDP_RESERVED),
        "evaluation": (keys_of(EvaluationConfig), {}),
        "export": (keys_of(ExportConfig), {}),
        "run": (keys_of(RunConfig), {}),
    }
    return rules.resolve(overrides, DEFAULTS, sections, _combinations)


def load(path: str | Path) -> Config:
    """The configuration in a YAML file, defaults filled in.

    Raises:
        ConfigError: with every problem, the missing run.output_dir included.
    """
    given = read_yaml(path)
    given.setdefault("run", {})
    resolved = resolve(given)
    return Config(
        model=build(ModelConfig, resolved["model"]),
        data=build(DataConfig, resolved["data"]),
        sft=resolved["sft"],
        lora=resolved["lora"],
        fsdp=build(FsdpConfig, resolved["fsdp"]),
        evaluation=build(EvaluationConfig, resolved["evaluation"]),
        export=build(ExportConfig, resolved["export"]),
        run=build(RunConfig, resolved["run"]),
    )


def accelerate_config(
    nodes: int, workers_per_node: int, device: str, fsdp: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """accelerate's launcher file for `nodes` machines of `workers_per_node` processes.

    The machine's rank and the main process's address differ from pod to pod: the Job gives them
    as `--machine_rank`, `--main_process_ip` and `--main_process_port`.

    Args:
        nodes: machines.
        workers_per_node: processes on each, one a GPU.
        device: `cuda` or `cpu`.
        fsdp: the resolved section `fsdp`; the defaults when absent.
    """
    settings = FsdpConfig(**(fsdp or {}))
    processes = nodes * workers_per_node
    launcher: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "FSDP" if processes > 1 else "NO",
        "mixed_precision": "no",  # sft.bf16 decides, in one place
        "downcast_bf16": "no",
        "num_machines": nodes,
        "num_processes": processes,
        "machine_rank": 0,
        "rdzv_backend": "static",
        "same_network": True,
        "main_training_function": "main",
        "use_cpu": device == "cpu",
        "debug": False,
        "enable_cpu_affinity": False,
    }
    if processes > 1:
        launcher["fsdp_config"] = {
            "fsdp_version": 2,
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "fsdp_reshard_after_forward": settings.reshard_after_forward,
            "fsdp_offload_params": settings.offload_params,
            "fsdp_state_dict_type": settings.state_dict_type,
            "fsdp_activation_checkpointing": False,  # PEFT would save an empty adapter
            "fsdp_cpu_ram_efficient_loading": False,  # the trainer loads on rank 0 by itself
        }
    return launcher


def _combinations(resolved: Mapping[str, Any]) -> list[Problem]:
    """Keys that are right by themselves and wrong together."""
    problems = rules.training(resolved)
    sft = cast("Mapping[str, Any]", resolved["sft"])
    model = cast("Mapping[str, Any]", resolved["model"])
    data = cast("Mapping[str, Any]", resolved["data"])

    def wrong(key: str, value: object, allowed: str) -> None:
        problems.append(rules.wrong(key, value, allowed))

    attention = model["attn_implementation"]
    if sft.get("packing"):
        if sft.get("max_length") is None:
            wrong("sft.max_length", None, "a whole number, since sft.packing fills rows up to it")
        if sft.get("packing_strategy", "bfd") != "bfd":
            allowed = "bfd, which keeps every document whole; the others cut documents"
            wrong("sft.packing_strategy", sft["packing_strategy"], allowed)
        if attention not in ISOLATING_ATTENTION:
            allowed = f"with sft.packing one of {', '.join(ISOLATING_ATTENTION)}: others let one "
            wrong("model.attn_implementation", attention, allowed + "document read the next")
    if (
        str(attention).startswith("flash_attention")
        and "gemma-4" in str(model["model_name_or_path"]).lower()
    ):
        allowed = "sdpa, eager or flex_attention: flash attention stops at head size 256, "
        wrong("model.attn_implementation", attention, allowed + "Gemma 4's global layers have 512")
    family = re.search(r"gemma-(\d+n?)-", str(model["model_name_or_path"]).lower())
    layer = LAYERS.get(family[1]) if family else None
    wrapped = resolved["fsdp"].get("transformer_layer_cls_to_wrap")
    if layer and wrapped not in (None, layer):
        key = "fsdp.transformer_layer_cls_to_wrap"
        wrong(key, wrapped, f"{layer}, the model's own layers, or null to find them")
    for place in ("{question}", "{schema}"):
        if place not in data["user_prompt"]:
            wrong("data.user_prompt", data["user_prompt"], f"a text that holds {place}")
    lora = cast("Mapping[str, Any]", resolved["lora"])
    more = [f"lora.{name}" for name in UNMERGED if lora.get(name)]
    if lora.get("bias", "none") != "none":
        more.append("lora.bias")
    if resolved["export"]["merged"] and more:
        allowed = f"false with {', '.join(more)}: only plain adapters are merged file by file"
        wrong("export.merged", True, allowed)
    return problems
