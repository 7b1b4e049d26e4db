"""Runs as Pulumi resources: a ConfigMap and a RayJob or Job each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pulumi
import pulumi_kubernetes as k8s

from workloads import job, raycluster, rayjob
from workloads.pods import Fragment, PodArgs
from workloads.run import Run

# KubeRay builds the cluster once and ignores later changes of these (kuberay#3840).
RAY_JOB_REPLACED_BY = [
    f"spec.{key}"
    for key in (
        "rayClusterSpec",
        "clusterSelector",
        "entrypoint",
        "runtimeEnvYAML",
        "submitterPodTemplate",
    )
]


Summary = dict[str, pulumi.Input[str]]


@dataclass(frozen=True)
class Surroundings:
    """What runs get from the rest of the program; computed values may be outputs.

    Attributes:
        image: reference of the trainer image, by digest.
        image_key: what identifies the image at preview.
        bucket: name of the bucket that the runs write to.
        project: Google Cloud project, for links.
        namespace: where everything goes.
        service_account: Kubernetes service account of the pods.
        token_secret: name of the Secret with the Hugging Face token (key `token`), if any.
    """

    image: pulumi.Input[str]
    image_key: str
    bucket: pulumi.Input[str]
    project: pulumi.Input[str]
    namespace: pulumi.Input[str] = "gemma"
    service_account: pulumi.Input[str] = "trainer"
    token_secret: pulumi.Input[str] | None = None


class FineTuning(pulumi.ComponentResource):
    """One run on the cluster.

    Outputs:
        summary: id, kind, object (name of the RayJob or Job), folder (gs:// URI) and logs (link).
    """

    summary: Summary

    def __init__(
        self,
        run: Run,
        around: Surroundings,
        shared: pulumi.Resource | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """Declares the run's objects.

        Args:
            run: the run.
            around: what it gets from the rest of the program.
            shared: the RayCluster that it runs on, when that is not its own.
            opts: options of the component and of each of its objects.
        """
        own = pulumi.ResourceOptions(depends_on=[shared] if shared else [])
        opts = pulumi.ResourceOptions.merge(opts, own)
        super().__init__("gemma:workloads:FineTuning", run.name, None, opts)
        # depends_on and deleted_with do not reach children by themselves.
        child = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(parent=self))
        folder = pulumi.Output.concat("gs://", around.bucket, f"/{run.path}")
        config = pulumi.Output.all(folder, around.image).apply(lambda a: run.config(a[0], a[1]))
        config_map = _config_map(run, around.namespace, config, child)
        child = pulumi.ResourceOptions.merge(child, _job_options(run, config_map))
        args = PodArgs(around.image, around.service_account, around.token_secret)
        if run.kind == "RayJob":
            text = config if run.cluster else ""
            body = rayjob.manifest(run, args, around.namespace, text, around.image_key)
            _ray_object(run.name, body, child, replaced_by=RAY_JOB_REPLACED_BY)
        else:
            _job(run, args, around.namespace, child)
        self.summary = {
            "id": run.id,
            "kind": run.kind,
            "object": run.object_name,
            "folder": folder,
            "logs": pulumi.Output.from_input(around.project).apply(lambda p: logs_url(run, p)),
        }
        self.register_outputs({"summary": self.summary})


def deploy(
    runs: Iterable[Run], around: Surroundings, opts: pulumi.ResourceOptions | None = None
) -> dict[str, Summary]:
    """Declares all runs and the clusters that they share.

    Args:
        runs: the runs of `plan`.
        around: what they get from the rest of the program.
        opts: options of every object: the cluster's provider, what must exist before.

    Returns:
        The runs' summaries by run name, for the stack's outputs.
    """
    args = PodArgs(around.image, around.service_account, around.token_secret)
    shared: dict[str, pulumi.Resource] = {}
    summaries: dict[str, Summary] = {}
    for run in runs:
        if run.cluster and run.cluster not in shared:
            body = raycluster.shared_cluster(run, args, around.namespace, around.image_key)
            shared[run.cluster] = _ray_object(f"cluster-{run.cluster}", body, opts)
        tuning = FineTuning(run, around, shared.get(run.cluster or ""), opts)
        summaries[run.name] = tuning.summary
    return summaries


def logs_url(run: Run, project: str) -> str:
    """Where the logs of the run's pods are in Google Cloud's console."""
    query = f'resource.type="k8s_container"\nlabels."k8s-pod/gemma_run/id"="{run.id}"'
    return (
        f"https://console.cloud.google.com/logs/query;query={quote(query, safe='')}"
        f"?project={project}"
    )


def _config_map(
    run: Run, namespace: pulumi.Input[str], config: pulumi.Output[str], opts: pulumi.ResourceOptions
) -> k8s.core.v1.ConfigMap:
    data: dict[str, pulumi.Input[str]] = {"run.yaml": config}
    launcher = run.launcher_config()
    if launcher is not None:
        data["accelerate.yaml"] = launcher
    metadata: Any = {"name": run.object_name, "namespace": namespace, "labels": run.labels}
    # Immutable: a pod that restarts reads what the run began with.
    return k8s.core.v1.ConfigMap(
        f"{run.name}-config", immutable=True, data=data, metadata=metadata, opts=opts
    )


def _job_options(run: Run, config_map: pulumi.Resource) -> pulumi.ResourceOptions:
    """Options of a run's Job or RayJob: the old one goes before the new one comes.

    Its machines are what the new one waits for, and with a changed pod and the same content the
    name stays the same.
    """
    # The engine's own limit is 10 minutes; a deletion may take the pods' whole grace period.
    longest = f"{run.deadline_seconds * run.starts}s" if run.wait else None
    return pulumi.ResourceOptions(
        depends_on=[config_map],
        delete_before_replace=True,
        custom_timeouts=pulumi.CustomTimeouts(create=longest, update=longest, delete="20m"),
    )


def _ray_object(
    name: str,
    body: Fragment,
    opts: pulumi.ResourceOptions | None,
    replaced_by: list[str] | None = None,
) -> k8s.apiextensions.CustomResource:
    own = pulumi.ResourceOptions(replace_on_changes=replaced_by or [], delete_before_replace=True)
    return k8s.apiextensions.CustomResource(
        name,
        api_version=body["apiVersion"],
        kind=body["kind"],
        metadata=body["metadata"],
        spec=body["spec"],
        opts=pulumi.ResourceOptions.merge(opts, own),
    )


def _job(
    run: Run, args: PodArgs, namespace: pulumi.Input[str], opts: pulumi.ResourceOptions
) -> None:
    service = job.service(run, namespace)
    if service is not None:
        headless = k8s.core.v1.Service(
            run.name, metadata=service["metadata"], spec=service["spec"], opts=opts
        )
        ahead = pulumi.ResourceOptions(depends_on=[headless])
        opts = pulumi.ResourceOptions.merge(opts, ahead)
    body = job.manifest(run, args, namespace)
    k8s.batch.v1.Job(run.name, metadata=body["metadata"], spec=body["spec"], opts=opts)
