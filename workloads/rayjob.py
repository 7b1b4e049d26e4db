"""The RayJob of a run on Ray: its own RayCluster by default, gone when the run ends.

A failed run is retried on a new cluster and resumes from its newest complete checkpoint in the
bucket: that is also why Ray's GCS fault tolerance stays off. It would bring a Redis to run, pay and
secure, to save state that one run's cluster can lose. KubeRay retries what FAILED, so a run that no
retry can mend ends STOPPED. With `cluster` set, runs share a RayCluster that stays up.
"""

from __future__ import annotations

import base64
import json

import pulumi

from workloads import pods
from workloads.pods import Fragment, PodArgs
from workloads.raycluster import RAY_ENVIRONMENT, cluster_spec, shared_cluster_name
from workloads.run import Run
from workloads.trainers import CONFIG_FILE, TRAINERS

# How often the submitter may lose the head. KubeRay makes no new head pod for a run's own cluster:
# once the submitter has ended, at its last try (after 10 + 20 + 40 s) or with a head that left in
# order, the whole cluster is made anew. The head of a shared cluster comes back, which may take a
# new machine.
SUBMITTER_RETRIES = 3
SUBMITTER_RETRIES_SHARED = 6


def _submitter(run: Run, args: PodArgs) -> Fragment:
    container: Fragment = {
        "name": "ray-job-submitter",
        "image": args.image,
        "env": pods.environment(PodArgs(args.image, args.service_account), RAY_ENVIRONMENT),
        "resources": pods.resources("500m", "1Gi", "1Gi"),
        "securityContext": pods.security_context(),
        "volumeMounts": pods.mounts(config=False),
    }
    spec = pods.pod_spec(args, [container], volumes=pods.volumes(None))
    spec["restartPolicy"] = "Never"
    return {"metadata": {"labels": run.labels}, "spec": spec}


def manifest(
    run: Run,
    args: PodArgs,
    namespace: pulumi.Input[str],
    config: pulumi.Input[str] = "",
    image_key: str = "",
) -> Fragment:
    """The RayJob object.

    Args:
        run: the run.
        args: image, service account, token secret.
        namespace: where it goes.
        config: the text of run.yaml; only a shared cluster, which mounts no ConfigMap, needs it.
        image_key: what identifies the image; only for a shared cluster's name.
    """
    module = TRAINERS[run.workload].module
    spec: Fragment = {
        "entrypoint": f"python -m {module} --config {CONFIG_FILE}",
        "submissionMode": "K8sJobMode",
        "submitterPodTemplate": _submitter(run, args),
        "submitterConfig": {
            "backoffLimit": SUBMITTER_RETRIES_SHARED if run.cluster else SUBMITTER_RETRIES
        },
        "activeDeadlineSeconds": run.deadline_seconds,
    }
    if run.cluster is None:
        spec["shutdownAfterJobFinishes"] = True
        # Each retry gets a new cluster; KubeRay 1.6 refuses this with clusterSelector.
        spec["backoffLimit"] = run.retries
        spec["rayClusterSpec"] = cluster_spec(run, args, run.object_name, run.labels)
    else:
        file = f"/tmp/{run.object_name}.yaml"
        spec["clusterSelector"] = {"ray.io/cluster": shared_cluster_name(run, image_key)}
        spec["entrypoint"] = (
            f"bash -c 'echo $GEMMA_CONFIG | base64 -d > {file} && "
            f"exec python -m {module} --config {file}'"
        )
        spec["runtimeEnvYAML"] = _runtime_env(config)
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": pods.metadata(run, namespace, _annotations(run)),
        "spec": spec,
    }


def _runtime_env(config: pulumi.Input[str]) -> pulumi.Input[str]:
    def text(config: str) -> str:
        # base64: KubeRay puts this through a shell.
        encoded = base64.b64encode(config.encode()).decode()
        return json.dumps({"env_vars": {"GEMMA_CONFIG": encoded}})

    if isinstance(config, str):
        return text(config)
    return pulumi.Output.from_input(config).apply(text)


def _annotations(run: Run) -> dict[str, str]:
    # KubeRay writes finalizers and Kueue `suspend`; what is declared here is ours.
    annotations = {"pulumi.com/patchForce": "true"}
    if run.wait:
        # A job that stopped itself (a configuration that no retry can mend) is Complete as well.
        annotations["pulumi.com/waitFor"] = "jsonpath={.status.jobStatus}=SUCCEEDED"
    else:
        annotations["pulumi.com/skipAwait"] = "true"
    return annotations
