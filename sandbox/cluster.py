"""Keeps the API server in step with the stand-in cluster resource, as GKE does with its add-ons."""

from __future__ import annotations

import json
import threading
import time
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from sandbox.api import Api, ApiError, Json
from sandbox.certificates import kubeconfig
from sandbox.folder import Folder
from sandbox.processes import Process, Supervisor
from sandbox.surroundings import binaries, shared

# GKE installs the Ray operator after the cluster resource is there: a program that does not wait
# for the CRDs must fail here as it would there.
ADD_ON_DELAY = 3.0
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
KEPT_NAMESPACES = frozenset({"default", "kube-system", "kube-public", "kube-node-lease"})


class ClusterKeeper:
    """Follows `cloud/cluster.json`, which the gcp plugin writes while a cluster exists."""

    def __init__(self, folder: Folder, client: Api, supervisor: Supervisor) -> None:
        self._marker = folder.cloud / "cluster.json"
        # While it exists the API server holds a cluster's objects: the stand-in cluster's deletion
        # waits for its end, since with the real one its API server is gone as well.
        self._filled = folder.cloud / "cluster-objects"
        self._folder = folder
        self._client = client
        self._supervisor = supervisor
        self._operator: Process | None = None

    def start(self, stop: threading.Event) -> None:
        """Follow the file; a cluster that an earlier sandbox had is brought back at once."""
        if self._wants_ray():
            self._install_ray()
        threading.Thread(target=self._follow, args=(stop,), daemon=True).start()

    def _read(self) -> dict[str, Any] | None:
        try:
            return json.loads(self._marker.read_text())
        except (OSError, ValueError):
            return None

    def _wants_ray(self) -> bool:
        return bool((self._read() or {}).get("ray"))

    def _follow(self, stop: threading.Event) -> None:
        while not stop.wait(0.3):
            try:
                if exists := self._marker.exists():
                    self._filled.touch()
                if self._operator is None and self._wants_ray():
                    if not stop.wait(ADD_ON_DELAY) and self._wants_ray():
                        self._install_ray()
                elif self._operator is not None and not self._wants_ray():
                    self._remove_ray()
                if self._filled.exists() and not exists:
                    self._empty(stop)
                    self._filled.unlink()
            except (OSError, ApiError, RuntimeError):
                if not stop.is_set():
                    traceback.print_exc()

    def _install_ray(self) -> None:
        """The CRDs, and the operator once they are served."""
        files = {file.stem.split("_", 1)[1]: file for file in shared("kuberay/crds").iterdir()}
        if not self._served(files):
            for kind, file in sorted(files.items()):  # ray.io_rayjobs.yaml
                self._install_crd(f"{kind}.ray.io", file)
        # An operator that starts earlier remembers for ever that there is no such kind.
        while not self._served(files):
            time.sleep(0.1)
        self._operator = self._supervisor.spawn(
            "kuberay-operator",
            [
                binaries() / "kuberay-operator",
                "--enable-leader-election=false",
                "--metrics-addr=127.0.0.1:28080",
                "--health-probe-bind-address=127.0.0.1:28081",
            ],
            environment={"KUBECONFIG": str(kubeconfig(self._folder.pki, "kuberay-operator"))},
            restart=True,
        )

    def _install_crd(self, name: str, file: Path) -> None:
        found = self._client.find(f"{CRDS}/{name}")
        if found is not None:
            conditions = cast("list[Json]", (found.get("status") or {}).get("conditions") or [])
            if any(c["type"] == "Established" and c["status"] == "True" for c in conditions):
                return
            # An API server that was killed between accepting the names and serving the kind
            # takes it up again only after five minutes.
            self._client.delete(f"{CRDS}/{name}")
            while self._client.find(f"{CRDS}/{name}") is not None:
                time.sleep(0.1)
        self._client.request("POST", CRDS, file.read_bytes(), "application/yaml")

    def _served(self, kinds: Iterable[str]) -> bool:
        found = self._client.find("/apis/ray.io/v1") or {}
        return {resource["name"] for resource in found.get("resources", [])}.issuperset(kinds)

    def _remove_ray(self) -> None:
        if self._operator is not None:
            self._operator.stop()
            self._operator = None

    def _empty(self, stop: threading.Event) -> None:
        """Delete what lived in the cluster, as the cluster's end does; returns when it is gone."""
        for kind in ("rayjobs", "rayservices", "rayclusters"):
            base = f"/apis/ray.io/v1/{kind}"
            for item in self._items(base):
                meta = item["metadata"]
                path = f"/apis/ray.io/v1/namespaces/{meta['namespace']}/{kind}/{meta['name']}"
                # The operator, which would honour its finalizers, is gone with the cluster.
                self._client.patch(path, {"metadata": {"finalizers": None}})
                self._client.delete(path)
        for item in self._items(CRDS):
            self._client.delete(f"{CRDS}/{item['metadata']['name']}")
        # The pods go first, with no grace, since their machines are gone: Kubernetes would wait for
        # half of a pod's grace period before it looks into the namespace again.
        for name in self._namespaces():
            jobs, pods = f"/apis/batch/v1/namespaces/{name}/jobs", f"/api/v1/namespaces/{name}/pods"
            self._client.delete(jobs, {"propagationPolicy": "Background"})
            while self._items(pods) and not stop.wait(0.2):
                self._client.delete(pods, {"gracePeriodSeconds": 0})
            self._client.delete(f"/api/v1/namespaces/{name}")
        while self._namespaces() and not stop.wait(0.2):
            pass

    def _namespaces(self) -> list[str]:
        names = [str(item["metadata"]["name"]) for item in self._items("/api/v1/namespaces")]
        return [name for name in names if name not in KEPT_NAMESPACES]

    def _items(self, path: str) -> list[dict[str, Any]]:
        found = self._client.find(path) or {}
        return cast("list[dict[str, Any]]", found.get("items") or [])
