"""What is wrong with a stack's placement and runs, found before anything is made."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from training.common.config import ConfigError, Problem
from workloads import placement, ray_options
from workloads.accelerators import ACCELERATORS, FLEX_START_HOURS, Accelerator
from workloads.runs import RunSettings, Settings
from workloads.sizes import disk_gib, weights_gib
from workloads.trainers import TRAINERS, Trainer

# A RayJob's name stops at 47 characters (KubeRay adds 6 for its cluster); the id takes 11.
NAME = re.compile(r"[a-z](?:[-a-z0-9]{0,34}[a-z0-9])?")
NAME_RULE = "1 to 36 of a-z, 0-9 and -, starting with a letter and not ending with -"

FOLDER = r"gs://[a-z0-9][a-z0-9._-]+(/.*)?|[./~].*"
PLACE = re.compile(rf"{FOLDER}|\w[\w.-]*(/[\w.-]+)?")
PLACE_RULE = "a Hub id (OWNER/NAME, no address), gs://BUCKET/FOLDER or a folder"
# A model tuned from a Gemma may be called anything but what other families are called.
OTHERS = r"(?i:llama|mi[sx]tral|qwen|deepseek|falcon|phi|gpt|bert|opt|bloom)"
MODEL = re.compile(
    rf"{FOLDER}|\w[\w.-]*/(?:[\w.-]*(?i:gemma)[\w.-]*|(?!(?:[\w.-]*[._-])?{OTHERS})[\w.-]+)"
)
MODEL_RULE = "a Gemma: OWNER/NAME on the Hub, gs://BUCKET/FOLDER or a folder"


def problems(settings: Settings, trainers: Mapping[str, Trainer] = TRAINERS) -> list[Problem]:
    """All that is wrong with a stack's placement and its runs, disabled ones included."""
    found = placement.problems(settings)
    for name, run in settings.runs.items():
        prefix = f"gemma:runs.{name}"
        if not NAME.fullmatch(name):
            found.append(Problem(prefix, name, f"a name of {NAME_RULE}"))
        found += [problem.under(prefix) for problem in _run_problems(settings, run, trainers)]
    found += ray_options.sharing_problems(settings.runs)
    return found


def _run_problems(
    settings: Settings, run: RunSettings, trainers: Mapping[str, Trainer]
) -> list[Problem]:
    found: list[Problem] = []
    for key, value, least in (
        ("nodes", run.nodes, 1),
        ("workersPerNode", run.workers_per_node, 1),
        ("attempt", run.attempt, 1),
        ("retries", run.retries, 0),
        ("pendingHours", run.pending_hours, 0),
    ):
        if value is not None and value < least:
            found.append(Problem(key, value, f"{least} or more", _set("{key}", max(least, 1))))
    if run.max_hours <= 0:
        found.append(Problem("maxHours", run.max_hours, "more than 0", _set("{key}", 24)))
    row = ACCELERATORS.get(settings.accelerator)
    workers = run.workers_per_node
    if row and row.has_gpu and workers is not None and workers not in row.counts:
        counts = " or ".join(map(str, row.counts))
        allowed = f"{counts}: the GPUs that a pod may ask for with {row.name}"
        found.append(Problem("workersPerNode", workers, allowed, _set("{key}", row.whole_node)))
    if row and workers in row.counts and settings.capacity not in row.sold_as(workers):
        sold = " or ".join(row.sold_as(workers))
        machine = row.shapes[workers].machine
        allowed = f"{row.whole_node}: {machine} is sold as {sold} alone, not as {settings.capacity}"
        found.append(Problem("workersPerNode", workers, allowed, _set("{key}", row.whole_node)))
    if settings.capacity == "flex-start" and run.max_hours > FLEX_START_HOURS:
        allowed = f"at most {FLEX_START_HOURS}: a flex-start machine is taken back after 7 days"
        found.append(Problem("maxHours", run.max_hours, allowed, _set("{key}", FLEX_START_HOURS)))
    trainer = trainers.get(run.workload)
    if trainer is None:
        allowed = f"one of {', '.join(trainers)}"
        found.append(
            Problem("workload", run.workload, allowed, _set("{key}", next(iter(trainers))))
        )
        return found
    found += ray_options.problems(run, trainer.kind)
    if "run" in run.trainer:
        allowed = "nothing: the deployment writes this section"
        remove = "pulumi config rm --path '{key}'"
        found.append(Problem("trainer.run", run.trainer["run"], allowed, remove))
    try:
        config = trainer.resolve({key: value for key, value in run.trainer.items() if key != "run"})
    except ConfigError as error:
        return [*found, *error.problems]
    return found + _name_problems(config, trainer.resolve({})) + _size_problems(config, run, row)


def _name_problems(config: Mapping[str, Any], default: Mapping[str, Any]) -> list[Problem]:
    """Models and data sets that are nowhere, or of another family, whatever the Hub would say."""
    found: list[Problem] = []
    for section, key, form, rule in (
        ("model", "model_name_or_path", MODEL, MODEL_RULE),
        ("data", "dataset_name", PLACE, PLACE_RULE),
    ):
        given = str(config[section][key])
        if not form.fullmatch(given):
            name = re.sub(r"^https?://huggingface\.co/(datasets/)?", "", given.strip())
            near = (name, f"google/{name}" if re.search(r"\d[bm]\b", name.lower()) else "")
            fitting = next(filter(form.fullmatch, near), default[section][key])
            found.append(Problem(f"trainer.{section}.{key}", given, rule, _set("{key}", fitting)))
    return found


def _size_problems(
    config: Mapping[str, Any], run: RunSettings, row: Accelerator | None
) -> list[Problem]:
    """A model that its machine's disk or a GPU does not hold, a config that its object does not."""
    found: list[Problem] = []
    key, name = "trainer.model.model_name_or_path", config["model"]["model_name_or_path"]
    fix = _set("{key}", "MODEL")
    workers = run.workers_per_node or (row.whole_node if row else 0)
    room = placement.disk_room(row, workers) if row and workers in row.counts else None
    if room is not None and disk_gib(config) > room:
        allowed = f"a model that needs at most {room} GiB of disk; this one needs "
        found.append(Problem(key, name, f"{allowed}{disk_gib(config)} with copies", fix))
    elif row and row.has_gpu and (weights := weights_gib(config) or 0) > row.gpu_memory_gib:
        allowed = (
            f"a model whose weights fit into the {row.gpu_memory_gib} GiB of one {row.name}; to "
            f"answer the held-out rows each GPU holds all of them, {weights:.0f} GiB. Or another "
            "gemma:accelerator"
        )
        found.append(Problem(key, name, allowed, fix))
    # Of a ConfigMap, 1 MiB. A shared cluster gets it in one argument, which Linux holds to 128 KiB,
    # and base64 adds a third.
    most = 90_000 if run.cluster else 900_000
    size = len(json.dumps(config).encode())  # run.yaml may be a little longer
    if size > most:
        fix = "pulumi config rm --path '{key}'"
        found.append(Problem("trainer", f"{size} bytes", f"at most {most} bytes in all", fix))
    return found


def _set(key: str, value: object) -> str:
    return f"pulumi config set --path '{key}' {value}"
