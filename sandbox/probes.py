"""Startup, liveness and readiness probes of one container, in a thread of its own."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from sandbox.api import Json
from sandbox.containers import Container

KINDS = ("startupProbe", "livenessProbe", "readinessProbe")


@dataclass
class _Schedule:
    """When a probe is due next, and its results in a row."""

    kind: str
    spec: Json
    due: float
    successes: int = 0
    failures: int = 0

    def number(self, name: str, default: int) -> int:
        return int(self.spec.get(name) or default)


class Prober:
    """Runs a container's probes until told to stop; reports changes, not every result."""

    def __init__(
        self,
        spec: Json,
        container: Container,
        address: str,
        report: Callable[[str, bool], None],
    ) -> None:
        """`report` gets the probe's kind and whether its threshold was reached well or badly."""
        self._spec = spec
        self._container = container
        self._address = address
        self._report = report
        self._stop = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, daemon=True).start()

    def stop(self) -> None:
        self._stop.set()

    def _run(self) -> None:
        if "startupProbe" in self._spec and not self._phase(["startupProbe"]):
            return
        self._phase([kind for kind in KINDS[1:] if kind in self._spec])

    def _phase(self, kinds: list[str]) -> bool:
        """Run these probes; a startup probe's success ends its phase."""
        now = time.monotonic()
        schedules: list[_Schedule] = []
        for kind in kinds:
            delay = int(self._spec[kind].get("initialDelaySeconds") or 0)
            schedules.append(_Schedule(kind, self._spec[kind], now + delay))
        told: dict[str, bool] = {}
        while schedules:
            schedule = min(schedules, key=lambda one: one.due)
            if self._stop.wait(max(0.0, schedule.due - time.monotonic())):
                return False
            good = self._once(schedule)
            schedule.due = time.monotonic() + schedule.number("periodSeconds", 10)
            schedule.successes = schedule.successes + 1 if good else 0
            schedule.failures = 0 if good else schedule.failures + 1
            if good and schedule.successes < schedule.number("successThreshold", 1):
                continue
            if not good and schedule.failures < schedule.number("failureThreshold", 3):
                continue
            if self._stop.is_set():
                return False
            if told.get(schedule.kind) != good:
                told[schedule.kind] = good
                self._report(schedule.kind, good)
            if schedule.kind == "startupProbe":
                return good
        return True

    def _once(self, schedule: _Schedule) -> bool:
        timeout = float(schedule.number("timeoutSeconds", 1))
        try:
            return self._ask(schedule.spec, timeout)
        except (OSError, http.client.HTTPException, ValueError):
            return False

    def _ask(self, probe: Json, timeout: float) -> bool:
        if "exec" in probe:
            command: list[str] = probe["exec"]["command"]
            return self._container.execute(command, timeout) == 0
        if "tcpSocket" in probe:
            where: Json = probe["tcpSocket"]
            with socket.create_connection(self._target(where), timeout):
                return True
        if "httpGet" in probe:
            return self._http(probe["httpGet"], timeout)
        return True  # gRPC probes are not implemented: they count as passed

    def _http(self, get: Json, timeout: float) -> bool:
        host, port = self._target(get)
        if str(get.get("scheme", "HTTP")).upper() == "HTTPS":
            trusting = ssl._create_unverified_context()  # pyright: ignore[reportPrivateUsage]
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, port, timeout=timeout, context=trusting
            )
        else:
            connection = http.client.HTTPConnection(host, port, timeout=timeout)
        try:
            headers = {h["name"]: h["value"] for h in get.get("httpHeaders") or []}
            connection.request("GET", get.get("path") or "/", headers=headers)
            return 200 <= connection.getresponse().status < 400
        finally:
            connection.close()

    def _target(self, where: Json) -> tuple[str, int]:
        port = where["port"]
        if not isinstance(port, int) and not str(port).isdigit():
            ports: list[Json] = self._spec.get("ports") or []
            port = next(p["containerPort"] for p in ports if p.get("name") == port)
        return str(where.get("host") or self._address), int(port)
