"""What the sandbox's node does when something happens at the wrong moment, told to a script."""

from __future__ import annotations

import copy
import threading
from pathlib import Path
from typing import Any, cast

import pytest

from sandbox import node as module
from sandbox import podstatus
from sandbox.api import Api
from sandbox.folder import Folder
from sandbox.node import Node
from sandbox.pods import PodWorker

ENDED: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "1"},
    "spec": {"restartPolicy": "Never", "containers": [{"name": "c"}]},
    "status": {
        "containerStatuses": [
            {"name": "c", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
        ]
    },
}
BEING_DELETED = copy.deepcopy(ENDED)
BEING_DELETED["metadata"] |= {"deletionTimestamp": "now", "resourceVersion": "3"}


class Server:
    """An API server with a pod that has ended and a node that was called dead."""

    def __init__(self) -> None:
        self.deleted: list[str] = []
        self.told: dict[str, Any] = {}
        self.patches = 0
        self.away = 0  # how many deletions it will not answer
        self.ready = "Unknown"

    def get(self, path: str) -> dict[str, Any]:
        return {"status": {"conditions": [{"type": "Ready", "status": self.ready}]}}

    def patch(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.told[path] = body
        if path.endswith("/nodes/sandbox/status"):
            (ready,) = [c for c in body["status"]["conditions"] if c["type"] == "Ready"]
            self.ready = ready["status"]
        self.patches += 1
        return {**ENDED, **body, "metadata": {**ENDED["metadata"], "resourceVersion": "2"}}

    def delete(self, path: str, body: dict[str, Any]) -> None:
        if self.away:
            self.away -= 1
            raise TimeoutError("too busy")
        self.deleted.append(path)


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def node(server: Server, tmp_path: Path) -> Node:
    return Node(Folder(tmp_path), cast(Api, server), {}, run_pods=True)


@pytest.mark.parametrize("away", [0, 1])
def test_a_deletion_while_the_pod_s_end_is_tidied_up_is_not_lost(
    node: Node, server: Server, away: int
):
    server.away = away
    worker = PodWorker(node, ENDED)
    tidy = worker._space.close

    def close() -> None:
        tidy()
        assert worker.update(BEING_DELETED)

    worker._space.close = close
    worker._run()
    assert server.deleted == ["/api/v1/namespaces/n/pods/p"]
    assert not worker.update(BEING_DELETED)  # the node's to do from here on


def test_a_node_that_was_called_dead_says_that_it_lives(
    node: Node, server: Server, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "LEASE_SECONDS", 0.04)
    stop, heard = threading.Event(), threading.Event()
    get = server.get

    def asked(path: str) -> dict[str, Any]:
        if server.ready == "True":
            heard.set()
        return get(path)

    monkeypatch.setattr(server, "get", asked)
    threading.Thread(target=node._beat, args=(stop,), daemon=True).start()
    assert heard.wait(60)
    stop.set()


def test_a_pod_that_was_called_not_ready_with_its_node_says_that_it_is(node: Node, server: Server):
    worker = PodWorker(node, {**ENDED, "status": {}})
    (main,) = worker._mains
    main.state, main.ready, main.number = {"running": {"startedAt": "then"}}, True, 0
    for _ in range(2):
        worker._publish()
    assert server.patches == 1
    written = copy.deepcopy(worker.pod)
    for condition in written["status"]["conditions"]:
        if condition["type"] == "Ready":
            condition["status"] = "False"
    worker._handle(("changed", written))
    for _ in range(2):
        worker._publish()
    assert server.patches == 2
    assert podstatus.readiness(worker.pod["status"]) == ["True", "True"]
