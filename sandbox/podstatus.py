"""The status a kubelet would report for a pod, computed from its containers."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from typing import cast

from sandbox.api import Json
from sandbox.certificates import ADDRESS


def now() -> str:
    """The time as Kubernetes writes it, to the second."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def empty_state() -> Json:
    """The state of a container that waits for its turn."""
    return {"waiting": {"reason": "ContainerCreating"}}


@dataclass
class Condition:
    """What is known of one container of a pod."""

    spec: Json
    init: bool = False
    state: Json = field(default_factory=empty_state)
    last_state: Json = field(default_factory=dict[str, object])
    restarts: int = 0
    ready: bool = False
    started: bool = False
    done: bool = False  # ended and not to be started again
    number: int = -1  # of the instance started last; names its log file

    @property
    def running(self) -> bool:
        return "running" in self.state

    @property
    def code(self) -> int | None:
        """The exit code of an ended container."""
        return self.state["terminated"]["exitCode"] if "terminated" in self.state else None

    def ended(self, code: int, reason: str = "") -> None:
        """Record an exit."""
        since = (self.state.get("running") or {}).get("startedAt") or now()
        terminated = {
            "exitCode": code,
            "reason": reason or ("Completed" if code == 0 else "Error"),
            "startedAt": since,
            "finishedAt": now(),
        }
        self.state = {"terminated": terminated}
        self.ready = self.started = False

    def wait_for_restart(self, reason: str, message: str) -> None:
        """The container ended and will be started again."""
        if "terminated" in self.state:
            self.last_state = self.state
        self.state = {"waiting": {"reason": reason, "message": message}}

    def status(self, uid: str) -> Json:
        """The entry in containerStatuses."""
        entry: Json = {
            "name": self.spec["name"],
            "image": self.spec.get("image", ""),
            "imageID": self.spec.get("image", "") if self.number >= 0 else "",
            "ready": (self.done and self.code == 0) if self.init else self.ready,
            "started": self.started,
            "restartCount": self.restarts,
            "state": self.state,
            "lastState": self.last_state,
        }
        if self.number >= 0:
            entry["containerID"] = f"sandbox://{uid}/{self.spec['name']}/{self.number}"
        return entry


def phase(inits: list[Condition], mains: list[Condition]) -> str:
    """Pending until a main container was started; then Running until all have ended for good."""
    if any(init.done and init.code != 0 for init in inits):
        return "Failed"
    if mains and all(main.done for main in mains):
        return "Succeeded" if all(main.code == 0 for main in mains) else "Failed"
    return "Running" if any(main.number >= 0 for main in mains) else "Pending"


def status(
    pod: Json, address: str | None, inits: list[Condition], mains: list[Condition], began: str
) -> Json:
    """The whole status; conditions that others set (the scheduler) are kept."""
    uid: str = pod["metadata"]["uid"]
    reached = phase(inits, mains)
    over = reached in ("Succeeded", "Failed")
    initialized = all(init.done and init.code == 0 for init in inits)
    ready = not over and initialized and all(main.ready for main in mains)
    reason = "PodCompleted" if reached == "Succeeded" else "ContainersNotReady"
    wanted: dict[str, tuple[bool, str]] = {
        "PodReadyToStartContainers": (address is not None and not over, ""),
        "Initialized": (initialized, "" if initialized else "ContainersNotInitialized"),
        "ContainersReady": (ready, "" if ready else reason),
        "Ready": (ready, "" if ready else reason),
    }
    old = cast("list[Json]", (pod.get("status") or {}).get("conditions") or [])
    report: Json = {
        "phase": reached,
        "conditions": _conditions(old, wanted),
        "hostIP": ADDRESS,
        "hostIPs": [{"ip": ADDRESS}],
        "startTime": began,
        "containerStatuses": [main.status(uid) for main in mains],
        "qosClass": (pod.get("status") or {}).get("qosClass", "Burstable"),
    }
    if address is not None:
        report |= {"podIP": address, "podIPs": [{"ip": address}]}
    if inits:
        report["initContainerStatuses"] = [init.status(uid) for init in inits]
    return report


def _conditions(old: list[Json], wanted: dict[str, tuple[bool, str]]) -> list[Json]:
    before = {condition["type"]: condition for condition in old}
    result = [condition for kind, condition in before.items() if kind not in wanted]
    for kind, (true, reason) in wanted.items():
        value = "True" if true else "False"
        same = before.get(kind, {}).get("status") == value
        entry: Json = {
            "type": kind,
            "status": value,
            "lastProbeTime": None,
            "lastTransitionTime": before[kind]["lastTransitionTime"] if same else now(),
        }
        if reason:
            entry["reason"] = reason
        result.append(entry)
    return result


def readiness(status: Json) -> list[str]:
    """Of the pod as a whole and of its containers: True, False, or nothing where none is told."""
    conditions = cast("list[Json]", status.get("conditions") or [])
    return sorted(c["status"] for c in conditions if c["type"] in ("Ready", "ContainersReady"))


def without_times(report: Json) -> Json:
    """A status without the times that are made up when it is computed: for comparisons."""
    conditions = [{**c, "lastTransitionTime": None} for c in report["conditions"]]
    return {**report, "conditions": conditions}


def version(pod: Json) -> int:
    """Grows with each change of the object."""
    return int(pod["metadata"]["resourceVersion"])
