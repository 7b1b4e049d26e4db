"""What `gemma:environment` changes: defaults and nothing else, so a stack's own value wins."""

from __future__ import annotations

from typing import Any

ENVIRONMENTS: dict[str, dict[str, dict[str, Any]]] = {
    "dev": {
        "cluster": {"deletionProtection": False, "releaseChannel": "REGULAR"},
        "bucket": {"forceDestroy": True, "checkpointDays": 14, "softDeleteDays": 7},
        "network": {"privateNodes": True},
    },
    "prod": {
        "cluster": {"deletionProtection": True, "releaseChannel": "STABLE"},
        "bucket": {"forceDestroy": False, "checkpointDays": 90, "softDeleteDays": 30},
        "network": {"privateNodes": True},
    },
}
