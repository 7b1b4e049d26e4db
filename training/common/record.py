"""What a run leaves for the record: versions, outcome, and the mark that it is done."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from training.common.storage import Folder

RESULT = "result.json"
LIBRARIES = (
    "torch",
    "transformers",
    "trl",
    "peft",
    "accelerate",
    "bitsandbytes",
    "ray",
    "datasets",
)


def versions() -> dict[str, str]:
    """Versions of Python and of the libraries that decide the numbers (absent ones left out)."""
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def finished(folder: Folder) -> dict[str, Any] | None:
    """The record of a run that is done, or None."""
    try:
        result = json.loads(folder.read(RESULT))
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    return result if result.get("status") == "done" else None


def finish(folder: Folder, run: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Write result.json, last of all: from now on the run counts as done.

    Args:
        folder: the run's folder.
        run: the section `run` of the configuration.
        facts: what else is worth keeping: seconds, steps, revision of the data, headline numbers.
    """
    result = {
        "status": "done",
        "run": dict(run),
        "ended": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions(),
        **facts,
    }
    if commit := os.environ.get("GEMMA_GIT_COMMIT"):
        result["git_commit"] = commit
    folder.write(RESULT, json.dumps(result, indent=2) + "\n")
    return result
