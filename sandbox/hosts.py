"""The cluster's DNS: one hosts file for the servers and every container."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from pathlib import Path

from sandbox.api import Api, Json
from sandbox.certificates import ADDRESS


def table(services: Iterable[Json], pods: Iterable[Json]) -> str:
    """The hosts file for these services and pods.

    There is no kube-proxy, so the name of a service leads to its ready pods themselves, whether
    it is headless or has a cluster address.
    """
    lines = ["127.0.0.1 localhost", f"{ADDRESS} {_names('kubernetes', 'default')}"]
    placed = [pod for pod in pods if _placed(pod.get("status") or {})]
    for pod in sorted(placed, key=lambda pod: str(pod["metadata"]["name"])):
        lines.append(f"{pod['status']['podIP']} {host_name(pod)}")
    for service in sorted(services, key=lambda service: str(service["metadata"]["name"])):
        meta, spec = service["metadata"], service.get("spec") or {}
        selector: dict[str, str] = spec.get("selector") or {}
        if not selector:
            continue
        for pod in placed:
            labels = pod["metadata"].get("labels") or {}
            if pod["metadata"]["namespace"] != meta["namespace"] or any(
                labels.get(key) != value for key, value in selector.items()
            ):
                continue
            if not (_ready(pod) or spec.get("publishNotReadyAddresses")):
                continue
            address = pod["status"]["podIP"]
            lines.append(f"{address} {_names(meta['name'], meta['namespace'])}")
            if pod["spec"].get("hostname") and pod["spec"].get("subdomain") == meta["name"]:
                own = f"{pod['spec']['hostname']}.{meta['name']}"
                lines.append(f"{address} {_names(own, meta['namespace'])}")
    return "\n".join(lines) + "\n"


def host_name(pod: Json) -> str:
    """The name that `hostname` prints in a pod."""
    return str(pod["spec"].get("hostname") or pod["metadata"]["name"])[:63]


def _names(name: str, namespace: str) -> str:
    full = f"{name}.{namespace}.svc.cluster.local"
    return f"{full} {name}.{namespace}.svc {name}.{namespace} {name}"


def _placed(status: Json) -> bool:
    """An ended pod keeps its address in its status; no service leads to it, ready or not."""
    return bool(status.get("podIP")) and status.get("phase") in ("Pending", "Running")


def _ready(pod: Json) -> bool:
    status = pod["status"]
    if pod["metadata"].get("deletionTimestamp"):
        return False
    conditions = status.get("conditions") or []
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


class HostsFile:
    """Rewrites the file in place: bind mounts hold its inode."""

    def __init__(self, path: Path, client: Api) -> None:
        self._path = path
        self._client = client
        self._objects: dict[str, dict[str, Json]] = {"services": {}, "pods": {}}
        self._lock = threading.Lock()
        self._text = ""

    def start(self, stop: threading.Event) -> None:
        """Follow services and pods in two threads."""
        for kind in self._objects:
            threading.Thread(target=self._follow, args=(kind, stop), daemon=True).start()

    def _follow(self, kind: str, stop: threading.Event) -> None:
        known = self._objects[kind]

        def listed(items: list[Json]) -> None:
            with self._lock:
                known.clear()
                known.update({item["metadata"]["uid"]: item for item in items})
                self._write()

        def changed(event: str, item: Json) -> None:
            with self._lock:
                if event == "DELETED":
                    known.pop(item["metadata"]["uid"], None)
                else:
                    known[item["metadata"]["uid"]] = item
                self._write()

        self._client.follow(f"/api/v1/{kind}", stop, listed, changed)

    def _write(self) -> None:
        text = table(self._objects["services"].values(), self._objects["pods"].values())
        if text == self._text:
            return
        self._text = text
        descriptor = os.open(self._path, os.O_WRONLY)
        try:
            data = text.encode()
            # Who reads between the two steps finds empty lines, not the end of an older table.
            os.pwrite(descriptor, data.ljust(os.fstat(descriptor).st_size, b"\n"), 0)
            os.ftruncate(descriptor, len(data))
        finally:
            os.close(descriptor)
