"""Sections that both trainers' configurations share. No heavy import: preview reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml

from training.common.config import ConfigError, Problem
from training.common.keys import Bound

Section = TypeVar("Section")


@dataclass(frozen=True)
class ModelConfig:
    """Which weights to start from.

    Attributes:
        model_name_or_path: a Hub id, a gs:// folder or a local folder.
        model_revision: branch, tag or commit of the Hub repository; unused for folders.
        dtype: of the frozen weights.
        attn_implementation: a name that transformers knows.
    """

    model_name_or_path: str
    model_revision: str = "main"
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    attn_implementation: str = "sdpa"


@dataclass(frozen=True)
class ExportConfig:
    """What is written besides the adapter."""

    merged: bool = False


@dataclass(frozen=True)
class RunConfig:
    """What this run is called and where it runs; written by the deployment, not by the user.

    Attributes:
        output_dir: the run's folder, gs:// or local: everything that lasts goes there.
        device: `cuda` fails at once where no GPU is seen; `cpu` is only used when asked for.
        nodes: machines.
        workers_per_node: processes on each (one a GPU).
        image: reference of the container image, for the record.
    """

    output_dir: str
    name: str = "local"
    id: str = "local"
    workload: str = ""
    device: Literal["cuda", "cpu"] = "cuda"
    nodes: Annotated[int, Bound(least=1)] = 1
    workers_per_node: Annotated[int, Bound(least=1)] = 1
    image: str | None = None


# TRL and transformers accept these and then fail late, or do something useless.
SFT_BOUNDS: Mapping[str, Bound] = {
    "learning_rate": Bound(above=0, below=1),
    "num_train_epochs": Bound(above=0),
    "per_device_train_batch_size": Bound(least=1),
    "per_device_eval_batch_size": Bound(least=1),
    "gradient_accumulation_steps": Bound(least=1),
    "warmup_steps": Bound(least=0),
    "weight_decay": Bound(least=0),
    "max_grad_norm": Bound(least=0),
    "max_length": Bound(least=2),
    "logging_steps": Bound(above=0),
    "save_steps": Bound(above=0),
    "save_total_limit": Bound(least=1),
    "dataloader_num_workers": Bound(least=0),
}
LORA_BOUNDS: Mapping[str, Bound] = {
    "r": Bound(least=1),
    "lora_alpha": Bound(above=0),
    "lora_dropout": Bound(least=0, below=1),
}
# Set by the trainer from the run and the launcher: a second place for them would only disagree.
SFT_RESERVED: Mapping[str, str] = {
    "output_dir": "the run's folder is its content's hash",
    "use_cpu": "follows the accelerator",
    "local_rank": "follows the launcher",
    "deepspeed": "this trainer shards with FSDP2 or not at all",
    "parallelism_config": "follows the nodes and workers of the run",
    "resume_from_checkpoint": "a run resumes from its own newest complete checkpoint",
    "hub_token": "the token comes from the Hugging Face secret",
    "hub_revision": "the adapter is pushed to the repository's main branch",
    "disable_tqdm": "the trainer prints one line a step",
    "do_train": "the trainer decides",
    "do_eval": "the trainer decides",
    "do_predict": "the trainer decides",
    "model_init_kwargs": "see the section model",
    "dataset_text_field": "see the section data",
    "restore_callback_states_from_checkpoint": "the trainer decides",
    "accelerator_config": "follows the launcher",
    "save_only_model": "a run that resumes needs the optimizer's state",
    "ignore_data_skip": "a run that resumes would train its first rows again",
    "enable_jit_checkpoint": "the trainer saves at SIGTERM itself; with this one a stopped run "
    "would count as done",
    "auto_find_batch_size": "a step would hold other rows than the configuration says",
}
LORA_RESERVED: Mapping[str, str] = {
    "task_type": "the trainer's task",
    "peft_type": "LoRA",
    "base_model_name_or_path": "see the section model",
    "revision": "see the section model",
    "inference_mode": "this is training",
    "auto_mapping": "PEFT fills it in",
    "peft_version": "PEFT fills it in",
    "runtime_config": "PEFT fills it in",
}


def read_yaml(path: str | Path) -> dict[str, Any]:
    """The mapping that a YAML file holds.

    Raises:
        ConfigError: no such file, not YAML, or not a mapping.
    """
    try:
        loaded: object = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError([Problem(str(path), None, f"a readable file ({error})")]) from error
    except yaml.YAMLError as error:
        raise ConfigError([Problem(str(path), None, f"YAML ({error})")]) from error
    if not isinstance(loaded, dict):
        raise ConfigError([Problem(str(path), loaded, "a mapping of sections")])
    return loaded  # pyright: ignore[reportUnknownVariableType]


def dump_yaml(resolved: Mapping[str, Any]) -> str:
    """A resolved configuration as YAML text, sections in their own order."""
    return yaml.safe_dump(dict(resolved), sort_keys=False, allow_unicode=True, width=100)


def build(section: type[Section], values: Mapping[str, Any]) -> Section:
    """A section's dataclass from values that `keys.check` has passed (lists become tuples)."""
    return section(
        **{key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    )
