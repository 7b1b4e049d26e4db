"""What Pulumi overlooks in a stack's file: it reads `config:` and its own keys, and no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import yaml

from training.common.config import Problem

PULUMIS = {"config", "encryptedkey", "encryptionsalt", "environment", "secretsprovider"}


def overlooked(path: Path) -> list[Problem]:
    """A problem for each key that stands beside `config:`; none where there is no such file.

    A line that lost its indentation would otherwise take a run, or all settings, with it.
    """
    try:
        loaded: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError):  # the engine tells both
        return []
    keys = list(cast("dict[object, object]", loaded)) if isinstance(loaded, dict) else []
    return [
        Problem(
            str(key),
            f"beside `config:` in {path.name}",
            "below `config:`, two spaces further in: what stands beside it is overlooked",
            f"indent `{key}:` and all that belongs to it in {path.name}, below `config:`",
        )
        for key in keys
        if key not in PULUMIS
    ]
