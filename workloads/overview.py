"""How each run is doing, from a snapshot of the cluster: phase, machines, reason, progress."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

import yaml

from workloads import reasons
from workloads.client import Body, Snapshot, part, parts

Tail = Callable[[str, str], str]

QUEUED, WAITING, STARTING, RUNNING = "Queued", "Waiting", "Starting", "Running"
ENDING = "Ending"
SUCCEEDED, FAILED = "Succeeded", "Failed"
ENDED = (SUCCEEDED, FAILED)
RANK = "batch.kubernetes.io/job-completion-index"
# training/common/metrics.py writes it: step 12/180  loss 1.234  lr 2.0e-04  1234 tok/s  eta 3m10s
PROGRESS = re.compile(r"step \d+/\d+ .*?(?=\s*$)", re.MULTILINE)


@dataclass(frozen=True)
class RunStatus:
    """One run as people see it.

    Attributes:
        name: of the run.
        id: of the run.
        kind: RayJob or Job.
        object: name of that object.
        phase: Queued, Waiting (for machines), Starting, Running, Ending, Succeeded or Failed.
        since: when it was submitted.
        machines: the node of each pod with work that has one, and how many such pods there are.
        why: what it waits for or why it failed; empty when there is nothing to say.
        progress: the trainer's last line of progress.
        gives_up: when its deadline is, counted from its last start, or None.
        folder: where its results are, gs://BUCKET/FOLDER; empty where its ConfigMap is gone.
    """

    name: str
    id: str
    kind: str
    object: str
    phase: str
    since: datetime | None
    machines: tuple[tuple[str, ...], int]
    why: str = ""
    progress: str = ""
    gives_up: datetime | None = None
    folder: str = ""

    @property
    def ended(self) -> bool:
        """Whether it succeeded or failed."""
        return self.phase in ENDED


def overview(snapshot: Snapshot, tail: Tail = lambda pod, container: "") -> list[RunStatus]:
    """The status of every run, oldest first.

    Args:
        snapshot: what the cluster holds.
        tail: the last lines of a container's log, by pod and container.
    """
    jobs = sorted(snapshot.jobs, key=lambda job: str(job["metadata"].get("creationTimestamp", "")))
    return [_status(job, snapshot, tail) for job in jobs]


def pods_of(job: Body, snapshot: Snapshot) -> list[Body]:
    """The pods of a run, oldest first; of a RayCluster that it shares all, which name no run."""
    wanted = {("gemma.run/id", job["metadata"]["labels"].get("gemma.run/id"))}
    wanted |= part(job, "spec", "clusterSelector").items()
    found = [p for p in snapshot.pods if wanted & part(p, "metadata", "labels").items()]
    return sorted(found, key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")))


def log_source(pods: Iterable[Body]) -> tuple[str, str] | None:
    """Pod and container whose log is the run's: the submitter's, or that of the Job's rank 0."""
    for pod in reversed(list(pods)):
        names = [str(container["name"]) for container in parts(pod, "spec", "containers")]
        rank = part(pod, "metadata", "annotations").get(RANK)
        started = any(
            part(status, "state").keys() & {"running", "terminated"}
            for status in parts(pod, "status", "containerStatuses")
        )
        for name in ("ray-job-submitter", "trainer"):
            if name in names and started and rank in (None, "0"):
                return str(pod["metadata"]["name"]), name
    return None


def _status(job: Body, snapshot: Snapshot, tail: Tail) -> RunStatus:
    meta: Body = job["metadata"]
    pods = pods_of(job, snapshot)
    phase, why = _ray_phase(job) if job["kind"] == "RayJob" else _job_phase(job)
    if phase == RUNNING:
        phase, why = _pods_phase(job, pods, snapshot, why)
    source = log_source(pods)
    text = tail(*source) if source else ""
    if phase == FAILED:
        told = reasons.in_log(text) or _last(map(reasons.ended_badly, pods))
        why = "; ".join(filter(None, (told, why)))
    lines = PROGRESS.findall(text)
    workers = [pod for pod in pods if _works(pod)]
    nodes = sorted(str(p["spec"]["nodeName"]) for p in workers if _alive(p) and _placed(p))
    return RunStatus(
        name=str(meta["labels"].get("gemma.run/name", meta["name"])),
        id=str(meta["labels"].get("gemma.run/id", "")),
        kind=str(job["kind"]),
        object=str(meta["name"]),
        phase=phase,
        since=_time(meta.get("creationTimestamp")),
        machines=(tuple(nodes), sum(map(_alive, workers))),
        why=why,
        progress=lines[-1] if lines else "",
        gives_up=_deadline(job),
        folder=_folder(job, snapshot),
    )


