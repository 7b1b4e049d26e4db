"""Fragments of pod specs that the RayJob and the Job share.

Every pod passes Pod Security's `restricted` profile, has a read-only root and no API token unless
it calls the API. What it may write: /tmp (home, Ray's session), /scratch (weights, data,
checkpoints on their way out; sized for the model) and /dev/shm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from workloads.placement import Placement
from workloads.run import Run
from workloads.trainers import CONFIG_FOLDER

Fragment = dict[str, Any]

USER = 1000
GRACE_SECONDS = 600  # also Autopilot's longest; Spot machines give 25 s whatever is asked
STOP_SECONDS = 540  # for the last checkpoint; the rest of the grace is for leaving
SPOT_STOP_SECONDS = 12
SCRATCH = "/scratch"
DEMAND = "gemma.run/demand"


@dataclass(frozen=True)
class PodArgs:
    """What pods get from the rest of the program; computed values may be outputs.

    Attributes:
        image: reference of the trainer image, by digest.
        service_account: name of the Kubernetes service account (Workload Identity).
        token_secret: name of the Secret whose key `token` is the Hugging Face token, if any.
    """

    image: pulumi.Input[str]
    service_account: pulumi.Input[str] = "trainer"
    token_secret: pulumi.Input[str] | None = None


def environment(args: PodArgs, more: Mapping[str, str] | None = None) -> list[Fragment]:
    """Environment of every container that runs our image."""
    values = {
        "HOME": "/tmp",
        "USER": "trainer",  # the uid has no passwd entry, and torch asks for its name
        "HF_HOME": f"{SCRATCH}/huggingface",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "GEMMA_SCRATCH": SCRATCH,
        "PYTHONDONTWRITEBYTECODE": "1",  # the root is read-only
        "PYTHONUNBUFFERED": "1",
        **(more or {}),
    }
    entries: list[Fragment] = [{"name": name, "value": value} for name, value in values.items()]
    if args.token_secret is not None:
        reference = {"name": args.token_secret, "key": "token"}
        entries.append({"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": reference}})
    return entries


def security_context() -> Fragment:
    """Security context of each container, as `restricted` wants it."""
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def resources(cpu: str, memory: str, disk: str, gpus: int = 0) -> Fragment:
    """Equal requests and limits; quantities in the API server's own spelling.

    Another spelling (1000m for 1) comes back rewritten by KubeRay, and the next server-side apply
    would meet a conflict.
    """
    amounts = {"cpu": cpu, "memory": memory, "ephemeral-storage": disk}
    if gpus:
        amounts["nvidia.com/gpu"] = str(gpus)
    return {"requests": dict(amounts), "limits": dict(amounts)}


def worker_resources(placement: Placement) -> Fragment:
    """What one worker pod of a run takes."""
    return resources(
        str(placement.cpu),
        f"{placement.memory_gib}Gi",
        f"{placement.disk_gib}Gi",
        placement.gpus,
    )


def mounts(config: bool = True) -> list[Fragment]:
    """Volume mounts of a container; they match `volumes`."""
    found: list[Fragment] = [
        {"name": "tmp", "mountPath": "/tmp"},
        {"name": "scratch", "mountPath": SCRATCH},
    ]
    if config:
        found.append({"name": "config", "mountPath": CONFIG_FOLDER, "readOnly": True})
    return found


def volumes(config_map: str | None) -> list[Fragment]:
    """Volumes of a pod; the run's config only where a ConfigMap is named."""
    found: list[Fragment] = [{"name": "tmp", "emptyDir": {}}, {"name": "scratch", "emptyDir": {}}]
    if config_map is not None:
        found.append({"name": "config", "configMap": {"name": config_map}})
    return found


def shared_memory(size_gib: int) -> tuple[Fragment, Fragment]:
    """Volume and mount of /dev/shm: data loaders and NCCL need more than the runtime's 64 MiB.

    KubeRay adds its own to Ray's pods.
    """
    volume = {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{size_gib}Gi"}}
    return volume, {"name": "shm", "mountPath": "/dev/shm"}


def pod_spec(
    args: PodArgs,
    containers: Sequence[Fragment],
    *,
    volumes: Sequence[Fragment],
    node_selector: Mapping[str, str] | None = None,
    api_token: bool = False,
    grace_seconds: int = 30,
) -> Fragment:
    """The spec around a pod's containers.

    Args:
        args: image, service account, token secret.
        containers: the containers, Ray's or the trainer's first.
        volumes: volumes that they mount.
        node_selector: where it may land; anywhere when absent.
        api_token: mount the service account's token (Workload Identity works without it).
        grace_seconds: between SIGTERM and SIGKILL.
    """
    spec: Fragment = {
        "serviceAccountName": args.service_account,
        "automountServiceAccountToken": api_token,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": grace_seconds,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": list(containers),
        "volumes": list(volumes),
    }
    if node_selector:
        spec["nodeSelector"] = dict(node_selector)
    return spec


def worker_annotations(placement: Placement, container: str) -> dict[str, str]:
    """Annotations of pods that train.

    The autoscaler must not move them for the sake of fuller machines. Spot pods get no such
    promise: Autopilot refuses the two together.
    """
    found = {"kubectl.kubernetes.io/default-container": container}
    if not placement.evictable:
        found["cluster-autoscaler.kubernetes.io/safe-to-evict"] = "false"
    return found


def metadata(run: Run, namespace: pulumi.Input[str], annotations: Mapping[str, str]) -> Fragment:
    """Metadata of the run's own objects, with the queue's label where it has one.

    What the run asks for stands in an annotation, in words: a preview shows it.
    """
    labels = dict(run.labels)
    if run.queue is not None:
        labels["kueue.x-k8s.io/queue-name"] = run.queue
    return {
        "name": run.object_name,
        "namespace": namespace,
        "labels": labels,
        "annotations": {DEMAND: run.demand, **annotations},
    }
