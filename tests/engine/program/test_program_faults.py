"""Google's bad days under the whole program: what was made is kept, and the next `up` goes on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from sandbox.cloud import set_faults

CLUSTER = "gcp:container/cluster:Cluster"
STOCK_OUT = "Google Compute Engine does not have enough resources"


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory, make_stack: Any) -> Iterator[Any]:
    """A stack in a sandbox of its own."""
    with make_stack(tmp_path_factory.mktemp("faults")) as stack:
        yield stack


def up(stack: Any, *faults: dict[str, Any]) -> tuple[int, str]:
    """Exit status of an `up` while Google does this to creations, and all that was said."""
    asked = [{"operation": "create", **fault} for fault in faults]
    set_faults(stack.sandbox.folder.cloud, *asked)
    done = stack.up(check=False)
    text = done.stdout + done.stderr
    # The engine may end the program half-way, and Python says so; Google's resources may not.
    assert not [line for line in text.splitlines() if "gcp:" in line and "Traceback" in line]
    in_the_cloud = {(r["type"], r["id"]) for r in stack.sandbox.cloud_state()}
    known = {(r["type"], r["id"]) for r in stack.resources().values() if r["type"][:4] == "gcp:"}
    assert in_the_cloud == known
    return done.returncode, text


def tries(text: str, name: str) -> list[str]:
    """Seconds waited before each new attempt; the engine says it as it happens and at the end."""
    return sorted(
        set(re.findall(rf"{name} cannot be made yet; once more in (\d+) s", text)), key=int
    )


def test_what_google_refused_is_made_by_the_next_up(own: Any) -> None:
    # An API that was enabled a moment ago is tried again by itself; a missing right ends this `up`.
    status, text = up(
        own,
        {"type": "gcp:compute/network:Network", "fault": "api", "times": 2},
        {"type": "gcp:logging/metric:Metric", "fault": "permission"},
    )
    assert status != 0
    assert tries(text, "network") == ["2", "5"]
    assert "Required permission on logging.googleapis.com is missing" in text
    made = set(own.resources())

    status, text = up(own, {"type": CLUSTER, "fault": "quota"})
    assert status != 0
    assert "Quota exceeded" in text
    assert made < set(own.resources())
    made = set(own.resources())

    # A cluster that exists and has no machines: kept, with the reason.
    status, text = up(own, {"type": CLUSTER, "fault": "late"})
    assert status != 0
    assert STOCK_OUT in text
    (cluster,) = [r for r in own.resources().values() if r["type"] == CLUSTER]
    assert STOCK_OUT in cluster["initErrors"][0]
    assert made < set(own.resources())

    # Fresh accounts that are not known everywhere yet, and an operation that takes its time.
    status, text = up(
        own,
        {"name": "workload-identity", "fault": "account", "times": 2},
        {"type": "gcp:monitoring/dashboard:Dashboard", "fault": "slow", "seconds": 3},
    )
    assert status == 0, text
    assert tries(text, "workload-identity") == ["2", "5"]
    own.up("--expect-no-changes")
