"""Runs inside the sandbox's namespaces: `python -m sandbox.supervisor FOLDER OPTIONS`.

Standard input is the control pipe: a line `stop` ends the sandbox in order, its end (the starter
died) at once. Standard output carries JSON lines: progress, ready with the environment, failed.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

from sandbox import network, servers
from sandbox.cluster import ClusterKeeper
from sandbox.folder import Folder
from sandbox.hosts import HostsFile
from sandbox.logs import serve_logs
from sandbox.node import Node
from sandbox.processes import Supervisor
from sandbox.surroundings import binaries, cloud_environment, install_plugin, shared


def main() -> int:
    """Pid 1 of the sandbox: reaps, and ends with its only child, the supervisor proper."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = supervise(Folder(Path(sys.argv[1])), json.loads(sys.argv[2]))
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)  # daemon threads must not hold up the end
    os.close(0)
    os.close(1)
    while True:
        pid, status = os.wait()
        if pid == child:
            return os.waitstatus_to_exitcode(status)


def supervise(folder: Folder, options: dict[str, Any]) -> int:
    """Start everything, wait for the order to stop, stop everything."""
    stop = threading.Event()
    supervisor = Supervisor(folder, lambda text: _send(event="progress", text=text))
    threading.Thread(target=_control, args=(stop,), daemon=True).start()
    try:
        network.set_up(folder.hosts, folder.run / "resolv.conf")
        environment: dict[str, str] = {}
        side = _Background(lambda: environment.update(cloud_environment(folder, supervisor)))
        install_plugin(folder)
        client = servers.start_api_server(folder, supervisor, binaries())
        stages = shared("kwok") if options.get("kwok") else None
        servers.start_controllers(folder, supervisor, binaries(), stages)
        side.join()
        node = Node(folder, client, environment, run_pods=options["run_pods"])
        node.start(stop)
        serve_logs(folder, node)
        HostsFile(folder.hosts, client).start(stop)
        servers.wait_for_defaults(client, stop)
        keeper = ClusterKeeper(folder, client, supervisor)
        keeper.start(stop)
    except Exception as error:
        traceback.print_exc()
        _send(event="failed", error=str(error))
        return 1
    _send(event="ready", environment=environment)
    while not stop.wait(0.2):
        if supervisor.failure.is_set():
            _send(event="failed", error=supervisor.failed_because)
            return 1
    supervisor.stop_all()
    folder.clean_end.touch()
    return 0


class _Background:
    """A thread whose exception is raised where it is joined."""

    def __init__(self, work: Any) -> None:
        self._error: Exception | None = None

        def run() -> None:
            try:
                work()
            except Exception as error:
                self._error = error

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def join(self) -> None:
        self._thread.join()
        if self._error is not None:
            raise self._error


def _control(stop: threading.Event) -> None:
    """Wait for the starter's word; when it has died without one, end everything at once."""
    while line := sys.stdin.readline():
        if line.strip() == "stop":
            stop.set()
            return
    os._exit(1)


def _send(**message: Any) -> None:
    try:
        # In one piece: a line of another thread must not come between it and its end.
        print(f"{json.dumps(message)}\n", end="", flush=True)
    except OSError:
        os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
