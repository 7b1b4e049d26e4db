"""What to watch: metrics from the trainers' progress lines, a dashboard, alerts. All optional."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from infra import schema
from infra.dashboard import layout

PROGRESS = r"step \d+/\d+\s+loss "
"""How a progress line of a trainer begins: `step 12/180  loss 1.234  lr 2.0e-04  ...`. A line about
the held-out loss does not."""

NUMBER = r"([0-9.eE+-]+)"
EXTRACTORS = {"loss": rf"{PROGRESS}{NUMBER}", "tokens_per_second": rf"{NUMBER} tok/s"}
"""Log-based metrics and the pattern that takes their value from a progress line."""

GAVE_UP = ("BackoffLimitExceeded", "DeadlineExceeded", "PodFailurePolicy")
"""Events that Kubernetes' job controller writes when it does not try again."""

RAY_FAILED = "Job '[^']+' failed|the run is given up: "
"""What a submitter logs of a failed Ray job: Ray's words, or those of a job that stops itself."""

OF_A_RUN = "(.+)-[0-9a-f]{10}-.+"
"""Names of the pods of a run, its name first."""

SHARED = ".+-[0-9a-f]{10}(-|-w[orkes]*)?-worker-.+"
"""Names of the workers of a shared Ray cluster, which are no run's: between cluster and group a
run's own have five characters more. KubeRay cuts what is before `-worker-` at 50 characters."""

RUN_LABEL = 'labels."k8s-pod/gemma_run/name"'
"""Cloud Logging keeps pod labels under k8s-pod/, with the prefix's dots as underscores."""


@dataclass(frozen=True, kw_only=True)
class ObservabilityArgs:
    """
    Attributes:
        project: of the metrics and alerts.
        name: what their names begin with.
        cluster, namespace: whose pods are watched.
        dashboard: make the dashboard.
        alerts: which alerts, and who is told.
        labels: for cost reports.
    """

    project: str
    name: str
    cluster: str
    namespace: str
    dashboard: bool
    alerts: schema.Alerts
    labels: dict[str, str]


