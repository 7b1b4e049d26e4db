"""The Job of a run without Ray: one pod a machine, `accelerate launch` in each.

Several machines make an Indexed Job with a headless service: pod 0 is the rendezvous. A pod that
is disrupted (node drained, Spot taken back) is replaced without counting as a failure; exit code 78
(a config that no retry can mend) ends the Job at once; anything else is retried and resumes from
the newest complete checkpoint. There is no TTL: a Job deleted behind Pulumi's back would be created
and trained again by the next `up` (terraform-provider-kubernetes#2531).
"""

from __future__ import annotations

import pulumi

from training.common.config import EXIT_CODE
from workloads import pods
from workloads.pods import Fragment, PodArgs
from workloads.run import Run
from workloads.trainers import ACCELERATE_FILE, CONFIG_FILE, TRAINERS

CONTAINER = "trainer"
PORT = 29500
CONFIG_ERROR_FILE = "/tmp/config-error"

# First one process asks for all that the ranks will need: what the Hub or the bucket refuses is
# told once. torchrun turns every exit code of a worker into 1, so the trainer leaves a file where
# it means 78. SIGTERM reaches the shell alone, and once: it passes it on, also to a child that it
# is just about to start, and waits for the checkpoint.
LAUNCH = f"""\
run() {{
  "$@" &
  child=$!
  [ -z "$stop" ] || kill -TERM "$child"
  wait "$child"; code=$?
  while kill -0 "$child" 2>/dev/null; do wait "$child"; code=$?; done
  [ ! -e "$GEMMA_CONFIG_ERROR_FILE" ] || code={EXIT_CODE}
  [ "$code" = 0 ] || exit "$code"
}}
stop=
trap 'stop=1; kill -TERM "$child" 2>/dev/null' TERM INT
run python -m "$0" --config {CONFIG_FILE} --check
run "$@"
"""


def command(run: Run) -> list[str]:
    """The container's command line."""
    module = TRAINERS[run.workload].module
    if run.nodes * run.workers_per_node == 1:
        # accelerate starts a single process without torchrun, and dies of SIGTERM alone.
        launch = ["python", "-m", module, "--config", CONFIG_FILE]
        return ["/bin/bash", "-c", LAUNCH, module, *launch]
    launch = ["accelerate", "launch", "--config_file", ACCELERATE_FILE]
    if run.nodes > 1:
        name = run.object_name
        launch += ["--machine_rank", "$(JOB_COMPLETION_INDEX)"]
        launch += ["--main_process_ip", f"{name}-0.{name}", "--main_process_port", str(PORT)]
    launch += ["-m", module, "--config", CONFIG_FILE]
    return ["/bin/bash", "-c", LAUNCH, module, *launch]


def _template(run: Run, args: PodArgs) -> Fragment:
    # NCCL's and the data loaders' segments; it counts against the pod's memory.
    size_gib = min(64, run.placement.memory_gib // 4)
    shm_volume, shm_mount = pods.shared_memory(size_gib)
    more = {
        "GEMMA_CONFIG_ERROR_FILE": CONFIG_ERROR_FILE,
        # torchrun's default of 30 s is too short for a checkpoint to reach the bucket.
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(pods.STOP_SECONDS),
    }
    if run.device == "cpu":
        # use_cpu in its file alone leaves accelerate's GPU launcher looking for GPUs, and torch
        # would start a thread for every core of the machine in every worker.
        more |= {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
    container: Fragment = {
        "name": CONTAINER,
        "image": args.image,
        "command": command(run),
        "env": pods.environment(args, more),
        "resources": pods.worker_resources(run.placement),
        "securityContext": pods.security_context(),
        "volumeMounts": [*pods.mounts(), shm_mount],
    }
    spec = pods.pod_spec(
        args,
        [container],
        volumes=[*pods.volumes(run.object_name), shm_volume],
        node_selector=run.placement.node_selector,
        grace_seconds=pods.GRACE_SECONDS,
    )
    spec["restartPolicy"] = "Never"  # podFailurePolicy needs it
    if run.nodes > 1:
        spec["subdomain"] = run.object_name
    annotations = pods.worker_annotations(run.placement, CONTAINER)
    return {"metadata": {"labels": run.labels, "annotations": annotations}, "spec": spec}


def manifest(run: Run, args: PodArgs, namespace: pulumi.Input[str]) -> Fragment:
    """The Job object."""
    exit_codes = {"containerName": CONTAINER, "operator": "In", "values": [EXIT_CODE]}
    spec: Fragment = {
        # When one machine of several fails, the others fail with it.
        "backoffLimit": run.retries * run.nodes,
        "activeDeadlineSeconds": run.deadline_seconds,
        "podFailurePolicy": {
            "rules": [
                {
                    "action": "Ignore",
                    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
                },
                {"action": "FailJob", "onExitCodes": exit_codes},
            ]
        },
        # The next pod only when the last one has let go of its machine.
        "podReplacementPolicy": "Failed",
        "parallelism": run.nodes,
        "completions": run.nodes,
        "completionMode": "Indexed" if run.nodes > 1 else "NonIndexed",
        "template": _template(run, args),
    }
    # Only that it exists. skipAwait would also skip the wait for its end on a replacement: the new
    # Job, under the same name when only its pods change, would be applied to the dying one.
    annotations = {} if run.wait else {"pulumi.com/waitFor": "jsonpath={.metadata.uid}"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": pods.metadata(run, namespace, annotations),
        "spec": spec,
    }


def service(run: Run, namespace: pulumi.Input[str]) -> Fragment | None:
    """The headless service that gives the pods of several machines their names, or None."""
    if run.nodes == 1:
        return None
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": run.object_name,
            "namespace": namespace,
            "labels": run.labels,
            # It has no endpoints until machines arrive, which may take hours.
            "annotations": {"pulumi.com/skipAwait": "true"},
        },
        "spec": {
            "clusterIP": "None",
            # Ranks look for each other before any of them is ready.
            "publishNotReadyAddresses": True,
            "selector": {"gemma.run/id": run.id},
            "ports": [{"name": "rendezvous", "port": PORT, "protocol": "TCP", "targetPort": PORT}],
        },
    }
