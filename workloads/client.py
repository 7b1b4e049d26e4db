"""The cluster, for the commands that people run: what exists now, as plain objects."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import yaml
from urllib3.exceptions import HTTPError

NAMESPACE = "gemma"
LABEL = "app.kubernetes.io/part-of=gemma"

Body = dict[str, Any]


def part(body: Body, *path: str) -> Body:
    """The object at `path` inside `body`; empty where anything on the way is missing."""
    for key in path:
        body = cast("Body", body.get(key) or {})
    return body


def parts(body: Body, *path: str) -> list[Body]:
    """The list of objects at `path` inside `body`; empty where anything is missing."""
    *ahead, last = path
    return cast("list[Body]", part(body, *ahead).get(last) or [])


class UnreachableError(RuntimeError):
    """The cluster cannot be asked; the message says what to do."""


@dataclass(frozen=True)
class Snapshot:
    """What the namespace holds at one moment, each as the API server's JSON.

    Attributes:
        jobs: the runs' Jobs and RayJobs (not the Jobs that KubeRay makes to submit).
        pods: pods of runs.
        events: events of the namespace, oldest first.
        configs: the runs' ConfigMaps, each named as its job.
    """

    jobs: list[Body] = field(default_factory=list[Body])
    pods: list[Body] = field(default_factory=list[Body])
    events: list[Body] = field(default_factory=list[Body])
    configs: list[Body] = field(default_factory=list[Body])


STAMP = re.compile(r"(\d{4}-\d\d-\d\dT[\d:.]+Z) ")


@dataclass
class Position:
    """How far a log has been read: lines, and the time of the last (empty where logs have none)."""

    lines: int = 0
    time: str = ""


class Cluster:
    """Reads of one namespace through the official client."""

    def __init__(self, namespace: str = NAMESPACE, stack: str | None = None) -> None:
        """Connect with the kubeconfig of `stack`; without one KUBECONFIG's or the selected stack's.

        Raises:
            UnreachableError: there is none.
        """
        # It takes a second to import, and ships no types.
        client: Any = importlib.import_module("kubernetes.client")
        config: Any = importlib.import_module("kubernetes.config")
        self.namespace = namespace
        if os.environ.get("KUBECONFIG") and stack is None:
            config.load_kube_config()
        else:
            config.load_kube_config_from_dict(_stack_kubeconfig(stack))
        self._core = client.CoreV1Api()
        self._batch = client.BatchV1Api()
        self._custom = client.CustomObjectsApi()
        self._plain = client.ApiClient().sanitize_for_serialization
        self._refusal = client.ApiException

    def snapshot(self) -> Snapshot:
        """Everything that tells how the runs are doing.

        Raises:
            UnreachableError: the API server does not answer, or refuses.
        """
        try:
            events = self._list(self._core.list_namespaced_event)
            jobs = self._list(self._batch.list_namespaced_job, label_selector=LABEL)
            return Snapshot(
                # Items of a list do not say what they are.
                jobs=[*self._ray_jobs(), *({**job, "kind": "Job"} for job in jobs)],
                pods=self._list(self._core.list_namespaced_pod, label_selector=LABEL),
                events=sorted(events, key=_time),
                configs=self._list(self._core.list_namespaced_config_map, label_selector=LABEL),
            )
        except HTTPError as error:
            raise UnreachableError(f"The cluster does not answer: {error}") from error
        except self._refusal as error:
            raise UnreachableError(f"The cluster refuses: {error.status} {error.reason}") from error

    def _list(self, call: Any, **options: str) -> list[Body]:
        answer = self._plain(call(self.namespace, **options))
        return cast("list[Body]", answer["items"])

    def _ray_jobs(self) -> list[Body]:
        try:
            answer = self._custom.list_namespaced_custom_object(
                "ray.io", "v1", self.namespace, "rayjobs", label_selector=LABEL
            )
        except self._refusal as error:
            if error.status == 404:  # no Ray operator on this cluster
                return []
            raise
        return cast("list[Body]", answer["items"])

    def tail(self, pod: str, container: str, lines: int = 60) -> str:
        """The last lines of a container's log; empty when it has none."""
        try:
            return str(
                self._core.read_namespaced_pod_log(
                    pod, self.namespace, container=container, tail_lines=lines
                )
            )
        except (self._refusal, HTTPError):
            return ""

    def follow(self, pod: str, container: str, seen: Position) -> Iterator[str]:
        """The lines of a container's log as they are written, from `seen` on, which moves along.

        The stream ends when the container does, and early when the API server does: then ask
        again with the same position.
        """
        options: dict[str, Any] = {"follow": True, "timestamps": True, "_preload_content": False}
        try:
            stream = self._core.read_namespaced_pod_log(
                pod, self.namespace, container=container, **options
            )
            already, rest = seen.lines, ""
            for chunk in stream.stream(decode_content=True):
                *lines, rest = (rest + chunk.decode(errors="replace")).split("\n")
                for line in lines:
                    match = STAMP.match(line)
                    stamp = match[1] if match else ""
                    already -= 1
                    if (stamp and stamp <= seen.time) or (not stamp and already >= 0):
                        continue
                    seen.lines, seen.time = seen.lines + 1, stamp or seen.time
                    yield line[match.end() :] if match else line
        except (self._refusal, HTTPError):
            return


def _time(event: Body) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")


def _stack_kubeconfig(stack: str | None) -> Body:
    command = ["pulumi", "stack", "output", "--show-secrets", "kubeconfig"]
    if stack is not None:
        command += ["--stack", stack]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise UnreachableError("Set KUBECONFIG, or put pulumi on PATH.") from error
    if done.returncode != 0:
        named = f"stack {stack}" if stack else "the selected stack"
        raise UnreachableError(
            f"No cluster: {named} has none, or pulumi cannot read it (its words below).\n"
            "  the demo's runs:    make status STACK=sandbox\n"
            "  another stack's:    make status STACK=NAME, after `pulumi login` and `make up`\n"
            "  without a stack:    KUBECONFIG=FILE .venv/bin/python -m workloads.status\n"
            f"{done.stderr.strip()}"
        )
    return cast("Body", yaml.safe_load(done.stdout))
