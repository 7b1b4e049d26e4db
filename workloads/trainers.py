"""The trainers that a run can name: what checks their config and how each is started.

This is all that the program knows of the packages under `training/`; of them it imports the
`config` modules only, which need neither torch nor Ray.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from training.gemma3_vision import config as gemma3_vision
from training.gemma4_text import config as gemma4_text

CONFIG_FOLDER = "/etc/gemma"
CONFIG_FILE = f"{CONFIG_FOLDER}/run.yaml"
ACCELERATE_FILE = f"{CONFIG_FOLDER}/accelerate.yaml"

Config = dict[str, Any]


@dataclass(frozen=True)
class Trainer:
    """One trainer.

    Attributes:
        workload: its name in the stack's config.
        kind: the Kubernetes object that runs it.
        module: what `python -m` starts.
        resolve: overrides to the full checked config; raises ConfigError with all problems.
        launcher: (config, nodes, workers on each, device) to accelerate's config, if it uses it.
    """

    workload: str
    kind: Literal["RayJob", "Job"]
    module: str
    resolve: Callable[[Mapping[str, Any]], Config]
    launcher: Callable[[Config, int, int, str], Config] | None = None


def _accelerate(config: Config, nodes: int, workers_per_node: int, device: str) -> Config:
    return gemma4_text.accelerate_config(nodes, workers_per_node, device, config.get("fsdp"))


TRAINERS: Mapping[str, Trainer] = MappingProxyType(
    {
        trainer.workload: trainer
        for trainer in (
            Trainer(
                "gemma3-vision", "RayJob", "training.gemma3_vision.train", gemma3_vision.resolve
            ),
            Trainer(
                "gemma4-text",
                "Job",
                "training.gemma4_text.train",
                gemma4_text.resolve,
                _accelerate,
            ),
        )
    }
)
