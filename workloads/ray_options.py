"""Options of a run that only Ray has: autoscaling between nodes, a cluster that runs share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from training.common.config import Problem

if TYPE_CHECKING:
    from workloads.runs import RunSettings

REMOVE = "pulumi config rm --path '{key}'"


def problems(run: RunSettings, kind: str) -> list[Problem]:
    """What is wrong with one run's `minNodes`, `cluster` and `queue`, with keys below the run."""
    found: list[Problem] = []
    if kind != "RayJob":
        for key, value in (("minNodes", run.min_nodes), ("cluster", run.cluster)):
            if value is not None:
                allowed = f"nothing: only a workload on Ray has it, not {run.workload}"
                found.append(Problem(key, value, allowed, REMOVE))
        return found
    minimum = run.min_nodes
    if minimum is not None and not 1 <= minimum <= run.nodes:
        allowed = f"1 to {run.nodes} (nodes)"
        found.append(Problem("minNodes", minimum, allowed, REMOVE))
    if run.queue is not None:
        if run.cluster is not None:
            allowed = "nothing with queue: Kueue admits a RayJob together with its own cluster"
            found.append(Problem("cluster", run.cluster, allowed, REMOVE))
        if minimum is not None and minimum != run.nodes:
            allowed = f"{run.nodes} or nothing with queue: Kueue admits a fixed number of machines"
            found.append(Problem("minNodes", minimum, allowed, REMOVE))
    return found


def sharing_problems(runs: Mapping[str, RunSettings]) -> list[Problem]:
    """Runs on one shared cluster that ask for different machines, with full keys."""
    first: dict[str, tuple[str, RunSettings]] = {}
    found: list[Problem] = []
    for name, run in runs.items():
        if run.cluster is None or not run.enabled:
            continue
        owner, like = first.setdefault(run.cluster, (name, run))
        for key, value, same in (
            ("nodes", run.nodes, like.nodes),
            ("minNodes", run.min_nodes, like.min_nodes),
            ("workersPerNode", run.workers_per_node, like.workers_per_node),
        ):
            if value != same:
                has = "nothing" if same is None else same
                allowed = f"{has}, as run {owner} has it: they share cluster {run.cluster}"
                fix = f"pulumi config set --path '{{key}}' {same}" if same else REMOVE
                found.append(Problem(f"gemma:runs.{name}.{key}", value, allowed, fix))
    return found
