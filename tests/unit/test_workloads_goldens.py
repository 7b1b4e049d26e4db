"""Manifests against golden files; GEMMA_UPDATE_GOLDENS=1 (`make goldens`) writes them anew.

The files show a reviewer what a change of the program does to the objects; what the objects do is
tested against the real API server, operator and scheduler in tests/engine.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.schema import Settings
from workloads import job, plan, raycluster, rayjob
from workloads.accelerators import ACCELERATORS
from workloads.network_policy import spec
from workloads.pods import PodArgs

GOLDENS = Path(__file__).parent / "goldens"
ARGS = PodArgs(
    "us-docker.pkg.dev/p/gemma/trainer@sha256:" + "0" * 64, "trainer", "hugging-face-token"
)
OWNED = "projects/owner-project/reservations/r1/reservationBlocks/b1"
STACK = {
    "project": "my-project",
    "region": "us-central1",
    "stack": "dev",
    "accelerator": "nvidia-b200",
    "reservation": OWNED,
}
# Golden name: changes of the stack, the run.
MANIFESTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "rayjob-b200-reservation": ({}, {"workload": "gemma3-vision", "nodes": 2}),
    "rayjob-b200-spot-queue": (
        {"capacity": "spot", "reservation": None},
        {"workload": "gemma3-vision", "nodes": 2, "queue": "gpus"},
    ),
    "rayjob-h100-autoscaled": (
        {"accelerator": "nvidia-h100-80gb", "capacity": "flex-start", "reservation": None},
        {"workload": "gemma3-vision", "nodes": 4, "min_nodes": 1},
    ),
    "rayjob-shared-cluster": ({}, {"workload": "gemma3-vision", "nodes": 2, "cluster": "shared"}),
    "rayjob-cpu": (
        {"accelerator": "cpu", "capacity": "on-demand", "reservation": None},
        {"workload": "gemma3-vision", "workers_per_node": 2},
    ),
    "job-b200-reservation": ({}, {"workload": "gemma4-text"}),
    "job-b200-two-nodes": ({}, {"workload": "gemma4-text", "nodes": 2, "queue": "gpus"}),
    "job-l4-spot-waited-for": (
        {"accelerator": "nvidia-l4", "capacity": "spot", "reservation": None},
        {"workload": "gemma4-text", "wait": True},
    ),
    "job-cpu": (
        {"accelerator": "cpu", "capacity": "on-demand", "reservation": None},
        {"workload": "gemma4-text", "workers_per_node": 2},
    ),
}


def objects(keys: dict[str, Any], asked: dict[str, Any]) -> list[dict[str, Any]]:
    """All manifests of one run, the id (a hash) replaced so that trainers' defaults may change."""
    settings = Settings.model_validate({**STACK, **keys, "runs": {"run": asked}}, by_name=True)
    (run,) = plan(settings, "image-key")
    run = dataclasses.replace(run, id="0123456789")
    if run.kind == "Job":
        found = [job.service(run, "gemma"), job.manifest(run, ARGS, "gemma")]
    else:
        found = [rayjob.manifest(run, ARGS, "gemma", "config: of the run\n", "image-key")]
        if run.cluster:
            found.insert(0, raycluster.shared_cluster(run, ARGS, "gemma", "image-key"))
    return [body for body in found if body is not None]


def compare(name: str, documents: list[Any]) -> None:
    text = yaml.dump_all(documents, Dumper=_Plain, sort_keys=False, width=100)
    path = GOLDENS / f"{name}.yaml"
    if os.environ.get("GEMMA_UPDATE_GOLDENS"):
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text, "run `make goldens` and review the change"


class _Plain(yaml.SafeDumper):
    """No anchors; several lines of text as they are read."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Plain.add_representer(str, _text)


@pytest.mark.parametrize("name", MANIFESTS)
def test_manifest(name):
    compare(name, objects(*MANIFESTS[name]))


def test_network_policy():
    compare("network-policy", [spec()])


def test_placement_of_every_row_and_capacity():
    table: dict[str, Any] = {}
    for row in ACCELERATORS.values():
        for capacity in row.capacities:
            reservation = OWNED if capacity == "reservation" else None
            keys = {"accelerator": row.name, "capacity": capacity, "reservation": reservation}
            for workers in row.counts or (2,):
                run = {"workload": "gemma4-text", "workers_per_node": workers}
                spec = objects(keys, run)[0]["spec"]["template"]["spec"]
                table.setdefault(row.name, {}).setdefault(capacity, {})[workers] = {
                    "nodeSelector": spec.get("nodeSelector", {}),
                    "requests": spec["containers"][0]["resources"]["requests"],
                }
    compare("placements", [table])


def test_every_golden_is_compared():
    names = {path.stem for path in GOLDENS.glob("*.yaml")}
    assert names == {*MANIFESTS, "placements", "network-policy"}
