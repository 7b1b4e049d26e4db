"""Why a pod does not run, in words: no machine, quota, image, gated model, a crash.

Reads what scheduler, autoscaler, kubelet and trainer say, and answers with what to do about it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from training.common.config import EXIT_CODE
from workloads.client import Body, part, parts

RESERVATION = "cloud.google.com/reservation-name"
IMAGE = {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"}
# Reasons under which the autoscaler says that it tried and was refused.
SCALE_UP_FAILED = {"FailedScaleUp", "NotTriggerScaleUp"}
QUOTA = re.compile(r"quota", re.IGNORECASE)
STOCK_OUT = re.compile(r"out of resources|stockout|resource_pool_exhausted", re.IGNORECASE)


def waiting_for_machine(pod: Body, events: Iterable[Body], pods: Iterable[Body]) -> str | None:
    """Why the scheduler has no node for a pod, or None when it has one.

    Args:
        pod: the pod.
        events: the namespace's events.
        pods: the pods of all runs, one of which may hold what it waits for.
    """
    spec: Body = pod["spec"]
    if spec.get("nodeName"):
        return None
    condition = _condition(pod, "PodScheduled")
    if condition is None:
        return "waiting for the scheduler"
    wanted = _wanted(spec)
    if told := _scale_up(pod, events, wanted):
        return told
    # What follows tells of pods that could be evicted, of which there are none.
    message = str(condition.get("message", "")).split(" no new claims")[0].split(" preemption:")[0]
    reservation = part(spec, "nodeSelector").get(RESERVATION)
    if not reservation:
        return f"waiting for {wanted}. ({message})"
    told = f"no capacity in reservation {reservation} for {wanted}"
    if holders := _holders(reservation, pods):
        return f"{told}; of it {holders}. ({message})"
    return f"{told}: it is used up, or not for this zone or project. ({message})"


def _holders(reservation: str, pods: Iterable[Body]) -> str:
    """The runs that have machines of a reservation, with their number."""
    found = Counter(
        str(labels.get("gemma.run/name") or labels.get("gemma.run/cluster"))
        for pod in pods
        if part(pod, "spec", "nodeSelector").get(RESERVATION) == reservation
        and pod["spec"].get("nodeName")
        and part(pod, "status").get("phase") not in ("Succeeded", "Failed")
        for labels in [part(pod, "metadata", "labels")]
    )
    return ", ".join(
        f"{name} holds {count} machine{'s' * (count > 1)}" for name, count in sorted(found.items())
    )


def _wanted(spec: Body) -> str:
    selector = part(spec, "nodeSelector")
    requests = [part(container, "resources", "requests") for container in parts(spec, "containers")]
    gpus = sum(int(request.get("nvidia.com/gpu", 0)) for request in requests)
    name = selector.get("cloud.google.com/gke-accelerator")
    if not gpus or not name:
        return "a machine"
    kind = "Spot " if selector.get("cloud.google.com/gke-spot") else ""
    kind = "flex-start " if selector.get("cloud.google.com/gke-flex-start") else kind
    return f"a {kind}machine with {gpus} x {name}"


def _scale_up(pod: Body, events: Iterable[Body], wanted: str) -> str | None:
    """The autoscaler's last word on a pod."""
    told: str | None = None
    for event in events_of(pod, events):
        reason, message = str(event.get("reason")), str(event.get("message", ""))
        if reason == "TriggeredScaleUp":
            told = f"a new machine is on its way: {wanted}"
        elif reason in SCALE_UP_FAILED and QUOTA.search(message):
            told = (
                f"Google refuses {wanted}: the project's quota is used up. Ask for more under "
                f"IAM & Admin > Quotas. ({message})"
            )
        elif reason in SCALE_UP_FAILED and STOCK_OUT.search(message):
            told = f"Google has none free in these zones now: {wanted}. ({message})"
    return told


