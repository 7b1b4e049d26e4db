"""Configuration of the vision trainer: defaults, checks, types. Light, since preview imports it."""

from __future__ import annotations

import re
import string
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
    """Rows of picture, product, category and description; see config.yaml for the meanings."""

    dataset_name: str
    system_prompt: str
    user_prompt: str
    dataset_revision: str = "main"
    dataset_split: str = "train"
    image_column: str = "image"
    product_column: str = "Product Name"
    category_column: str = "Category"
    description_column: str = "description"
    max_rows: Annotated[int, Bound(least=0)] = 0
    held_out_fraction: Annotated[float, Bound(above=0, below=1)] = 0.1
    seed: Annotated[int, Bound(least=0)] = 42
    bad_rows: Literal["stop", "skip"] = "stop"
    max_pixels: Annotated[int, Bound(least=1)] = 100_000_000


@dataclass(frozen=True)
class RayConfig:
    """How often Ray Train starts the workers again; -1 is without limit."""

    max_failures: Annotated[int, Bound(least=-1)] = 3
    max_preemption_failures: Annotated[int, Bound(least=-1)] = -1


@dataclass(frozen=True)
class EvaluationConfig:
    """Descriptions of held-out rows by base and tuned model, and what they must look like."""

    rows: Annotated[int, Bound(least=0)] = 64
    baseline: bool = True
    batch_size: Annotated[int, Bound(least=1)] = 8
    max_new_tokens: Annotated[int, Bound(least=1)] = 128
    min_words: Annotated[int, Bound(least=1)] = 5
    max_words: Annotated[int, Bound(least=1)] = 120
    samples: Annotated[int, Bound(least=1)] = 12


@dataclass(frozen=True)
class Config:
    """A checked configuration; sft, lora, quantization are arguments of the libraries' classes."""

    model: ModelConfig
    data: DataConfig
    sft: Mapping[str, Any]
    lora: Mapping[str, Any]
    quantization: Mapping[str, Any]
    ray: RayConfig
    evaluation: EvaluationConfig
    export: ExportConfig
    run: RunConfig


SFT_OWN_RESERVED: Mapping[str, str] = {
    "fsdp": "each worker holds the whole quantised model; gradients are averaged by DDP",
    "fsdp_config": "each worker holds the whole quantised model; gradients are averaged by DDP",
    "assistant_only_loss": "the loss is on the description only, by prompt/completion rows",
    "completion_only_loss": "the loss is on the description only",
    "packing": "rows with pictures cannot be packed",
    "eval_packing": "rows with pictures cannot be packed",
    "padding_free": "rows with pictures cannot be trained without padding",
    "pad_to_multiple_of": "TRL cannot do it for pictures",
    "remove_unused_columns": "the picture is such a column",
    "dataset_kwargs": "pictures are prepared when a batch needs them",
    "formatting_func": "see data.user_prompt",
    "chat_template_path": "the model's own chat template is used",
    "push_to_hub": "see hub_model_id: set it and the adapter is pushed",
    "load_best_model_at_end": "the adapter of the last step is saved and evaluated",
    "ddp_find_unused_parameters": "every adapter is used in every step",
    "ddp_backend": "follows the accelerator",
}
ORDERS = ("random", "group_by_length")
ATTENTIONS = ("sdpa", "eager", "flex_attention")
MODEL_RESERVED: Mapping[str, str] = {
    "device_map": "each worker holds the whole model; `auto` would put all of them on one GPU",
}


def resolve(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults with `overrides` laid over them, checked: see `rules.resolve`."""
    sft = bounded(schema("sft"), SFT_BOUNDS)
    sections: rules.Rules = {
        "model": (keys_of(ModelConfig), MODEL_RESERVED),
        "data": (keys_of(DataConfig), {}),
        "sft": (sft, {**SFT_RESERVED, **SFT_OWN_RESERVED}),
        "lora": (bounded(schema("lora"), LORA_BOUNDS), LORA_RESERVED),
        "quantization": (schema("quantization"), {}),
        "ray": (keys_of(RayConfig), {}),
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
    return typed({"run": {}, **read_yaml(path)})


def typed(overrides: Mapping[str, Any]) -> Config:
    """`resolve(overrides)` as dataclasses; `run` must be there."""
    resolved = resolve(overrides)
    return Config(
        model=build(ModelConfig, resolved["model"]),
        data=build(DataConfig, resolved["data"]),
        sft=resolved["sft"],
        lora=resolved["lora"],
        quantization=resolved["quantization"],
        ray=build(RayConfig, resolved["ray"]),
        evaluation=build(EvaluationConfig, resolved["evaluation"]),
        export=build(ExportConfig, resolved["export"]),
        run=build(RunConfig, resolved["run"]),
    )


def _combinations(resolved: Mapping[str, Any]) -> list[Problem]:
    """Keys that are right by themselves and wrong together."""
    problems = rules.training(resolved)
    sft = cast("Mapping[str, Any]", resolved["sft"])
    lora = cast("Mapping[str, Any]", resolved["lora"])
    quantization = cast("Mapping[str, Any]", resolved["quantization"])

    def wrong(key: str, value: object, allowed: str) -> None:
        problems.append(rules.wrong(key, value, allowed))

    if (limit := sft.get("max_length")) is not None:
        wrong("sft.max_length", limit, "null: a limit cuts picture tokens or the answer")
    targets = lora.get("target_modules")
    names = [targets] if isinstance(targets, str) else list(cast("list[object]", targets or []))
    if "all-linear" in names:
        allowed = (
            "a pattern or names of the language model's layers: all-linear adapts the tower too"
        )
        wrong("lora.target_modules", targets, allowed)
    try:  # PEFT matches a text with whole names
        head = "lm_head" in names or bool(re.fullmatch(str(targets), "lm_head"))
    except re.error as error:
        head = False
        wrong("lora.target_modules", targets, f"a pattern or names ({error})")
    if head:
        allowed = "without lm_head: the loss reads its weight directly, an adapter would not train"
        wrong("lora.target_modules", targets, allowed)
    if (bias := lora.get("bias", "none")) != "none":
        allowed = "none: only the tower has biases, and they are the untuned model's as well"
        wrong("lora.bias", bias, allowed)
    if quantization.get("load_in_8bit") and quantization.get("load_in_4bit"):
        wrong("quantization.load_in_8bit", True, "false while quantization.load_in_4bit is true")
    if (attention := resolved["model"]["attn_implementation"]) not in ATTENTIONS:
        allowed = f"one of {', '.join(ATTENTIONS)}: others have no two-way mask over a picture"
        wrong("model.attn_implementation", attention, allowed)
    if (order := sft.get("train_sampling_strategy", "random")) not in ORDERS:
        wrong("sft.train_sampling_strategy", order, f"one of {', '.join(ORDERS)}")
    evaluation = cast("Mapping[str, Any]", resolved["evaluation"])
    if evaluation["min_words"] > evaluation["max_words"]:
        allowed = f"at most evaluation.max_words, {evaluation['max_words']}"
        wrong("evaluation.min_words", evaluation["min_words"], allowed)
    prompt = str(resolved["data"]["user_prompt"])
    try:
        parts = [part[1:] for part in string.Formatter().parse(prompt) if part[1] is not None]
    except ValueError:  # a lone brace
        parts = []
    if {*parts} != {("product", "", None), ("category", "", None)}:
        allowed = "a text with {product} and {category} and no other place in braces"
        wrong("data.user_prompt", prompt, allowed)
    return problems