def _folder(job: Body, snapshot: Snapshot) -> str:
    """The folder that the run's own configuration names."""
    for config in snapshot.configs:
        if config["metadata"]["name"] == job["metadata"]["name"]:
            loaded: Body = yaml.safe_load(part(config, "data").get("run.yaml") or "") or {}
            return str(part(loaded, "run").get("output_dir", ""))
    return ""


def _deadline(job: Body) -> datetime | None:
    # Both kinds count from here: a RayJob anew when it is retried, a Job when a queue admits it.
    start = _time(part(job, "status").get("startTime") or job["metadata"].get("creationTimestamp"))
    seconds = job["spec"].get("activeDeadlineSeconds")
    return start + timedelta(seconds=seconds) if start and seconds else None


def _job_phase(job: Body) -> tuple[str, str]:
    for condition in parts(job, "status", "conditions"):
        if condition.get("status") == "True" and condition["type"] in ("Complete", "Failed"):
            if condition["type"] == "Complete":
                return SUCCEEDED, ""
            return FAILED, _words(condition.get("reason"), condition.get("message"))
    if job["spec"].get("suspend"):
        return QUEUED, _queue(job)
    return RUNNING, ""


def _ray_phase(job: Body) -> tuple[str, str]:
    status = part(job, "status")
    deployment = status.get("jobDeploymentStatus") or "Initializing"
    why = _words(status.get("reason"), status.get("message"))
    if deployment == "Complete":
        if status.get("jobStatus") == "STOPPED":
            # KubeRay's own words, "intentionally stopped", would blame a person.
            why = "not tried again, since it would end the same way: see the end of its log"
        return (SUCCEEDED, "") if status.get("jobStatus") == "SUCCEEDED" else (FAILED, why)
    if deployment in ("Failed", "ValidationFailed"):
        return FAILED, why
    if job["spec"].get("suspend"):
        return QUEUED, _queue(job)
    if deployment == "Retrying":
        return STARTING, f"trying again after: {why}"
    return RUNNING, ""


def _pods_phase(job: Body, pods: list[Body], snapshot: Snapshot, why: str) -> tuple[str, str]:
    """Phase and reason of a run that is neither over nor queued, from its pods."""
    alive = [pod for pod in pods if _alive(pod)]
    for pod in alive:
        if told := reasons.waiting_for_machine(pod, snapshot.events, snapshot.pods):
            return WAITING, told
    for pod in alive:
        if told := reasons.not_starting(pod, snapshot.events):
            return STARTING, told
    working = [pod for pod in alive if _works(pod)]
    if not working:
        return _without_pods(job, pods, snapshot)
    if any(part(pod, "status").get("phase") != "Running" for pod in working):
        return STARTING, "containers are being started (image, volumes)"
    if job["kind"] == "RayJob" and log_source(pods) is None:
        return STARTING, "the Ray cluster is forming"
    return RUNNING, why


def _without_pods(job: Body, pods: list[Body], snapshot: Snapshot) -> tuple[str, str]:
    """Phase and reason of a run whose pods with work are all gone, or not there yet."""
    if any(_works(pod) and part(pod, "status").get("phase") == "Succeeded" for pod in pods):
        return ENDING, ""
    owners = [job, *({"metadata": {"uid": uid}} for uid in _owners(pods))]
    told = _last(reasons.refused(owner, snapshot.events) for owner in owners)
    crashed = _last(map(reasons.ended_badly, pods))
    again = f"starting again: {crashed}" if crashed else "its pods are being made"
    return STARTING, told or again


def _owners(pods: Iterable[Body]) -> set[str]:
    return {
        str(owner["uid"]) for pod in pods for owner in parts(pod, "metadata", "ownerReferences")
    }


def _queue(job: Body) -> str:
    queue = job["metadata"]["labels"].get("kueue.x-k8s.io/queue-name")
    return f"waiting for its turn in Kueue's queue {queue}" if queue else "suspended"


def _works(pod: Body) -> bool:
    """Whether a pod trains, unlike Ray's head and the submitter."""
    names = {container["name"] for container in parts(pod, "spec", "containers")}
    return bool(names & {"ray-worker", "trainer"})


def _alive(pod: Body) -> bool:
    ended = part(pod, "status").get("phase") in ("Succeeded", "Failed")
    return not ended and not pod["metadata"].get("deletionTimestamp")


def _placed(pod: Body) -> bool:
    return bool(pod["spec"].get("nodeName"))


def _words(reason: object, message: object) -> str:
    return ": ".join(str(part) for part in (reason, message) if part)


def _last(told: Iterable[str | None]) -> str | None:
    found = [words for words in told if words]
    return found[-1] if found else None


def _time(text: object) -> datetime | None:
    return datetime.fromisoformat(str(text).replace("Z", "+00:00")) if text else None
