"""Starts the HTTP stand-ins and says how Google's own clients are led to them."""

from __future__ import annotations

import contextlib
import http.client
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import Spawner

BUCKET_SUFFIX = ".bucketMetadata"
OBJECT_KEY = "user.metadata"  # fake-gcs-server keeps an object's attributes in this xattr,
OBJECT_SUFFIX = ".metadata"  # or in a file beside it where there are no xattrs


@dataclass(frozen=True)
class Ports:
    """Ports of the stand-ins. In the sandbox's own network namespace none is taken."""

    storage: int = 9023
    apis: int = 9024
    api_server: int = 6443


def start_services(folder: Path, address: str, supervisor: Spawner, ports: Ports) -> None:
    """Starts both servers and waits until they answer."""
    root = folder / "storage"
    root.mkdir(parents=True, exist_ok=True)
    remove_half_written(root)
    storage = f"http://{address}:{ports.storage}"
    supervisor.spawn(
        "fake-gcs-server",
        [
            "fake-gcs-server",
            "-scheme=http",
            "-backend=filesystem",
            f"-filesystem-root={root}",
            f"-host={address}",
            f"-port={ports.storage}",
            f"-public-host={address}:{ports.storage}",
            f"-external-url={storage}",
            "-log-level=error",
        ],
        ready=lambda: answers(address, ports.storage, "/storage/v1/b?project=x"),
    )
    supervisor.spawn(
        "google-apis",
        [sys.executable, "-m", "sandbox.cloud.server", folder, address, str(ports.apis), storage],
        environment={"PYTHONPATH": str(Path(__file__).parents[2])},
        ready=lambda: answers(address, ports.apis, "/"),
    )


def environment(folder: Path, address: str, ports: Ports) -> dict[str, str]:
    """Variables by which Pulumi, the clients in the program and those in the pods find us."""
    storage, apis = f"{address}:{ports.storage}", f"{address}:{ports.apis}"
    return {
        "GEMMA_SANDBOX_CLOUD": str(folder / "cloud"),
        "STORAGE_EMULATOR_HOST": f"http://{storage}",
        "CLOUD_STORAGE_EMULATOR_ENDPOINT": f"http://{storage}",  # Arrow's C++ client
        # gcsfs first asks by gRPC which kind of bucket it is: a wait of a minute here.
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
        "GCE_METADATA_HOST": apis,
        "GCE_METADATA_IP": apis,
        "GCE_METADATA_ROOT": apis,
        "GOOGLE_CLOUD_BUILD_CUSTOM_ENDPOINT": f"http://{apis}/v1/",
        "GOOGLE_ARTIFACT_REGISTRY_CUSTOM_ENDPOINT": f"http://{apis}/v1/",
    }


def answers(address: str, port: int, path: str) -> bool:
    """Whether a server answers 200 there."""
    connection = http.client.HTTPConnection(address, port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    finally:
        connection.close()


def remove_half_written(root: Path) -> None:
    """Removes objects whose attributes are missing: a server killed between its two writes.

    fake-gcs-server (1.56) writes the content first; one such object makes it answer every list of
    its bucket with an error.
    """
    for path in root.rglob("*"):
        if path.name.endswith((BUCKET_SUFFIX, OBJECT_SUFFIX)) or not path.is_file():
            continue
        with contextlib.suppress(OSError):
            os.getxattr(path, OBJECT_KEY)
            continue
        if not path.with_name(path.name + OBJECT_SUFFIX).exists():
            path.unlink()
