"""The little that the program itself asks the API server."""

from __future__ import annotations

import json
from typing import Any, cast

from kubernetes import client, config  # pyright: ignore[reportMissingTypeStubs]


def established(kubeconfig: str) -> set[str]:
    """Names of the CustomResourceDefinitions that the API server serves.

    Raises:
        Exception: whatever the client raises when the server cannot be reached.
    """
    load = cast("Any", config).new_client_from_config_dict
    api = cast("Any", client).ApiextensionsV1Api(load(json.loads(kubeconfig)))
    found: list[Any] = api.list_custom_resource_definition(_request_timeout=20).items
    return {
        item.metadata.name
        for item in found
        for condition in cast("list[Any]", item.status.conditions or [])
        if condition.type == "Established" and condition.status == "True"
    }
