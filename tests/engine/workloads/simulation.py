"""A cluster whose machines are simulated: real API server, scheduler, controllers and operator.

kwok keeps nodes shaped like Google's alive and their pods Running; a pod ends when it gets the
annotation `gemma.test/exit-code`. Pods without a GPU are held by the sandbox's own node.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from infra.schema import Settings
from sandbox import Sandbox
from workloads import job, plan, raycluster, rayjob
from workloads.pods import PodArgs
from workloads.run import Run

Found = TypeVar("Found")
NAMESPACE = "gemma"
STAGES = Path(__file__).parent / "stages.yaml"
ARGS = PodArgs("us-docker.pkg.dev/p/gemma/trainer@sha256:" + "0" * 64)
# machine type: vCPUs, memory in GB, local SSD in GiB (Compute Engine, GPU machine types)
MACHINES = {"a4-highgpu-8g": (224, 3968, 12000), "a3-highgpu-8g": (208, 1872, 6000)}
GPUS = 8


def runs_of(runs: Mapping[str, Any], **keys: Any) -> list[Run]:
    """The runs of a stack; B200s on reservation r1 unless `keys` say otherwise."""
    stack = {"project": "my-project", "region": "us-central1", "stack": "dev"}
    stack |= {"accelerator": "nvidia-b200", "reservation": "r1", **keys}
    settings = Settings.model_validate({**stack, "runs": dict(runs)}, by_name=True)
    return plan(settings, "image-key")


def manifests(run: Run) -> list[dict[str, Any]]:
    """Every object of a run, as the program declares it."""
    text = run.config(f"gs://bucket/{run.path}", str(ARGS.image))
    launcher = run.launcher_config()
    config: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": run.object_name, "namespace": NAMESPACE, "labels": run.labels},
        "data": {"run.yaml": text, **({"accelerate.yaml": launcher} if launcher else {})},
    }
    if run.kind == "Job":
        bodies = [job.service(run, NAMESPACE), job.manifest(run, ARGS, NAMESPACE)]
        return [config, *(body for body in bodies if body)]
    found = [rayjob.manifest(run, ARGS, NAMESPACE, text, "image-key")]
    if run.cluster:
        found.insert(0, raycluster.shared_cluster(run, ARGS, NAMESPACE, "image-key"))
    return [config, *found]


def wait_until(what: str, check: Callable[[], Found], seconds: float = 120) -> Found:
    """The first true answer of `check`; fails, naming `what`, when there is none."""
    deadline = time.monotonic() + seconds
    while not (answer := check()):
        assert time.monotonic() < deadline, f"waited {seconds} s for: {what}"
        time.sleep(0.2)
    return answer


class Simulation:
    """One running simulation; a context manager."""

    run_pods = False

    def __init__(self, folder: Path) -> None:
        self.sandbox = Sandbox(folder, run_pods=self.run_pods)
        self._kwok: subprocess.Popen[str] | None = None

    def __enter__(self) -> Simulation:
        self.sandbox.start()
        try:
            self._prepare()
        except BaseException:
            self.sandbox.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._kwok is not None:
            self._kwok.kill()
            self._kwok.wait()
        self.sandbox.stop()

    def _prepare(self) -> None:
        marker = self.sandbox.folder.cloud / "cluster.json"
        marker.write_text(json.dumps({"name": "simulated", "ray": True}))
        log = (self.sandbox.folder.logs / "kwok.log").open("w")
        command = ["kwok", f"--kubeconfig={self.sandbox.environment()['KUBECONFIG']}"]
        command += ["--manage-all-nodes=false", f"--config={STAGES}"]
        command += ["--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake"]
        self._kwok = self.sandbox.popen(command, stdout=log, stderr=log)
        level = {"pod-security.kubernetes.io/enforce": "restricted"}
        self.apply(
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": NAMESPACE, "labels": level},
            }
        )
        account: dict[str, Any] = {"apiVersion": "v1", "kind": "ServiceAccount"}
        self.apply({**account, "metadata": {"name": "trainer", "namespace": NAMESPACE}})
        serves = ["kubectl", "get", "rayjobs,rayclusters", "-n", NAMESPACE]
        wait_until("KubeRay's CRDs", lambda: self.sandbox.run(serves, check=False).returncode == 0)

    def kubectl(self, *arguments: str, text: str | None = None) -> str:
        """kubectl's output; raises with its errors."""
        return self.sandbox.kubectl(*arguments, input=text)

    def apply(self, *bodies: dict[str, Any], dry_run: bool = False) -> None:
        """Server-side apply; the API server's refusals and Pod Security's warnings are errors."""
        options = ["--server-side", "--validate=strict", *(["--dry-run=server"] if dry_run else [])]
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(bodies)})
        done = self.sandbox.run(["kubectl", "apply", *options, "-f", "-"], input=text)
        assert "Warning" not in done.stderr, done.stderr

    def add_nodes(
        self,
        count: int,
        *,
        machine: str = "a4-highgpu-8g",
        accelerator: str = "nvidia-b200",
        prefix: str = "reserved",
        labels: Mapping[str, str] | None = None,
    ) -> list[str]:
        """Nodes with the labels, taint and allocatable resources that GKE gives such machines."""
        names = [f"{prefix}-{number}" for number in range(count)]
        self.apply(*(node(name, machine, accelerator, labels or {}) for name in names))
        self.kubectl(
            "wait", "--for=condition=Ready", *(f"node/{n}" for n in names), "--timeout=180s"
        )
        return names

    def take_away(self, name: str) -> None:
        """A Spot machine is preempted: its pods are disrupted, then the node is gone."""
        self.kubectl("cordon", name)
        for pod in self.pods():
            if pod["spec"].get("nodeName") == name:
                self.patch_status(pod, _disrupted(pod))
                self._delete_pod(pod)
        self.kubectl("delete", "node", name, "--wait=false")

    def _delete_pod(self, pod: dict[str, Any]) -> None:
        name = pod["metadata"]["name"]
        options = ["--ignore-not-found", "--wait=false"]  # the operator may have been quicker
        self.kubectl("delete", "pod", name, "-n", NAMESPACE, *options)

    def patch_status(self, pod: dict[str, Any], status: dict[str, Any]) -> None:
        """Write part of a pod's status, as its kubelet would."""
        body = json.dumps({"status": status})
        name = pod["metadata"]["name"]
        self.kubectl(
            "patch",
            "pod",
            name,
            "-n",
            NAMESPACE,
            "--subresource=status",
            "--type=merge",
            f"-p={body}",
        )

    def finish(self, pod: dict[str, Any], code: int = 0) -> None:
        """The pod's containers exit with `code`."""
        name = pod["metadata"]["name"]
        self.kubectl("annotate", "pod", name, "-n", NAMESPACE, f"gemma.test/exit-code={code}")

    def pods(self, **labels: str) -> list[dict[str, Any]]:
        """The namespace's pods that have these labels."""
        found = self.sandbox.objects("pods", "-n", NAMESPACE)
        return [p for p in found if labels.items() <= p["metadata"].get("labels", {}).items()]

    def gpu_pods(self) -> list[dict[str, Any]]:
        """Pods that hold GPUs: bound to a node and not at their end."""
        return [
            pod
            for pod in self.pods()
            if gpus(pod) and pod["spec"].get("nodeName")
            and pod["status"].get("phase") not in ("Succeeded", "Failed")
        ]  # fmt: skip

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """One object of the namespace."""
        return json.loads(self.kubectl("get", kind, name, "-n", NAMESPACE, "-o", "json"))

    def status(self) -> str:
        """What `make status` shows."""
        return self.sandbox.run(["python", "-m", "workloads.status"]).stdout

    def clear(self) -> None:
        """Remove all runs and all simulated nodes."""
        for body in self.sandbox.objects("rayjobs", "-n", NAMESPACE):
            # The operator would first ask Ray to stop the job, and wait for an answer.
            freed = ["--type=merge", '-p={"metadata": {"finalizers": null}}']
            self.kubectl("patch", "rayjob", body["metadata"]["name"], "-n", NAMESPACE, *freed)
        self.kubectl("delete", "rayjob,raycluster,job,service", "--all", "-n", NAMESPACE)
        self.kubectl("delete", "pod", "--all", "--force", "--grace-period=0", "-n", NAMESPACE)
        self.kubectl("delete", "node", "-l", "gemma.test/simulated=true")


