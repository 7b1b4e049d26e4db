"""The Cloud Monitoring dashboard: is every GPU busy, does the loss fall."""

from __future__ import annotations

from typing import Any

COLUMNS = 12
WIDTH, HEIGHT = 6, 4
DCGM = "prometheus.googleapis.com"

GPU_CHARTS = {
    "GPU utilisation (%)": ("DCGM_FI_DEV_GPU_UTIL", "ALIGN_MEAN"),
    "Tensor cores active (share of time)": ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "ALIGN_MEAN"),
    "GPU memory used (MiB)": ("DCGM_FI_DEV_FB_USED", "ALIGN_MEAN"),
    "NVLink sent (bytes/s)": ("DCGM_FI_PROF_NVLINK_TX_BYTES", "ALIGN_MEAN"),
    "NVLink received (bytes/s)": ("DCGM_FI_PROF_NVLINK_RX_BYTES", "ALIGN_MEAN"),
    "GPU power (W)": ("DCGM_FI_DEV_POWER_USAGE", "ALIGN_MEAN"),
}
"""Charts from the DCGM metrics that Autopilot collects: title, metric and aligner."""


def layout(name: str, cluster: str, namespace: str, run_metrics: list[str]) -> dict[str, Any]:
    """The dashboard as Cloud Monitoring's API takes it.

    Args:
        name: prefix of the log-based metrics.
        cluster, namespace: whose pods are shown.
        run_metrics: log-based metrics to chart by run, most important first.
    """
    charts = [_run_chart(name, metric) for metric in run_metrics]
    charts += [
        _gpu_chart(title, metric, aligner, cluster, namespace)
        for title, (metric, aligner) in GPU_CHARTS.items()
    ]
    per_row = COLUMNS // WIDTH
    tiles = [
        {
            "xPos": index % per_row * WIDTH,
            "yPos": index // per_row * HEIGHT,
            "width": WIDTH,
            "height": HEIGHT,
            "widget": chart,
        }
        for index, chart in enumerate(charts)
    ]
    return {"displayName": name, "mosaicLayout": {"columns": COLUMNS, "tiles": tiles}}


def _run_chart(name: str, metric: str) -> dict[str, Any]:
    query = {
        "filter": 'resource.type="k8s_container" '
        f'metric.type="logging.googleapis.com/user/{name}/{metric}"',
        "aggregation": {
            "alignmentPeriod": "60s",
            "perSeriesAligner": "ALIGN_DELTA",
            "crossSeriesReducer": "REDUCE_MEAN",
            "groupByFields": ["metric.label.run"],
        },
    }
    return _chart(metric.replace("_", " ").capitalize(), query, "${metric.labels.run}")


def _gpu_chart(
    title: str, metric: str, aligner: str, cluster: str, namespace: str
) -> dict[str, Any]:
    query = {
        "filter": f'resource.type="prometheus_target" metric.type="{DCGM}/{metric}/gauge" '
        f'resource.label.cluster="{cluster}" metric.label.namespace="{namespace}"',
        "aggregation": {
            "alignmentPeriod": "60s",
            "perSeriesAligner": aligner,
            "crossSeriesReducer": "REDUCE_MEAN",
            "groupByFields": ["metric.label.pod", "metric.label.gpu"],
        },
    }
    return _chart(title, query, "${metric.labels.pod} GPU ${metric.labels.gpu}")


def _chart(title: str, query: dict[str, Any], legend: str) -> dict[str, Any]:
    data = {
        "timeSeriesQuery": {"timeSeriesFilter": query},
        "plotType": "LINE",
        "legendTemplate": legend,
    }
    return {"title": title, "xyChart": {"dataSets": [data]}}