def not_starting(pod: Body, events: Iterable[Body]) -> str | None:
    """Why a pod that has a node does not start its containers, or None when it does."""
    for status in container_statuses(pod):
        waiting = part(status, "state", "waiting")
        reason, message = str(waiting.get("reason", "")), str(waiting.get("message", ""))
        if reason in IMAGE:
            return (
                f"cannot pull image {status.get('image')}: is it there, and may the nodes' "
                f"service account read the repository? ({message or reason})"
            )
        if reason in {"CreateContainerConfigError", "CreateContainerError"}:
            return f"a container cannot be made: {message}"
        if reason == "CrashLoopBackOff":
            return f"container {status['name']} keeps crashing ({message})"
    for event in reversed([*events_of(pod, events)]):
        if event.get("reason") in {"FailedMount", "FailedAttachVolume"}:
            return f"a volume cannot be mounted: {event.get('message')}"
    return None


def ended_badly(pod: Body) -> str | None:
    """Why a pod's containers ended other than with 0, or None."""
    disrupted = _condition(pod, "DisruptionTarget")
    if disrupted is not None and disrupted.get("status") == "True":
        return f"its machine was taken away ({disrupted.get('reason', 'disruption')})"
    if part(pod, "status").get("reason") == "Evicted":
        return f"it was evicted: {pod['status'].get('message', '')}"
    told = (_exit(status) for status in container_statuses(pod))
    return next((words for words in told if words), None)


def _exit(status: Body) -> str | None:
    name, over = status["name"], part(status, "state", "terminated")
    code = over.get("exitCode", 0)
    if over.get("reason") == "OOMKilled":
        return f"container {name} ran out of memory"
    if code == EXIT_CODE:
        told = "the trainer refused its configuration, or met what a retry cannot mend"
        return f"{told}: see the end of its log"
    if code == 143:
        return f"container {name} was asked to stop"
    return f"container {name} ended with exit code {code}" if code else None


# The first problem that training/common/config.py tells, and whatever follows it.
PROBLEM = re.compile(
    r"^(?P<count>\d+) problems? in the configuration\n\n(?P<key>\S+)\n"
    r" +given: +(?P<value>.*)\n +allowed: (?P<allowed>.*)(?:\n +fix: +(?P<fix>.*))?",
    re.MULTILINE,
)
OUT_OF_MEMORY = re.compile(r"CUDA out of memory|OutOfMemoryError")


def in_log(text: str) -> str | None:
    """What the end of a trainer's log says about a failure, when it is a known one."""
    if problem := PROBLEM.search(text):
        told = f"{problem['key']} is {problem['value']}, allowed: {problem['allowed']}"
        if problem["fix"]:
            told += f" (`{problem['fix']}`)"
        more = int(problem["count"]) - 1
        return told + (f", and {more} more: see the end of its log" if more else "")
    if OUT_OF_MEMORY.search(text):
        return "a GPU ran out of memory: lower per_device_train_batch_size or max_length"
    return None


def refused(owner: Body, events: Iterable[Body]) -> str | None:
    """Why the API server refuses the pods of an object (quota, Pod Security, Autopilot), or None.

    Such pods never exist; only an event of their owner tells of them.
    """
    last: Body | None = None
    for event in events_of(owner, events):
        reason = str(event.get("reason", ""))
        if reason in {"FailedCreate", "FailedToCreateHeadPod", "FailedToCreateWorkerPod"}:
            last = event
        elif reason.startswith(("SuccessfulCreate", "Created")):
            last = None
    return f"the cluster refuses its pods: {last.get('message')}" if last else None


def events_of(owner: Body, events: Iterable[Body]) -> Iterable[Body]:
    """The events of one object, oldest first."""
    uid = owner["metadata"].get("uid")
    return (event for event in events if part(event, "involvedObject").get("uid") == uid)


def container_statuses(pod: Body) -> list[Body]:
    """Statuses of all containers, init containers first."""
    return [
        *parts(pod, "status", "initContainerStatuses"),
        *parts(pod, "status", "containerStatuses"),
    ]


def _condition(pod: Body, kind: str) -> Body | None:
    conditions = parts(pod, "status", "conditions")
    return next((condition for condition in conditions if condition.get("type") == kind), None)
