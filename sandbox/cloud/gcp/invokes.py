"""Data sources (`get_...` functions) that a program may ask for."""

from __future__ import annotations

from typing import Any

from .errors import CloudError
from .store import Values
from .world import World


def call(token: str, args: Values, world: World) -> Values:
    """The result of one data source. Raises CloudError for one that the stand-in lacks."""
    project = str(args.get("project") or args.get("projectId") or world.project)
    if token == "gcp:organizations/getProject:getProject":
        out: dict[str, Any] = {
            "id": f"projects/{project}",
            "projectId": project,
            "name": project,
            "number": world.number(project),
        }
        return out
    if token == "gcp:organizations/getClientConfig:getClientConfig":
        return {"id": "x", "project": project, "region": world.region, "zone": world.zone}
    raise CloudError(f"the stand-in gcp provider has no data source {token}")