class Observability(pulumi.ComponentResource):
    """Log-based metrics, dashboard and alert policies.

    Attributes:
        dashboard: id of the dashboard; None without one.
    """

    dashboard: pulumi.Output[str] | None

    def __init__(
        self, name: str, args: ObservabilityArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gemma:infra:Observability", name, None, opts)
        self._args = args
        self._child = pulumi.ResourceOptions(parent=self)
        self._pods = (
            f'resource.type="k8s_container" AND resource.labels.cluster_name="{args.cluster}" '
            f'AND resource.labels.namespace_name="{args.namespace}"'
        )
        metrics = {metric: self._metric(metric) for metric in EXTRACTORS} if self._wanted else {}
        self.dashboard = None
        if args.dashboard:
            board = gcp.monitoring.Dashboard(
                "dashboard",
                project=args.project,
                dashboard_json=json.dumps(
                    layout(args.name, args.cluster, args.namespace, list(EXTRACTORS))
                ),
                opts=pulumi.ResourceOptions(parent=self, depends_on=list(metrics.values())),
            )
            self.dashboard = board.id
        if args.alerts.enabled:
            self._alerts(metrics)
        self.register_outputs({"dashboard": self.dashboard})

    @property
    def _wanted(self) -> bool:
        return self._args.dashboard or self._args.alerts.enabled

    def _metric(self, metric: str) -> gcp.logging.Metric:
        """A distribution of the values in the progress lines, by run."""
        return gcp.logging.Metric(
            metric,
            name=f"{self._args.name}/{metric}",
            project=self._args.project,
            description=f"{metric} as the trainers log it",
            filter=f'{self._pods} AND textPayload=~"{_escaped(PROGRESS)}"',
            value_extractor=f'REGEXP_EXTRACT(textPayload, "{_escaped(EXTRACTORS[metric])}")',
            label_extractors={"run": f"EXTRACT({RUN_LABEL})"},
            metric_descriptor=gcp.logging.MetricMetricDescriptorArgs(
                metric_kind="DELTA",
                value_type="DISTRIBUTION",
                unit="1",
                labels=[gcp.logging.MetricMetricDescriptorLabelArgs(key="run")],
            ),
            opts=self._child,
        )

    def _alerts(self, metrics: dict[str, gcp.logging.Metric]) -> None:
        channels = [
            gcp.monitoring.NotificationChannel(
                f"email-{index}",
                project=self._args.project,
                type="email",
                display_name=f"{self._args.name} {email}",
                labels={"email_address": email},
                opts=self._child,
            ).id
            for index, email in enumerate(self._args.alerts.emails)
        ]
        self._policy("run-failed", _failed(self._args), channels, log_based=True)
        if self._args.alerts.stalled_minutes:
            condition = _stalled(self._args)
            self._policy("run-stalled", condition, channels, after=list(metrics.values()))
        if self._args.alerts.idle_minutes:
            condition = _idle(self._args)
            self._policy("gpus-idle", condition, channels)

    def _policy(
        self,
        what: str,
        condition: gcp.monitoring.AlertPolicyConditionArgs,
        channels: list[pulumi.Output[str]],
        *,
        log_based: bool = False,
        after: list[gcp.logging.Metric] | None = None,
    ) -> None:
        # Google demands a pause between notifications for log-based conditions, and only there.
        pause = gcp.monitoring.AlertPolicyAlertStrategyNotificationRateLimitArgs(period="300s")
        gcp.monitoring.AlertPolicy(
            what,
            project=self._args.project,
            display_name=f"{self._args.name}: {what.replace('-', ' ')}",
            combiner="OR",
            conditions=[condition],
            notification_channels=channels,
            alert_strategy=gcp.monitoring.AlertPolicyAlertStrategyArgs(
                auto_close="3600s", notification_rate_limit=pause if log_based else None
            ),
            user_labels=self._args.labels,
            opts=pulumi.ResourceOptions(parent=self, depends_on=after),
        )


def _failed(args: ObservabilityArgs) -> gcp.monitoring.AlertPolicyConditionArgs:
    """A Job gave up, or a Ray job failed.

    The Job is a text run's own, or one that submits a Ray run and has lost its head. How the Ray
    job ended it only logs: `ray job logs --follow`, which KubeRay 1.5 runs in it, ends with 0 all
    the same. KubeRay writes no event of a failed RayJob, so its passed deadline stays untold.
    """
    reasons = " OR ".join(f'"{reason}"' for reason in GAVE_UP)
    return gcp.monitoring.AlertPolicyConditionArgs(
        display_name="a run gave up, or an attempt of a Ray run failed",
        condition_matched_log=gcp.monitoring.AlertPolicyConditionConditionMatchedLogArgs(
            filter=f'resource.labels.cluster_name="{args.cluster}" AND ('
            f'(log_id("events") AND jsonPayload.involvedObject.namespace="{args.namespace}" '
            'AND jsonPayload.involvedObject.kind="Job" '
            f"AND jsonPayload.reason=({reasons})) OR "
            f'(resource.type="k8s_container" AND resource.labels.namespace_name="{args.namespace}" '
            'AND resource.labels.container_name="ray-job-submitter" '
            f'AND textPayload=~"{RAY_FAILED}"))',
            label_extractors={
                "job": "EXTRACT(jsonPayload.involvedObject.name)",
                "run": f"EXTRACT({RUN_LABEL})",
            },
        ),
    )


def _stalled(args: ObservabilityArgs) -> gcp.monitoring.AlertPolicyConditionArgs:
    """A run that held GPUs all the time and logged no step.

    The steps alone would not do: they end with every run. GPUs are counted per pod, and a pod's
    name begins with its run's name and id. Monitoring's PromQL writes the first slash of a metric
    as a colon and everything else that is special as an underscore.
    """
    minutes = args.alerts.stalled_minutes
    pods = (
        "kubernetes_io:container_accelerator_request"
        f'{{cluster_name="{args.cluster}",namespace_name="{args.namespace}",'
        f'pod_name=~"{OF_A_RUN}",pod_name!~"{SHARED}"}}'
    )
    steps = f"logging_googleapis_com:user_{args.name.replace('-', '_')}_loss_count"
    query = (
        f"({_by_run(pods)} and {_by_run(f'{pods} offset {minutes}m')}) unless "
        f'sum by (run) (increase({steps}{{monitored_resource="k8s_container"}}[{minutes}m])) > 0'
    )
    return gcp.monitoring.AlertPolicyConditionArgs(
        display_name=f"GPUs held and no training step for {minutes} minutes",
        condition_prometheus_query_language=(
            gcp.monitoring.AlertPolicyConditionConditionPrometheusQueryLanguageArgs(
                query=query, duration="0s", evaluation_interval="60s"
            )
        ),
    )


def _by_run(series: str) -> str:
    run = f'label_replace({series}, "run", "$1", "pod_name", "{OF_A_RUN}")'
    return f"count by (run) ({run})"


def _idle(args: ObservabilityArgs) -> gcp.monitoring.AlertPolicyConditionArgs:
    """GKE's own duty cycle of allocated accelerators, under 1 % for so long."""
    minutes = args.alerts.idle_minutes
    return gcp.monitoring.AlertPolicyConditionArgs(
        display_name=f"GPUs allocated and idle for {minutes} minutes",
        condition_threshold=gcp.monitoring.AlertPolicyConditionConditionThresholdArgs(
            filter='resource.type="k8s_container" AND '
            'metric.type="kubernetes.io/container/accelerator/duty_cycle" AND '
            f'resource.label.cluster_name="{args.cluster}" AND '
            f'resource.label.namespace_name="{args.namespace}"',
            comparison="COMPARISON_LT",
            threshold_value=1,
            duration=f"{minutes * 60}s",
            aggregations=[
                gcp.monitoring.AlertPolicyConditionConditionThresholdAggregationArgs(
                    alignment_period="60s",
                    per_series_aligner="ALIGN_MEAN",
                    cross_series_reducer="REDUCE_MEAN",
                    group_by_fields=["resource.label.pod_name"],
                )
            ],
        ),
    )


def _escaped(pattern: str) -> str:
    """A pattern inside the quotes of Cloud Logging's query language."""
    return pattern.replace("\\", "\\\\").replace('"', '\\"')
