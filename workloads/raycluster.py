"""The RayCluster of a run: a head without GPUs, and workers that each take a whole machine.

A shared one stays up, and its GPUs with it: runs with the same `cluster` select it by its name, as
in Google's tutorial.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

import pulumi

from workloads import pods
from workloads.pods import Fragment, PodArgs
from workloads.run import Run

RAY_VERSION = "2.60.0"  # of requirements/training.txt; a test compares them
GROUP = "workers"
STOP_FILE = "/tmp/stop-requested"
TRAINING_FOLDER = "/tmp/training"

RAY_ENVIRONMENT: Mapping[str, str] = {
    # KubeRay before 1.5.1 cannot hand tokens to the pods (authOptions), and its operator speaks to
    # the dashboard without one. The namespace's network policy admits nobody else.
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
}


def pre_stop(seconds: int) -> str:
    """The preStop hook of a worker, which asks for a checkpoint and waits `seconds` for it.

    Raylet dies at SIGTERM, so the processes that can checkpoint are asked before: each has a file
    of its id's name in TRAINING_FOLDER. One that was killed leaves its file, which must not hold
    GPUs. Then the node is drained, so that Ray Train counts its loss as a preemption and not as a
    failure. It starts anew at the end of the time that the drain names, so that is short; it looks
    every 5 s, and must find the node still alive: one that SIGTERM has ended is a failure to it.
    """
    return f"""\
busy() {{
  for file in {TRAINING_FOLDER}/*; do kill -0 "${{file##*/}}" 2>/dev/null && return; done
  return 1
}}
busy || exit 0
touch {STOP_FILE}
for _ in $(seq {seconds}); do busy || break; sleep 1; done
ray drain-node --reason DRAIN_NODE_REASON_PREEMPTION --reason-message 'its pod is deleted' \\
  --deadline-remaining-seconds 1 && sleep 8
"""


def _head(run: Run, args: PodArgs, config_map: str | None, labels: Mapping[str, str]) -> Fragment:
    small = not run.accelerator.has_gpu
    container: Fragment = {
        "name": "ray-head",
        "image": args.image,
        "env": pods.environment(args, RAY_ENVIRONMENT),
        "ports": [
            {"name": "gcs-server", "containerPort": 6379},
            {"name": "dashboard", "containerPort": 8265},
            {"name": "metrics", "containerPort": 8080},
        ],
        "resources": pods.resources("1" if small else "4", "4Gi" if small else "16Gi", "10Gi"),
        "securityContext": pods.security_context(),
        "volumeMounts": pods.mounts(config_map is not None),
    }
    spec = pods.pod_spec(
        args,
        [container],
        volumes=pods.volumes(config_map),
        api_token=_autoscaled(run),  # the autoscaler beside the head scales the RayCluster
        grace_seconds=60,
    )
    annotations = {
        "kubectl.kubernetes.io/default-container": "ray-head",
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",  # its end is the run's
    }
    return {
        # num-cpus 0: Ray puts no task on the head.
        "rayStartParams": {"dashboard-host": "0.0.0.0", "num-cpus": "0"},
        "template": {
            "metadata": {"labels": dict(labels), "annotations": annotations},
            "spec": spec,
        },
    }


def _workers(
    run: Run, args: PodArgs, config_map: str | None, labels: Mapping[str, str]
) -> Fragment:
    hook = pre_stop(pods.SPOT_STOP_SECONDS if run.placement.evictable else pods.STOP_SECONDS)
    files = {"GEMMA_STOP_FILE": STOP_FILE, "GEMMA_TRAINING_FOLDER": TRAINING_FOLDER}
    container: Fragment = {
        "name": "ray-worker",
        "image": args.image,
        "env": pods.environment(args, {**RAY_ENVIRONMENT, **files}),
        "ports": [{"name": "metrics", "containerPort": 8080}],
        "resources": pods.worker_resources(run.placement),
        "securityContext": pods.security_context(),
        "volumeMounts": pods.mounts(config_map is not None),
        "lifecycle": {"preStop": {"exec": {"command": ["/bin/bash", "-c", hook]}}},
    }
    spec = pods.pod_spec(
        args,
        [container],
        volumes=pods.volumes(config_map),
        node_selector=run.placement.node_selector,
        grace_seconds=pods.GRACE_SECONDS,
    )
    annotations = pods.worker_annotations(run.placement, "ray-worker")
    # KubeRay takes CPUs, GPUs and memory from the limits. Without GPUs, CPUs are what spreads the
    # training workers over the machines: only as many as there are to be on each.
    cpus = {} if run.placement.gpus else {"num-cpus": str(run.workers_per_node)}
    return {
        "groupName": GROUP,
        "replicas": run.min_nodes,
        "minReplicas": run.min_nodes,
        "maxReplicas": run.nodes,
        "rayStartParams": cpus,
        "template": {
            "metadata": {"labels": dict(labels), "annotations": annotations},
            "spec": spec,
        },
    }


def _autoscaled(run: Run) -> bool:
    return run.min_nodes < run.nodes


def cluster_spec(
    run: Run, args: PodArgs, config_map: str | None, labels: Mapping[str, str]
) -> Fragment:
    """The spec of a RayCluster with the machines that `run` asks for."""
    spec: Fragment = {
        "rayVersion": RAY_VERSION,
        "enableInTreeAutoscaling": _autoscaled(run),
        "headGroupSpec": _head(run, args, config_map, labels),
        "workerGroupSpecs": [_workers(run, args, config_map, labels)],
    }
    if _autoscaled(run):
        spec["autoscalerOptions"] = {
            "idleTimeoutSeconds": 300,  # longer than an evaluation that leaves GPUs idle
            "securityContext": pods.security_context(),
            "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
            "resources": {
                "requests": {"cpu": "500m", "memory": "512Mi"},
                "limits": {"cpu": "500m", "memory": "512Mi"},
            },
        }
    return spec


def shared_cluster_name(run: Run, image_key: str) -> str:
    """Name of the RayCluster that `run` shares.

    KubeRay 1.5 ignores changes of a RayCluster's pods (kuberay#3840), so its content is in its
    name: another image or other machines make another cluster.
    """
    content = [image_key, dict(run.placement.node_selector), run.placement.cpu]
    content += [run.placement.gpus, run.placement.disk_gib, run.nodes, run.min_nodes, RAY_VERSION]
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:10]
    return f"{run.cluster}-{digest}"


def shared_cluster(
    run: Run, args: PodArgs, namespace: pulumi.Input[str], image_key: str
) -> Fragment:
    """The RayCluster object that runs with the same `cluster` share."""
    labels = {"app.kubernetes.io/part-of": "gemma", "gemma.run/cluster": str(run.cluster)}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {
            "name": shared_cluster_name(run, image_key),
            "namespace": namespace,
            "labels": labels,
            "annotations": {"pulumi.com/skipAwait": "true"},
        },
        "spec": cluster_spec(run, args, None, labels),
    }
