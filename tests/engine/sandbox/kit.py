"""What the tests of the sandbox share: an image, small pods, and waiting for what they do."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sandbox import Sandbox

DIGEST = "5" * 64
IMAGE = f"registry/trainer@sha256:{DIGEST}"
DOCKERFILE = 'FROM python:3.11\nWORKDIR /app\nENV GREETING="from the image"\nCOPY . .\n'
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}


def give_image(folder: Path) -> None:
    """What the Cloud Build stand-in leaves for an image."""
    files = folder / "images" / f"sha256-{DIGEST}"
    files.mkdir(parents=True)
    (files / "Dockerfile").write_text(DOCKERFILE)
    (files / "greet.py").write_text("import os; print(os.environ['GREETING'])")


def make_namespace(cloud: Sandbox) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    apply(
        cloud,
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "t", "labels": labels}},
    )
    until("the service account", lambda: cloud.kubectl("get", "sa", "default", "-nt", check=False))


def apply(cloud: Sandbox, *manifests: dict[str, Any]) -> None:
    items = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
    # Without kubectl's own validation: the schema of a CRD is slow to be had after its creation.
    cloud.kubectl("apply", "--validate=false", "-f", "-", input=json.dumps(items))


def until(what: str, true: Callable[[], Any], seconds: float = 120, every: float = 0.2) -> Any:
    deadline = time.monotonic() + seconds
    while not (value := true()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(every)
    return value


def pod(name: str, script: str, **spec: Any) -> dict[str, Any]:
    """A pod that runs a shell script under the `restricted` profile."""
    container = {
        "name": "main",
        "image": IMAGE,
        "command": ["bash", "-c", script],
        "securityContext": RESTRICTED,
        **spec.pop("container", {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "t", "labels": {"app": name}},
        "spec": {
            "restartPolicy": "Never",
            "securityContext": {
                "runAsUser": 1000,
                "runAsGroup": 1000,
                "runAsNonRoot": True,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
            **spec,
        },
    }


def look(cloud: Sandbox, name: str, kind: str = "pod") -> dict[str, Any]:
    (found,) = cloud.objects(kind, name, "-nt")
    return found


def wait_for_phase(cloud: Sandbox, name: str, *phases: str) -> dict[str, Any]:
    return until(
        f"pod {name} {phases}",
        lambda: (found := look(cloud, name))["status"]["phase"] in phases and found,
    )


def log(cloud: Sandbox, name: str, *options: str) -> str:
    return cloud.kubectl("logs", name, "-nt", *options)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # ended, maybe between opening and reading
        return False
    return state != "Z"
