"""The stack's outputs: what a person needs next, most of it to click or to paste."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pulumi

from infra import links
from infra.cluster import Cluster
from infra.guard import unlocking
from infra.schema import Settings


def export(
    settings: Settings,
    *,
    cluster: Cluster,
    namespace: str,
    bucket: pulumi.Input[str],
    image: pulumi.Input[str],
    runs: Mapping[str, Any],
    dashboard: pulumi.Output[str] | None,
) -> None:
    """Exports them.

    Args:
        settings: of the stack.
        cluster: whose kubeconfig is exported as a secret.
        namespace: of the runs.
        bucket: name of the bucket of runs.
        image: reference of the trainer image, by digest.
        runs: by name; of each the keys id, kind, object, folder and logs are used.
        dashboard: id of the Cloud Monitoring dashboard, if any.
    """
    project, region, name = settings.project, settings.region, settings.name
    pulumi.export("cluster", cluster.cluster.name)
    pulumi.export("kubeconfig", cluster.kubeconfig)
    pulumi.export("bucket", pulumi.Output.concat("gs://", bucket))
    pulumi.export("image", image)
    pulumi.export("runs", dict(runs))
    pages: dict[str, pulumi.Input[str]] = {
        "cluster": links.cluster(project, region, name),
        "gpus": links.gpus(project, region, name),
        "results": pulumi.Output.from_input(bucket).apply(
            lambda b: links.folder(project, f"gs://{b}/runs")
        ),
    }
    if dashboard is not None:
        pages["dashboard"] = dashboard.apply(lambda d: links.dashboard(project, d))
    pulumi.export("links", pages)
    pulumi.export("commands", _commands(settings, namespace))


def _commands(settings: Settings, namespace: str) -> dict[str, str]:
    steps = unlocking(settings)
    dns = " --dns-endpoint" if settings.cluster.control_plane == "dns" else ""
    return {
        "kubectl": f"gcloud container clusters get-credentials {settings.name}{dns} "
        f"--project={settings.project} --region={settings.region}",
        # The head's service exists while its run does; then http://localhost:8265 shows it.
        "ray dashboard": f"kubectl --namespace={namespace} port-forward "
        f"$(kubectl --namespace={namespace} get service --output=name "
        "--selector=ray.io/node-type=head | head -n 1) 8265",
        "destroy": " && ".join([*steps, *(["pulumi up"] if steps else []), "pulumi destroy"]),
    }
