"""Objects of a run in a cluster, as the API server shows them."""

from __future__ import annotations

from typing import Any

from workloads.client import Snapshot
from workloads.overview import overview

LABELS = {"gemma.run/name": "sql", "gemma.run/id": "a123456789"}


CREATED = "2026-11-30T12:00:00Z"

FOLDER = "gs://my-project-gemma-dev/runs/gemma4-text/a123456789"


SELECTOR = {
    "cloud.google.com/gke-accelerator": "nvidia-b200",
    "cloud.google.com/reservation-name": "r1",
}


RUNNING = {"running": {"startedAt": CREATED}}


PENDING = {"node": None, "phase": "Pending", "message": "0/3 nodes: 3 Insufficient nvidia.com/gpu."}


def job(**status: Any) -> dict[str, Any]:
    return {
        "kind": "Job",
        "metadata": {"name": "sql-a123456789", "uid": "job", "labels": LABELS,
                     "creationTimestamp": CREATED},
        "spec": {"activeDeadlineSeconds": 7200},
        "status": status,
    }  # fmt: skip


def config_map() -> dict[str, Any]:
    text = f"model: {{}}\nrun:\n  output_dir: {FOLDER}\n"
    return {
        "metadata": {"name": "sql-a123456789", "labels": LABELS},
        "data": {"run.yaml": text},
    }


def ray_job(**status: Any) -> dict[str, Any]:
    return {**job(**status), "kind": "RayJob"}


def failed(reason: str, message: str = "") -> dict[str, Any]:
    return job(
        conditions=[{"type": "Failed", "status": "True", "reason": reason, "message": message}]
    )


def pod(
    name: str = "p0",
    *,
    container: str = "trainer",
    node: str | None = "node-1",
    phase: str = "Running",
    state: dict[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    waiting = {"type": "PodScheduled", "status": "False", "message": more.pop("message", "")}
    status: dict[str, Any] = {"phase": phase, "conditions": [] if node else [waiting]}
    if state is not None:
        status["containerStatuses"] = [
            {"name": container, "image": "host/i@sha256:1", "state": state}
        ]
    status["conditions"] += more.pop("conditions", [])
    requests = {"nvidia.com/gpu": "8"} if container in ("trainer", "ray-worker") else {}
    return {
        "metadata": {"name": name, "uid": name, "labels": LABELS, "creationTimestamp": CREATED,
                     **more.pop("metadata", {})},
        "spec": {
            "nodeSelector": SELECTOR,
            "containers": [{"name": container, "resources": {"requests": requests}}],
            **({"nodeName": node} if node else {}),
        },
        "status": status,
    }  # fmt: skip


def event(reason: str, message: str, uid: str = "p0") -> dict[str, Any]:
    return {"reason": reason, "message": message, "involvedObject": {"uid": uid}}


def only(*pods: dict[str, Any], events: Any = (), of: Any = None, log: str = ""):
    snapshot = Snapshot([of or job()], list(pods), list(events), [config_map()])
    (found,) = overview(snapshot, lambda name, container: log)
    return found
