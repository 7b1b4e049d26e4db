"""The life of one pod, as a kubelet leads it: a thread that turns its spec into containers."""

from __future__ import annotations

import queue
import signal
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from sandbox import podstatus
from sandbox.api import ApiError, Json
from sandbox.images import ImageError
from sandbox.podspace import PodSpace, Running
from sandbox.podstatus import Condition
from sandbox.variables import ConfigurationError
from sandbox.volumes import VolumeError

if TYPE_CHECKING:
    from sandbox.node import Node

FIRST_BACKOFF, LONGEST_BACKOFF = 10.0, 300.0  # seconds, the kubelet's; the first restart is free
RETRY = 1.0  # seconds between tries to make what a container needs


class PodWorker:
    """Owns one pod from its binding to its end; everything it hears of comes by its queue."""

    def __init__(self, node: Node, pod: Json) -> None:
        self.pod = pod
        self.uid: str = pod["metadata"]["uid"]
        self.namespace: str = pod["metadata"]["namespace"]
        self.pod_name: str = pod["metadata"]["name"]
        self.spec: Json = pod["spec"]
        self._node = node
        self._policy: str = self.spec.get("restartPolicy", "Always")
        self._events: queue.Queue[tuple[Any, ...]] = queue.Queue()
        self._inits = [Condition(c, init=True) for c in self.spec.get("initContainers") or []]
        self._mains = [Condition(c) for c in self.spec["containers"]]
        self._running: dict[str, Running] = {}
        self._start_at: dict[str, float] = {}
        self._backoff: dict[str, float] = {}
        self._space = PodSpace(node, pod)
        self._began: str = (pod.get("status") or {}).get("startTime") or podstatus.now()
        self._published: Json = {}
        self._ending = ""  # why the containers are being stopped
        self._kill_at = float("inf")
        self._deadline = float("inf")
        if self.spec.get("activeDeadlineSeconds"):
            self._deadline = time.monotonic() + float(self.spec["activeDeadlineSeconds"])
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._gate = threading.Lock()
        self._closed = False

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the worker still looks after its pod."""
        return self._thread.is_alive()

    def update(self, pod: Json) -> bool:
        """The API server's object changed; False once nobody looks after the pod any more."""
        with self._gate:
            if not self._closed:
                self._events.put(("changed", pod))
            return not self._closed

    def removed(self) -> None:
        """The object is gone: stop at once."""
        self._events.put(("removed",))

    def log_file(self, container: str, previous: bool) -> Path | None:
        """The log of the container's current or previous instance."""
        for known in (*self._inits, *self._mains):
            if known.spec["name"] == container:
                number = known.number - (1 if previous else 0)
                return self._space.log(container, number) if number >= 0 else None
        return None

    def is_running(self, container: str) -> bool:
        return container in self._running

    def _run(self) -> None:
        try:
            self._resume()
            while not self._over():
                self._advance()
                self._publish()
                if self._over():
                    break
                self._handle(self._next_event())
            self._publish()
        except Exception:
            traceback.print_exc()
        finally:
            self._space.close()
        with self._gate:  # whatever came meanwhile, a deletion above all, is not lost
            self._closed = True
            while not self._events.empty():
                self._handle(self._events.get())
        if self._deletion():
            self._node.delete(self.pod)

    def _resume(self) -> None:
        """Take up a pod that an earlier sandbox ran: its processes are lost, as after a reboot."""
        before: Json = self.pod.get("status") or {}
        entries = [
            *cast("list[Json]", before.get("initContainerStatuses") or []),
            *cast("list[Json]", before.get("containerStatuses") or []),
        ]
        known = {condition.spec["name"]: condition for condition in (*self._inits, *self._mains)}
        for entry in entries:
            condition = known[entry["name"]]
            condition.restarts = int(entry.get("restartCount", 0))
            condition.last_state = entry.get("lastState") or {}
            if "containerID" in entry:
                condition.number = int(entry["containerID"].rsplit("/", 1)[1])
            if condition.init:  # the network is a new one, so they run again
                continue
            if "running" in entry.get("state", {}):
                condition.state = entry["state"]
                self._exited(condition, 137, "ContainerStatusUnknown")
            elif "terminated" in entry.get("state", {}):
                condition.state = entry["state"]
                condition.done = self._policy == "Never" or (
                    self._policy == "OnFailure" and condition.code == 0
                )

    def _over(self) -> bool:
        if self._running:
            return False
        reached = podstatus.phase(self._inits, self._mains)
        return bool(self._ending) or reached in ("Succeeded", "Failed")

    def _deletion(self) -> bool:
        return "deletionTimestamp" in self.pod["metadata"]

    def _next_event(self) -> tuple[Any, ...]:
        waits = [*self._start_at.values(), self._kill_at, self._deadline]
        left = min(waits) - time.monotonic()
        try:
            return self._events.get(timeout=max(0.01, left) if left < 1e9 else None)
        except queue.Empty:
            return ("time",)

    def _handle(self, event: tuple[Any, ...]) -> None:
        match event:
            case ("changed", pod) if podstatus.version(pod) >= podstatus.version(self.pod):
                # An older object, queued behind our own report, would take its times back.
                self.pod = pod
                if self._deletion() and self._ending != "deleted":
                    grace = pod["metadata"].get("deletionGracePeriodSeconds")
                    self._stop("deleted", 30.0 if grace is None else float(grace))
            case ("removed",):
                self._stop("removed", 0)
            case ("exit", condition, code):
                if running := self._running.pop(condition.spec["name"], None):
                    running.prober.stop()
                self._exited(condition, code)
            case ("probe", condition, number, kind, good):
                if condition.number == number and condition.spec["name"] in self._running:
                    self._probed(condition, kind, good)
            case _:
                pass
        if time.monotonic() >= self._deadline and not self._ending:
            self._stop("DeadlineExceeded", float(self._grace()))
        if time.monotonic() >= self._kill_at:
            self._kill_at = float("inf")
            for running in self._running.values():
                running.container.signal(signal.SIGKILL)

    def _advance(self) -> None:
        """Start whatever is due."""
        if self._ending:
            return
        pending = next((init for init in self._inits if not init.done), None)
        for condition in [pending] if pending else self._mains:
            name = condition.spec["name"]
            due = self._start_at.get(name, 0) <= time.monotonic()
            if not condition.done and name not in self._running and due:
                self._start_at.pop(name, None)
                self._start(condition)

    def _start(self, condition: Condition) -> None:
        name: str = condition.spec["name"]
        try:
            if self._space.address is None:
                self._space.connect()
                self._publish()  # others want the address
            number = condition.number + 1

            def report(kind: str, good: bool) -> None:
                self._events.put(("probe", condition, number, kind, good))

            running = self._space.launch(self.pod, condition.spec, number, report)
        except ImageError as error:
            again = condition.state.get("waiting", {}).get("reason") == "ErrImagePull"
            self._later(condition, "ImagePullBackOff" if again else "ErrImagePull", error, 5)
        except VolumeError as error:
            self._later(condition, "ContainerCreating", error, RETRY)
        except ConfigurationError as error:
            self._later(condition, "CreateContainerConfigError", error, RETRY)
        except (OSError, ApiError) as error:
            self._later(condition, "CreateContainerError", error, RETRY)
        else:
            self._running[name] = running
            condition.number = number
            condition.state = {"running": {"startedAt": podstatus.now()}}
            condition.started = "startupProbe" not in condition.spec
            condition.ready = condition.started and "readinessProbe" not in condition.spec
            threading.Thread(
                target=lambda: self._events.put(("exit", condition, running.container.wait())),
                daemon=True,
            ).start()
            running.prober.start()

    def _later(self, condition: Condition, reason: str, error: Exception, wait: float) -> None:
        if (condition.state.get("waiting") or {}).get("message") != str(error):
            self._node.record(self.pod, "Warning", reason, str(error))
        condition.wait_for_restart(reason, str(error))
        self._start_at[condition.spec["name"]] = time.monotonic() + wait

    def _exited(self, condition: Condition, code: int, reason: str = "") -> None:
        """Decide what follows on an exit: the restart policy's word, with a growing delay."""
        name: str = condition.spec["name"]
        lived = self._backoff.get(name, 0.0)
        condition.ended(code, reason)
        always = self._policy == "Always" and not condition.init
        if self._ending or (code == 0 and not always) or (code != 0 and self._policy == "Never"):
            condition.done = True
            return
        condition.restarts += 1
        if lived:
            message = f"back-off {lived:.0f}s restarting failed container={name}"
            condition.wait_for_restart("CrashLoopBackOff", message)
            self._start_at[name] = time.monotonic() + lived
        else:
            condition.wait_for_restart("ContainerCreating", "")
        self._backoff[name] = min(LONGEST_BACKOFF, lived * 2 or FIRST_BACKOFF)

    def _probed(self, condition: Condition, kind: str, good: bool) -> None:
        if kind == "readinessProbe":
            condition.ready = good
        elif kind == "startupProbe" and good:
            condition.started = True
            condition.ready = "readinessProbe" not in condition.spec
        elif not good:
            message = f"Container {condition.spec['name']} failed its {kind}, will be restarted"
            self._node.record(self.pod, "Warning", "Unhealthy", message)
            running = self._running[condition.spec["name"]]
            running.prober.stop()
            self._terminate(running, {}, 0)
            self._later_kill(running)

    def _grace(self) -> int:
        return int(self.spec.get("terminationGracePeriodSeconds", 30))

    def _later_kill(self, running: Running) -> None:
        timer = threading.Timer(self._grace(), running.container.signal, (signal.SIGKILL,))
        timer.daemon = True
        timer.start()

    def _stop(self, why: str, grace: float) -> None:
        """SIGTERM to all containers; SIGKILL follows when the grace period is over."""
        self._ending = why
        self._start_at.clear()
        self._kill_at = time.monotonic() + grace
        for name, running in list(self._running.items()):
            running.prober.stop()
            hook: Json = self._hook(name)
            threading.Thread(
                target=self._terminate, args=(running, hook, grace), daemon=True
            ).start()

    def _hook(self, name: str) -> Json:
        spec = next(c.spec for c in (*self._inits, *self._mains) if c.spec["name"] == name)
        return (spec.get("lifecycle") or {}).get("preStop") or {}

    def _terminate(self, running: Running, hook: Json, grace: float) -> None:
        if "exec" in hook and grace > 0:
            running.container.execute(hook["exec"]["command"], grace)
        elif "sleep" in hook and grace > 0:
            time.sleep(min(grace, float(hook["sleep"]["seconds"])))
        running.container.signal(signal.SIGTERM)

    def _publish(self) -> None:
        """Report the status when it differs from the one reported last."""
        report = podstatus.status(
            self.pod, self._space.address, self._inits, self._mains, self._began
        )
        if self._ending == "DeadlineExceeded" and not self._running:
            message = "Pod was active on the node longer than the specified deadline"
            report |= {"phase": "Failed", "reason": "DeadlineExceeded", "message": message}
        elif self._ending and not self._running and report["phase"] in ("Pending", "Running"):
            report["phase"] = "Failed"
        told = podstatus.without_times(report)
        # Of a node that was called dead for a while, all pods were written down as not ready.
        same = podstatus.readiness(self.pod.get("status") or {}) == podstatus.readiness(report)
        if (told == self._published and same) or self._ending == "removed":
            return
        self._published = told
        changed = self._node.report(self.pod, report)
        if changed is not None:
            self.pod = {**changed, "metadata": {**changed["metadata"]}}
