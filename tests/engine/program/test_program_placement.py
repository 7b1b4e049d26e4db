"""What the settings of `dev` become in the cluster: both runs, on the reserved machines.

The labels are those of Google's documentation: "Consume reserved zonal resources" and "Deploy GPU
workloads in Autopilot".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

GPU = "cloud.google.com/gke-accelerator"
RESERVATION = "cloud.google.com/reservation-name"
AFFINITY = "cloud.google.com/reservation-affinity"


def templates(deployed: Any, kind: str) -> Iterator[dict[str, Any]]:
    """Pod specs that ask for GPUs, of the one object of a kind."""
    (found,) = deployed.sandbox.objects(kind, "-A")
    pods: list[dict[str, Any]] = [found["spec"].get("template") or {}]
    ray = found["spec"].get("rayClusterSpec") or {}
    pods += [group["template"] for group in ray.get("workerGroupSpecs") or []]
    for pod in pods:
        if pod:
            yield pod["spec"]


def test_both_runs_are_there_and_wait_for_reserved_b200s(deployed: Any) -> None:
    name = deployed.base["gemma:reservation"].split("/reservations/")[-1].split("/")[0]
    for kind in ("job", "rayjob"):
        specs = list(templates(deployed, kind))
        assert len(specs) == 1
        for spec in specs:
            selector = spec["nodeSelector"]
            assert selector[GPU] == "nvidia-b200"
            assert selector[RESERVATION] == name
            assert selector[AFFINITY] == "specific"
            (container,) = [c for c in spec["containers"] if c["resources"].get("limits")]
            assert container["resources"]["limits"]["nvidia.com/gpu"] == "8"
            assert "@sha256:" in container["image"]
