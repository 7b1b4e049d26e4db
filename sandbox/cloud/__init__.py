"""Stand-ins for Google's APIs: what the program, its clients and its pods find instead of Google.

`install` puts the stand-in `gcp` plugin into a Pulumi home; `start` (see `servers`) starts the
HTTP services; `resources` lists what exists in the stand-in Google.
"""

from __future__ import annotations

import importlib.metadata
import os
import shlex
import sys
from pathlib import Path

from .gcp.store import Record, Store

LAUNCHER = """#!/bin/sh
# The stand-in gcp provider; written by sandbox.cloud.install.
PYTHONPATH={root} exec {python} -P -c 'from sandbox.cloud.gcp.plugin import main; main("{version}")' "$@"
"""


def install(pulumi_home: Path) -> Path:
    """Puts the stand-in plugin where the engine looks for the real one; returns its executable.

    It takes the version of the installed SDK, so that the engine finds exactly what it asks for.
    Safe to call again; a plugin that is in use is replaced in one step.
    """
    version = importlib.metadata.version("pulumi-gcp")
    folder = pulumi_home / "plugins" / f"resource-gcp-v{version}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "pulumi-resource-gcp"
    text = LAUNCHER.format(
        root=shlex.quote(str(Path(__file__).parents[2])),
        python=shlex.quote(sys.executable),
        version=version,
    )
    if not path.exists() or path.read_text() != text:
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        temporary.write_text(text)
        temporary.chmod(0o755)
        temporary.replace(path)
    return path


def resources(folder: Path) -> list[Record]:
    """Everything that exists in the stand-in Google of the sandbox in `folder`."""
    records = Store(folder / "cloud").list()
    return [record for record in records if not record.notes.get("deleted")]
