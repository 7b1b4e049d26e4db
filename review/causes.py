"""Why a resource changes, in the words of whoever changed it.

A run's name, its folder and its labels hold its id, which is a hash of what it is made of. So a
changed learning rate shows as a dozen changed properties; what a reviewer wants to read is the
learning rate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import yaml

from review import values
from review.digest import Change

ID = "gemma.run/id"
#: The section of a run's configuration that repeats where it runs and how it is called.
REPEATED = ("run.id", "run.output_dir")


def paths(change: Change) -> list[str]:
    """Property paths that differ by more than the run's id; what forces a replacement first."""
    if change.verdict in ("create", "delete"):
        return []
    ids = _ids(change)
    differing = values.differences(change.old, change.new)
    found = [d.path for d in differing if not _by_id(d, ids)] or [d.path for d in differing]
    found = found or sorted(set(change.reported))
    forced = [path for path in found if change.reasons and path.startswith(change.reasons)]
    return [*forced, *(path for path in found if path not in forced)]


def causes(change: Change, changes: Iterable[Change]) -> list[str]:
    """What makes this change necessary: keys of the configuration and property paths.

    For a run, the changes of the objects that carry the same id count too.
    """
    ids = _ids(change)
    if ids is None:
        forced = [path for path in paths(change) if path.startswith(change.reasons or "")]
        return forced or paths(change)
    found: list[str] = []
    for related in changes:
        if _ids(related) != ids:
            continue
        for difference in values.differences(related.old, related.new):
            if not _by_id(difference, ids):
                found += _keys(difference) or [difference.path]
    keys = [path for path in found if not path.startswith(("spec.", "metadata.", "data["))]
    return list(dict.fromkeys(keys or found))


def _ids(change: Change) -> tuple[str, str] | None:
    """The old and the new id of the run that an object belongs to; None where there is none."""
    labels = [(side.get("metadata") or {}).get("labels") or {} for side in (change.old, change.new)]
    old, new = (cast(Mapping[str, Any], found).get(ID) for found in labels)
    return (old, new) if isinstance(old, str) and isinstance(new, str) else None


def _by_id(difference: values.Difference, ids: tuple[str, str] | None) -> bool:
    """Whether the two values differ by the id alone."""
    old, new = difference.old, difference.new
    if ids is None or not isinstance(old, str) or not isinstance(new, str):
        return False
    return old.replace(*ids) == new


def _keys(difference: values.Difference) -> list[str]:
    """Keys that differ between two YAML files, such as `sft.learning_rate`."""
    old, new = difference.old, difference.new
    if not (isinstance(old, str) and isinstance(new, str) and difference.path.endswith('.yaml"]')):
        return []
    try:
        sides: list[Any] = [yaml.safe_load(text) for text in (old, new)]
    except yaml.YAMLError:
        return []
    if not all(isinstance(side, dict) for side in sides):
        return []
    return [d.path for d in values.differences(*sides) if d.path not in REPEATED]