def gpus(pod: dict[str, Any]) -> int:
    """GPUs that a pod's containers ask for."""
    requests = [c.get("resources", {}).get("requests", {}) for c in pod["spec"]["containers"]]
    return sum(int(request.get("nvidia.com/gpu", 0)) for request in requests)


def node(name: str, machine: str, accelerator: str, labels: Mapping[str, str]) -> dict[str, Any]:
    """A node object as GKE would make it, for kwok to keep alive."""
    cpus, memory, disk = MACHINES[machine]
    reserved = 1 + 0.8 + 0.8 + 6.72 + 0.02 * (memory - 128) + 0.1  # GKE's formula, GiB
    resources = {
        "cpu": f"{round(1000 * (cpus - 0.08 - 0.0025 * (cpus - 4)))}m",
        "memory": f"{int(memory - reserved)}Gi",
        "ephemeral-storage": f"{int(disk * 0.9)}Gi",
        "nvidia.com/gpu": str(GPUS),
        "pods": "32",
    }
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": machine,
        "cloud.google.com/gke-accelerator": accelerator,
        "cloud.google.com/gke-accelerator-count": str(GPUS),
        "cloud.google.com/gke-gpu-driver-version": "default",
        "gemma.test/simulated": "true",
        **labels,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "spec": {"taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]},
        "status": {"allocatable": resources, "capacity": resources},
    }


def _disrupted(pod: dict[str, Any]) -> dict[str, Any]:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
    return {"phase": "Failed", "conditions": [*pod["status"].get("conditions", []), condition]}
