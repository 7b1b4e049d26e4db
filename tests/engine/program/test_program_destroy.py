"""Production refuses to be destroyed and says how to do it; then nothing is left in the cloud."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory, make_stack: Any) -> Iterator[Any]:
    """A stack in a sandbox of its own."""
    with make_stack(tmp_path_factory.mktemp("own")) as stack:
        yield stack


def identities(stack: Any) -> set[tuple[str, str]]:
    """Type and id of every Google Cloud resource that the state knows."""
    found = stack.resources().values()
    return {(r["type"], r["id"]) for r in found if r["type"].startswith("gcp:")}


def in_the_cloud(stack: Any) -> set[tuple[str, str]]:
    return {(r["type"], r["id"]) for r in stack.sandbox.cloud_state()}


def test_production_refuses_to_be_destroyed_until_it_is_unlocked(own: Any) -> None:
    own.configure({"environment": "prod"})
    own.up()
    refused = own.destroy(check=False)
    assert refused.returncode != 0
    text = refused.stdout + refused.stderr
    assert re.search(r"protect", text)
    assert "gemma:cluster.deletionProtection" in text
    assert in_the_cloud(own) == identities(own) != set()
    # On purpose: the two settings, one `up`, and then it goes.
    own.configure(
        {"environment": "prod", "cluster.deletionProtection": False, "bucket.forceDestroy": True}
    )
    own.up()
    before = {"rayjobs", "jobs", "pods", "namespaces", "secrets"}
    assert {kind for kind in before if ours(own, kind)} == before
    own.destroy()
    assert own.resources() == {}
    assert in_the_cloud(own) - enabled_services(own) == set()
    assert {kind: ours(own, kind) for kind in before - {"rayjobs"}} == {
        kind: [] for kind in before - {"rayjobs"}
    }
    assert not [line for line in commands(own) if "kuberay-operator" in line]


def enabled_services(stack: Any) -> set[tuple[str, str]]:
    """Enabled APIs stay on purpose: something else in the project may rely on them."""
    return {item for item in in_the_cloud(stack) if item[0] == "gcp:projects/service:Service"}


def ours(stack: Any, kind: str) -> list[str]:
    """Names of the API server's objects of this kind that are not Kubernetes' own."""
    found = stack.sandbox.objects(kind, "-A")
    builtin = ("default", "kube-system", "kube-public", "kube-node-lease")
    return [
        o["metadata"]["name"]
        for o in found
        if o["metadata"].get("namespace") not in builtin and o["metadata"]["name"] not in builtin
    ]


def commands(stack: Any) -> list[str]:
    """The command lines of the sandbox's processes."""
    lines: list[str] = []
    for pid in stack.sandbox.processes():
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:  # it has just ended
            continue
        lines.append(line.replace(b"\0", b" ").decode())
    return lines
