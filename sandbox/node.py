"""The sandbox's node: does a kubelet's work for the pods that the scheduler binds to it."""

from __future__ import annotations

import contextlib
import os
import platform
import threading
import time
import traceback
from collections.abc import Callable

from sandbox import podstatus
from sandbox.api import Api, ApiError, Json
from sandbox.certificates import ADDRESS, API_PORT
from sandbox.containers import SITE
from sandbox.folder import Folder
from sandbox.logs import LOG_PORT
from sandbox.network import PodNetworks
from sandbox.pods import PodWorker

NAME = "sandbox"
LEASE_SECONDS = 40  # the controller manager calls a node dead after that long without a word
# Far more than this machine has: pods ask for what they need in the cloud, and there is no
# cgroup here that would hold them to it.
ALLOCATABLE: Json = {
    "cpu": "64",
    "memory": "256Gi",
    "ephemeral-storage": "2Ti",
    "pods": "110",
}


class Node:
    """One node object and a worker for each of its pods."""

    def __init__(
        self, folder: Folder, client: Api, cloud: dict[str, str], *, run_pods: bool
    ) -> None:
        self.folder = folder
        self.client = client
        self.networks = PodNetworks()
        self.allocatable = ALLOCATABLE
        self.pod_environment = {
            **cloud,
            "KUBERNETES_SERVICE_HOST": ADDRESS,
            "KUBERNETES_SERVICE_PORT": str(API_PORT),
            "KUBERNETES_SERVICE_PORT_HTTPS": str(API_PORT),  # what Ray's autoscaler asks
        }
        self._run_pods = run_pods
        self._workers: dict[str, PodWorker] = {}
        self._held: set[str] = set()
        self._stop = threading.Event()

    def start(self, stop: threading.Event) -> None:
        """Register, beat, and follow the pods."""
        self._stop = stop
        self._register()
        threading.Thread(target=self._beat, args=(stop,), daemon=True).start()
        threading.Thread(
            target=self.client.follow,
            args=("/api/v1/pods", stop, self._listed, self._changed),
            kwargs={"fieldSelector": f"spec.nodeName={NAME}"},
            daemon=True,
        ).start()

    # For the workers

    def finish_environment(self, values: dict[str, str]) -> dict[str, str]:
        """Add what the sandbox needs in every container without overruling the manifest."""
        path = [SITE, *filter(None, [values.get("PYTHONPATH")])]
        # Ray asks for a token by default; KubeRay's authOptions would set one up.
        return {"RAY_AUTH_MODE": "disabled", **values, "PYTHONPATH": os.pathsep.join(path)}

    def report(self, pod: Json, status: Json) -> Json | None:
        """Write a pod's status; None when the pod is gone."""
        meta = pod["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/status"
        body: Json = {"metadata": {"uid": meta["uid"]}, "status": status}
        return self._insist(lambda: self.client.patch(path, body))

    def _insist(self, ask: Callable[[], Json | None]) -> Json | None:
        """The API server's answer, however long it is away; None when the pod is gone."""
        while not self._stop.is_set():
            try:
                return ask()
            except ApiError as error:
                if error.status in (404, 409, 422):
                    return None
                traceback.print_exc()
            except OSError:
                pass  # the API server is on its way down, or comes back
            self._stop.wait(0.5)
        return None

    def delete(self, pod: Json) -> None:
        """The last step of a deletion: nothing of the pod runs any more."""
        meta = pod["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        body: Json = {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}}
        self._insist(lambda: self.client.delete(path, body))

    def record(self, pod: Json, kind: str, reason: str, message: str) -> None:
        """An event of type `kind` (Normal, Warning), for `kubectl describe`."""
        meta = pod["metadata"]
        event: Json = {
            "metadata": {"generateName": f"{meta['name']}.", "namespace": meta["namespace"]},
            "involvedObject": {
                "apiVersion": "v1", "kind": "Pod", "name": meta["name"],
                "namespace": meta["namespace"], "uid": meta["uid"],
            },
            "type": kind,
            "reason": reason,
            "message": message,
            "source": {"component": "kubelet", "host": NAME},
            "firstTimestamp": podstatus.now(),
            "lastTimestamp": podstatus.now(),
            "count": 1,
        }  # fmt: skip
        with contextlib.suppress(ApiError, OSError):  # its namespace may be going
            self.client.create(f"/api/v1/namespaces/{meta['namespace']}/events", event)

    def worker(self, namespace: str, name: str) -> PodWorker | None:
        """The worker of a pod, for the log server."""
        for worker in reversed(list(self._workers.values())):
            if (worker.namespace, worker.pod_name) == (namespace, name):
                return worker
        return None

    # Pods

    def _listed(self, pods: list[Json]) -> None:
        present = {pod["metadata"]["uid"] for pod in pods}
        for uid in set(self._workers) - present:
            self._forget(uid)
        for pod in pods:
            self._changed("MODIFIED", pod)

    def _changed(self, event: str, pod: Json) -> None:
        uid: str = pod["metadata"]["uid"]
        if event == "DELETED":
            self._forget(uid)
        elif not self._run_pods:
            self._hold(pod)
        elif uid not in self._workers:
            worker = self._workers[uid] = PodWorker(self, pod)
            worker.update(pod)
            worker.start()
        elif not self._workers[uid].update(pod) and "deletionTimestamp" in pod["metadata"]:
            self.delete(pod)

    def _forget(self, uid: str) -> None:
        worker = self._workers.pop(uid, None)
        if worker is not None and worker.alive:
            worker.removed()

    def _hold(self, pod: Json) -> None:
        """Without processes: the pod is Running and Ready until it is deleted."""
        uid: str = pod["metadata"]["uid"]
        if "deletionTimestamp" in pod["metadata"]:
            self.delete(pod)
            return
        if uid in self._held:
            return
        self._held.add(uid)
        running: Json = {"running": {"startedAt": podstatus.now()}}
        over: Json = {"terminated": {"exitCode": 0, "reason": "Completed"}}
        inits = [
            podstatus.Condition(spec, init=True, state=over, done=True, number=0)
            for spec in pod["spec"].get("initContainers") or []
        ]
        mains = [
            podstatus.Condition(spec, state=running, ready=True, started=True, number=0)
            for spec in pod["spec"]["containers"]
        ]
        address = self.networks.reserve()
        self.report(pod, podstatus.status(pod, address, inits, mains, podstatus.now()))

    # The node object

    def _register(self) -> None:
        labels = {
            "kubernetes.io/hostname": NAME,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64" if platform.machine() == "x86_64" else "arm64",
        }
        node: Json = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": NAME, "labels": labels},
        }
        try:
            self.client.create("/api/v1/nodes", node)
        except ApiError as error:
            if error.status != 409:
                raise
        self._renew()
        self._report_ready()
        # The API server taints a new node until the controller manager has seen it ready.
        self.client.patch(f"/api/v1/nodes/{NAME}", {"spec": {"taints": None}})

    def _report_ready(self) -> None:
        pressures = ("MemoryPressure", "DiskPressure", "PIDPressure")
        conditions: list[Json] = [_condition(kind, "False") for kind in pressures]
        status: Json = {
            "addresses": [
                {"type": "InternalIP", "address": ADDRESS},
                {"type": "Hostname", "address": NAME},
            ],
            "capacity": ALLOCATABLE,
            "allocatable": ALLOCATABLE,
            "conditions": [*conditions, _condition("Ready", "True")],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": LOG_PORT}},
        }
        self.client.patch(f"/api/v1/nodes/{NAME}/status", {"status": status})

    def _beat(self, stop: threading.Event) -> None:
        while not stop.wait(LEASE_SECONDS / 4):
            try:
                self._renew()
                # A machine that slept, or had no time for us, was called dead meanwhile.
                node = self.client.get(f"/api/v1/nodes/{NAME}")
                conditions: list[Json] = node["status"].get("conditions") or []
                if not any(c["type"] == "Ready" and c["status"] == "True" for c in conditions):
                    self._report_ready()
            except (ApiError, OSError):
                traceback.print_exc()

    def _renew(self) -> None:
        base = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        lease: Json = {
            "metadata": {"name": NAME},
            "spec": {
                "holderIdentity": NAME,
                "leaseDurationSeconds": LEASE_SECONDS,
                "renewTime": podstatus.now().replace("Z", ".000000Z"),
            },
        }
        for attempt in range(100):
            try:
                self.client.patch(f"{base}/{NAME}", lease)
                return
            except ApiError as error:
                if error.status != 404:
                    raise
            try:
                self.client.create(base, lease)
                return
            except ApiError as error:  # a new API server makes the namespace after it is ready
                if error.status != 404 or attempt == 99:
                    raise
            time.sleep(0.1)


def _condition(kind: str, value: str) -> Json:
    return {
        "type": kind,
        "status": value,
        "reason": "Sandbox",
        "message": "",
        "lastHeartbeatTime": podstatus.now(),
        "lastTransitionTime": podstatus.now(),
    }
