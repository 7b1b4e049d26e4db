"""Pages of Google Cloud's console that belong to this stack, for people to click."""

from __future__ import annotations

from urllib.parse import quote

CONSOLE = "https://console.cloud.google.com"


def cluster(project: str, region: str, name: str) -> str:
    """The cluster's page."""
    return f"{CONSOLE}/kubernetes/clusters/details/{region}/{name}/details?project={project}"


def gpus(project: str, region: str, name: str) -> str:
    """The cluster's GPU charts of the last hour, by namespace."""
    state = (
        '("timeRange":("duration":"PT1H"),"nav":("section":"gpu"),'
        '"groupBy":("groupByType":"namespacesTop5"))'
    )
    return (
        f"{CONSOLE}/kubernetes/clusters/details/{region}/{name}/observability"
        f"?project={project}&pageState={quote(state, safe='')}"
    )


def folder(project: str, uri: str) -> str:
    """A folder of a bucket, given as gs://BUCKET/PATH."""
    return f"{CONSOLE}/storage/browser/{uri.removeprefix('gs://')}?project={project}"


def dashboard(project: str, dashboard_id: str) -> str:
    """A Cloud Monitoring dashboard, given as projects/N/dashboards/ID."""
    _, _, number = dashboard_id.rpartition("/")
    return f"{CONSOLE}/monitoring/dashboards/builder/{number}?project={project}"
