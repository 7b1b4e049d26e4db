"""Stand-ins for Google's APIs: what the program, its clients and its pods find instead of Google.

`install` puts the stand-in `gcp` plugin into a Pulumi home; `start` starts the HTTP services and
tells what must be in the environment to find them; `resources` lists what exists.
"""

from __future__ import annotations

import importlib.metadata
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from .gcp.faults import set_faults
from .gcp.store import Record, Store
from .services import Ports, environment, start_services

__all__ = ["Ports", "add_secret", "install", "resources", "set_faults", "start", "state"]

LAUNCHER = """#!/bin/sh
# The stand-in gcp provider; written by sandbox.cloud.install.
PYTHONPATH={root} exec {python} -P -c \\
  'from sandbox.cloud.gcp.plugin import main; main("{version}")' "$@"
"""


class Spawner(Protocol):
    """Starts a server and waits until it is ready (sandbox.processes.Supervisor)."""

    def spawn(
        self,
        name: str,
        command: Sequence[str | os.PathLike[str]],
        *,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        ready: Callable[[], bool] | None = None,
        timeout: float = 60,
    ) -> Any: ...


def start(
    folder: Path, address: str, supervisor: Spawner, ports: Ports | None = None
) -> dict[str, str]:
    """Starts Cloud Storage, Cloud Build, Artifact Registry and the metadata server.

    folder: of the sandbox. address: where pods and programs reach this machine; the API server
    that plays the cluster's answers there too. Returns variables for the environment of Pulumi and
    of the pods. What an earlier sandbox left in the folder is there again.
    """
    ports = ports or Ports()
    Store(folder / "cloud").set_fact("api-server", f"{address}:{ports.api_server}")
    install(folder / "pulumi-home")
    plugin = (Path(__file__).parent / "gke-gcloud-auth-plugin").read_text()
    _write_executable(
        folder / "bin" / "gke-gcloud-auth-plugin", plugin.replace("@FOLDER@", str(folder))
    )
    start_services(folder, address, supervisor, ports)
    return environment(folder, address, ports)


def install(pulumi_home: Path) -> Path:
    """Puts the stand-in plugin where the engine looks for the real one; returns its executable.

    It takes the version of the installed SDK, so that the engine finds exactly what it asks for.
    Safe to call again; a plugin that is in use is replaced in one step.
    """
    version = importlib.metadata.version("pulumi-gcp")
    text = LAUNCHER.format(
        root=shlex.quote(str(Path(__file__).parents[2])),
        python=shlex.quote(sys.executable),
        version=version,
    )
    path = pulumi_home / "plugins" / f"resource-gcp-v{version}" / "pulumi-resource-gcp"
    _write_executable(path, text)
    return path


def add_secret(folder: Path, project: str, name: str) -> None:
    """Makes a Secret Manager secret that no program manages: a token that somebody put there."""
    id_ = f"projects/{project}/secrets/{name}"
    state = {"secretId": name, "project": project, "name": id_}
    Store(folder / "cloud").put(Record("gcp:secretmanager/secret:Secret", id_, "", {}, state))


def resources(folder: Path) -> list[Record]:
    """Everything that exists in the stand-in Google of the sandbox in `folder`."""
    records = Store(folder / "cloud").list()
    return [record for record in records if not record.notes.get("deleted")]


def state(folder: Path) -> list[dict[str, Any]]:
    """The same as plain dictionaries: type, id, urn, inputs, state."""
    return [
        {"type": r.type, "id": r.id, "urn": r.urn, "inputs": r.inputs, "state": r.state}
        for r in resources(folder)
    ]


def _write_executable(path: Path, text: str) -> None:
    if path.exists() and path.read_text() == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.chmod(0o755)
    temporary.replace(path)
