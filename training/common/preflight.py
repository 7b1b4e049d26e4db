"""What would fail later, found before the first worker starts: seconds on one machine, not on all.

Both trainers call it with their own configuration. It needs no GPU and imports no torch.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from training.common import hub, sources
from training.common.config import ConfigError, Problem, closest
from training.common.sections import ModelConfig, RunConfig

# What each name of sft.report_to imports: transformers looks only when the trainer is made.
REPORTERS: Mapping[str, str] = {
    "tensorboard": "tensorboard",
    "wandb": "wandb",
    "mlflow": "mlflow",
    "trackio": "trackio",
    "comet_ml": "comet_ml",
    "azure_ml": "azureml",
    "neptune": "neptune",
    "codecarbon": "codecarbon",
    "clearml": "clearml",
    "dagshub": "dagshub",
    "flyte": "flytekit",
    "dvclive": "dvclive",
    "swanlab": "swanlab",
    "kubeflow": "kubeflow",
}


class Source(Protocol):
    """The keys of a section `data` that both trainers have."""

    @property
    def dataset_name(self) -> str: ...
    @property
    def dataset_revision(self) -> str: ...


class Checked(Protocol):
    """A trainer's checked configuration, as far as it matters here."""

    @property
    def model(self) -> ModelConfig: ...
    @property
    def data(self) -> Source: ...
    @property
    def sft(self) -> Mapping[str, Any]: ...
    @property
    def run(self) -> RunConfig: ...


def preflight(config: Checked) -> None:
    """Ask the Hub and the bucket for model and data, for the right to push, and for packages.

    Raises:
        ConfigError: all that no retry can mend, keys and commands with the run's name in them.
        UnreachableError: the Hub does not answer.
    """
    model, data, sft = config.model, config.data, config.sft
    checks: list[Callable[[], None]] = [
        lambda: sources.check(model.model_name_or_path, model.model_revision, "model"),
        lambda: sources.check(data.dataset_name, data.dataset_revision, "dataset"),
        lambda: check_reporters(sft.get("report_to")),
    ]
    if repository := sft.get("hub_model_id"):
        private = sft.get("hub_private_repo") is not False
        checks.append(lambda: hub.check_write(repository, private=private))
    problems: dict[Problem, None] = {}  # a wrong token is told once
    for check in checks:
        try:
            check()
        except ConfigError as error:
            problems |= dict.fromkeys(error.problems)
    if problems:
        raise ConfigError(_placed(problem, config.run.name) for problem in problems)


def check_reporters(report_to: object) -> None:
    """Raise a ConfigError for names of sft.report_to that cannot work here."""
    names = [report_to] if isinstance(report_to, str) else list(report_to or [])  # type: ignore
    problems: list[Problem] = []
    for name in names:
        if name in ("none", "all"):
            continue
        module = REPORTERS.get(name)
        key, fix = "trainer.sft.report_to", "pulumi config set --path '{key}' tensorboard"
        if module is None:
            near = closest(str(name), REPORTERS)
            allowed = "none, all, " + ", ".join(REPORTERS)
            problems.append(Problem(key, name, allowed + (f"; {near}?" if near else ""), fix))
        elif importlib.util.find_spec(module) is None:
            allowed = (
                f"what the image has installed; for {name}, add it to the group `training` in "
                "pyproject.toml and run `make lock`"
            )
            problems.append(Problem(key, name, allowed, fix))
    if problems:
        raise ConfigError(problems)


def _placed(problem: Problem, run: str) -> Problem:
    """The problem as the stack's owner sees it: keys and commands name the run."""
    inside = problem.key.startswith("trainer.")
    placed = problem.under(f"gemma:runs.{run}") if inside else problem
    return dataclasses.replace(placed, fix=placed.fix.replace("{run}", run))
