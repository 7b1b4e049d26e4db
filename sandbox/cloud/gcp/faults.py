"""Faults on request: what Google may refuse or delay, told by a file.

`<sandbox>/cloud/faults.json` holds a list of objects; each is used `times` times (default 1) by the
operations that it matches:

    {"type": "gcp:container/cluster:Cluster", "operation": "create", "fault": "quota", "times": 1}

type, name (both shell patterns; name is matched against the Pulumi name and the id), operation
(create, update, delete, read) and service (such as container.googleapis.com) narrow it down.
fault is one of

    quota        the project's quota does not suffice
    api          the API is not enabled yet (a fresh enablement that has not propagated)
    permission   the deploying user lacks the permission
    account      a fresh service account is not known everywhere yet (IAM's eventual consistency)
    unavailable  503
    slow         the operation takes `seconds`; the resource exists at Google meanwhile
    late         the resource comes into being, then its creation ends in an error (a stock-out)

and `message` replaces the text. How often each was used is kept beside it, in faults-used.json, so
that "twice, then it works" holds across several runs of the plugin.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from .store import write_atomically

STOCK_OUT = (
    "Error waiting for creating GKE cluster: Google Compute Engine does not have enough resources "
    "available to fulfill the request. Try a different location, or try again later."
)


@dataclass(frozen=True)
class Fault:
    """One fault that applies to the operation at hand."""

    kind: str
    message: str | None
    seconds: float


@dataclass(frozen=True)
class Operation:
    """What is about to be done, as the patterns of a fault see it."""

    verb: str
    type: str
    name: str
    id: str
    service: str


class Faults:
    """The faults asked for in one sandbox. Without a folder there are none."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def take(self, operation: Operation) -> list[Fault]:
        """The faults that hit this operation; each counts as used once more."""
        if self.folder is None:
            return []
        try:
            asked: list[dict[str, Any]] = json.loads((self.folder / "faults.json").read_bytes())
        except FileNotFoundError:
            return []
        used = self._used()
        hits: list[Fault] = []
        for number, fault in enumerate(asked):
            key = str(number)
            if used.get(key, 0) < fault.get("times", 1) and _matches(fault, operation):
                used[key] = used.get(key, 0) + 1
                hits.append(
                    Fault(fault["fault"], fault.get("message"), float(fault.get("seconds", 0)))
                )
        if hits:
            write_atomically(self.folder / "faults-used.json", json.dumps(used))
        return hits

    def _used(self) -> dict[str, int]:
        assert self.folder is not None
        try:
            return json.loads((self.folder / "faults-used.json").read_bytes())
        except FileNotFoundError:
            return {}


def _matches(fault: dict[str, Any], operation: Operation) -> bool:
    name = fault.get("name", "*")
    return (
        fnmatchcase(operation.type, fault.get("type", "*"))
        and fault.get("operation", operation.verb) == operation.verb
        and fault.get("service", operation.service) == operation.service
        and (fnmatchcase(operation.name, name) or fnmatchcase(operation.id, name))
    )


def set_faults(folder: Path, *faults: dict[str, Any]) -> None:
    """Asks for these faults from now on, in place of all earlier ones."""
    (folder / "faults-used.json").unlink(missing_ok=True)
    write_atomically(folder / "faults.json", json.dumps(list(faults)))
