"""A stack with runs, for what is checked and planned of them."""

from __future__ import annotations

from typing import Any

from infra.schema import Settings


def stack(runs: dict[str, Any], **keys: object) -> Settings:
    base = {
        "project": "my-project",
        "region": "us-central1",
        "stack": "dev",
        "reservation": "r1",
        "runs": runs,
    }
    return Settings.model_validate({**base, **keys}, by_name=True)


VISION = {"workload": "gemma3-vision", "nodes": 2}
TEXT = {"workload": "gemma4-text"}
