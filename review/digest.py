"""Reads the digest that `pulumi preview --json` prints into `Change` records."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

Verdict = Literal["delete", "replace", "update", "create"]

#: The engine's step names. A replacement comes as up to three steps of one resource.
VERDICTS: dict[str, Verdict] = {
    "create": "create",
    "import": "create",
    "update": "update",
    "replace": "replace",
    "create-replacement": "replace",
    "delete-replaced": "replace",
    "import-replacement": "replace",
    "delete": "delete",
}
#: Kinds of resources whose loss costs hours or data; a comment names these first, in this order.
CRITICAL = {
    "gcp:container/cluster:Cluster": "cluster",
    "gcp:storage/bucket:Bucket": "bucket",
    "kubernetes:batch/v1:Job": "run",
    "kubernetes:ray.io/v1:RayJob": "run",
    "gcp:artifactregistry/repository:Repository": "repository",
    "gcp:serviceaccount/account:Account": "account",
}
#: What keeps a kind from being destroyed by mistake: a property and its value that lets go of it.
UNPROTECTED = {"cluster": ("deletionProtection", False), "bucket": ("forceDestroy", True)}
#: Annotation of a run's object: what machines it asks for, in words.
DEMAND = "gemma.run/demand"


#: A bucket of files that the next build uploads again.
BUILD_CONTEXTS = "builds"

#: What the engine adds to a program's own message, to no reader's use.
PROGRAM_ENDED = "program exited with non-zero exit code"


@dataclasses.dataclass(frozen=True)
class Change:
    """One resource that a deployment would touch."""

    verdict: Verdict
    urn: str
    old: Mapping[str, Any]  #: inputs in the state; empty for a create
    new: Mapping[str, Any]  #: inputs of the program; empty for a delete
    reasons: tuple[str, ...]  #: property paths that force a replacement, as the provider names them
    reported: tuple[str, ...]  #: property paths that differ, as the provider names them

    @property
    def type(self) -> str:
        """Type of the resource itself, without those of its parents."""
        return self.urn.split("::")[2].rsplit("$", 1)[-1]

    @property
    def name(self) -> str:
        """Logical name, as written in the program."""
        return "::".join(self.urn.split("::")[3:])

    @property
    def kind(self) -> str | None:
        """`cluster`, `bucket`, `run`, … where losing it costs hours or data, else None."""
        kind = CRITICAL.get(self.type)
        return None if kind == "bucket" and self.name == BUILD_CONTEXTS else kind

    @property
    def _unprotected(self) -> bool:
        key, free = UNPROTECTED.get(self.kind or "", ("", None))
        return key in self.new and self.new[key] == free and self.old.get(key) == (not free)

    @property
    def critical(self) -> bool:
        """Whether something that costs hours or data is replaced, deleted or unprotected."""
        if self.kind is None or self.verdict == "create":
            return False
        return self.verdict != "update" or self._unprotected


@dataclasses.dataclass(frozen=True)
class Preview:
    """All changes of one preview, most serious first, or the messages of why it stopped."""

    changes: tuple[Change, ...]
    same: int  #: resources that stay as they are
    errors: tuple[str, ...]
    base_error: str | None = None  #: why the base could not be deployed, hence all is new
    demands: tuple[tuple[str, str], ...] = ()  #: name of each run, and the machines it asks for

    def count(self, verdict: Verdict) -> int:
        """Number of resources with this verdict."""
        return sum(change.verdict == verdict for change in self.changes)


def read(digest: Mapping[str, Any], deployed: Iterable[Mapping[str, Any]] = ()) -> Preview:
    """Turns a decoded digest of all steps, unchanged ones too, into a `Preview`.

    Source: pkg/display/json.go of github.com/pulumi/pulumi (`PreviewDigest`, `PreviewStep`).

    Args:
        digest: as `pulumi preview --json --show-sames` prints it.
        deployed: the state's resources. One that no step mentions is deleted: the digest leaves
            out what goes before a replacement that it depends on, and never comes again.
    """
    found: dict[str, Change] = {}
    same: set[str] = set()
    demands: dict[str, str] = {}
    for step in digest.get("steps") or ():
        urn, op = step["urn"], step["op"]
        change = _change("update", step)
        if change.kind == "run" and (demand := _demand(change.new)):
            demands[change.name] = demand
        if op == "same" and _real(step):
            same.add(urn)
        if op not in VERDICTS or not _real(step):
            continue
        change = _change(VERDICTS[op], step)
        found[urn] = _merge(found[urn], change) if urn in found else change
    mentioned = {step["urn"] for step in digest.get("steps") or ()}
    for resource in deployed:
        urn = resource["urn"]
        ours = resource.get("custom") and not resource["type"].startswith("pulumi:providers:")
        if ours and not resource.get("delete") and urn not in mentioned:
            found[urn] = _change("delete", {"urn": urn, "oldState": resource})
    errors = [
        diagnostic["message"].strip()
        for diagnostic in digest.get("diagnostics") or ()
        if diagnostic.get("severity") == "error"
    ]
    errors = [error for error in errors if PROGRAM_ENDED not in error] or errors
    return Preview(
        changes=tuple(sorted(found.values(), key=_order)),
        same=len(same - set(found)),
        errors=tuple(dict.fromkeys(errors)),
        demands=tuple(sorted(demands.items())),
    )


def _demand(inputs: Mapping[str, Any]) -> str | None:
    """What a run's object says that it asks for; earlier versions of the program said nothing."""
    return ((inputs.get("metadata") or {}).get("annotations") or {}).get(DEMAND)


def _real(step: Mapping[str, Any]) -> bool:
    """Whether it is more than a component, which only groups others and exists nowhere."""
    state = step.get("newState") or step.get("oldState") or {}
    return bool(state.get("custom", True))


def _change(verdict: Verdict, step: Mapping[str, Any]) -> Change:
    old, new = step.get("oldState") or {}, step.get("newState") or {}
    reported: Sequence[str] = [*(step.get("detailedDiff") or ()), *(step.get("diffReasons") or ())]
    return Change(
        verdict=verdict,
        urn=step["urn"],
        old={} if verdict == "create" else _inputs(old),
        new={} if verdict == "delete" else _inputs(new),
        reasons=tuple(sorted(step.get("replaceReasons") or ())),
        reported=tuple(sorted(set(reported))),
    )


def _inputs(state: Mapping[str, Any]) -> dict[str, Any]:
    """Without the pickled code of a resource of the program's own, which nobody can read."""
    inputs: Mapping[str, Any] = state.get("inputs") or {}
    return {key: value for key, value in inputs.items() if key != "__provider"}


def _merge(first: Change, second: Change) -> Change:
    """One change out of the steps of a replacement, each of which knows a part of it."""
    replaced = "replace" in (first.verdict, second.verdict) or first.verdict != second.verdict
    return Change(
        verdict="replace" if replaced else first.verdict,
        urn=first.urn,
        old=first.old or second.old,
        new=first.new or second.new,
        reasons=tuple(sorted({*first.reasons, *second.reasons})),
        reported=tuple(sorted({*first.reported, *second.reported})),
    )


def _order(change: Change) -> tuple[int, int, int, str, str]:
    kinds = list(dict.fromkeys(CRITICAL.values()))
    return (
        0 if change.critical else 1,
        kinds.index(change.kind) if change.critical and change.kind else len(kinds),
        ("delete", "replace", "update", "create").index(change.verdict),
        change.type,
        change.name,
    )
