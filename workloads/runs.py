"""Runs: what the stack's `gemma:runs` asks for, checked, placed and addressed by content.

A run's id is a hash of what decides its result: the image's key, the trainer's whole config
(model and data revisions are part of it), the machines and the attempt number. So the same inputs
give the same id and the same folder, and a changed learning rate gives a new one. Where the
machines come from (reservation, Spot) is left out: a run that moves from a full reservation to Spot
keeps its id and goes on from its newest checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from training.common.config import ConfigError, Problem, merge
from workloads import placement, ray_options
from workloads.accelerators import ACCELERATORS, FLEX_START_HOURS, Accelerator
from workloads.placement import PlacementSettings
from workloads.run import Run
from workloads.trainers import TRAINERS, Trainer

# A RayJob's name stops at 47 characters (KubeRay adds 6 for its cluster); the id takes 11.
NAME = re.compile(r"[a-z](?:[-a-z0-9]{0,34}[a-z0-9])?")
NAME_RULE = "1 to 36 of a-z, 0-9 and -, starting with a letter and not ending with -"

PLACE = re.compile(r"gs://[a-z0-9][a-z0-9._-]+(/.*)?|[./].*|\w[\w.-]*(/[\w.-]+)?")
PLACE_RULE = "a Hub id (OWNER/NAME, no address), gs://BUCKET/FOLDER or a folder"


class RunSettings(Protocol):
    """One entry of `gemma:runs`."""

    @property
    def workload(self) -> str: ...
    @property
    def enabled(self) -> bool: ...
    @property
    def nodes(self) -> int: ...
    @property
    def min_nodes(self) -> int | None: ...
    @property
    def workers_per_node(self) -> int | None: ...
    @property
    def attempt(self) -> int: ...
    @property
    def queue(self) -> str | None: ...
    @property
    def cluster(self) -> str | None: ...
    @property
    def retries(self) -> int: ...
    @property
    def max_hours(self) -> float: ...
    @property
    def pending_hours(self) -> float: ...
    @property
    def wait(self) -> bool: ...
    @property
    def trainer(self) -> Mapping[str, Any]: ...


class Settings(PlacementSettings, Protocol):
    """What this package reads of the stack's settings."""

    @property
    def runs(self) -> Mapping[str, RunSettings]: ...


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
    return found + _name_problems(config) + _size_problems(config, run, row)


def _name_problems(config: Mapping[str, Any]) -> list[Problem]:
    """Models and data sets that are nowhere, whatever the Hub or a bucket would say."""
    return [
        Problem(f"trainer.{section}.{key}", config[section][key], PLACE_RULE, _set("{key}", "NAME"))
        for section, key in (("model", "model_name_or_path"), ("data", "dataset_name"))
        if not PLACE.fullmatch(str(config[section][key]))
    ]


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
            f"answer the held-out rows each GPU holds all of them, {weights:.0f} GiB"
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


def plan(
    settings: Settings, image_key: str, trainers: Mapping[str, Trainer] = TRAINERS
) -> list[Run]:
    """The stack's enabled runs, in the order of the config.

    Args:
        settings: settings that `problems` finds nothing wrong with.
        image_key: what identifies the image at preview: its build context's hash or its reference.
        trainers: the trainers that runs may name.
    """
    row = ACCELERATORS[settings.accelerator]
    reservation = (
        placement.parse_reservation(settings.reservation, settings.project)
        if settings.reservation
        else None
    )
    reserved = row.has_gpu and settings.capacity == "reservation"
    source = f"reservation {settings.reservation}" if reserved else settings.capacity
    enabled = {name: asked for name, asked in settings.runs.items() if asked.enabled}
    configs = {
        name: trainers[asked.workload].resolve(merge({}, asked.trainer))
        for name, asked in enabled.items()
    }
    # The machines of a shared cluster hold the largest model that runs on it.
    disks: dict[str, int] = {}
    for name, asked in enabled.items():
        place = asked.cluster or f"own {name}"
        disks[place] = max(disks.get(place, 0), disk_gib(configs[name]))
    runs: list[Run] = []
    for name, asked in enabled.items():
        workers = asked.workers_per_node or row.whole_node
        config = configs[name]
        content = [image_key, name, asked.workload, config, row.name, asked.nodes, workers]
        runs.append(
            Run(
                name=name,
                workload=asked.workload,
                id=_digest([*content, asked.attempt]),
                accelerator=row,
                placement=placement.place(
                    row,
                    settings.capacity,
                    reservation,
                    workers,
                    disks[asked.cluster or f"own {name}"],
                ),
                nodes=asked.nodes,
                min_nodes=asked.nodes if asked.min_nodes is None else asked.min_nodes,
                workers_per_node=workers,
                trainer=config,
                attempt=asked.attempt,
                queue=asked.queue,
                cluster=asked.cluster,
                retries=asked.retries,
                max_hours=asked.max_hours,
                pending_hours=asked.pending_hours,
                wait=asked.wait,
                source=source,
            )
        )
    return runs


def _digest(content: Sequence[Any]) -> str:
    """Ten hex digits, the first a letter: as a YAML value 12e4567890 would be a number."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=str)
    digits = hashlib.sha256(text.encode()).hexdigest()
    match = re.search(r"[a-f][0-9a-f]{9}", digits)
    return match[0] if match else "a" + digits[:9]


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
