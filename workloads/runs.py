"""Runs: what the stack's `gemma:runs` asks for, placed and addressed by content.

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

from training.common.config import merge
from workloads import placement
from workloads.accelerators import ACCELERATORS
from workloads.placement import PlacementSettings
from workloads.run import Run
from workloads.sizes import disk_gib
from workloads.trainers import TRAINERS, Trainer


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
