"""Diff: what a change of inputs does, by the provider's schema and what was seen to happen.

Terraform's rules, leaf by leaf: a computed property that the inputs leave out never differs; sets
have no order; an absent value equals the empty one; an immutable leaf replaces the resource.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from .schema import Property
from .values import UNKNOWN, Values, empty

Same = Callable[[str, Any, Any], bool]  # (path, old, new): Google takes both for the same
Immutable = Callable[[str, Property, Any, Any], bool]


@dataclass
class Changes:
    """Paths that differ, each with its kind ("add", "delete" or "update") and if it replaces."""

    paths: dict[str, tuple[str, bool]] = field(default_factory=dict[str, tuple[str, bool]])

    @property
    def replaces(self) -> list[str]:
        """The top-level properties that make a replacement necessary."""
        keys = [path.split(".")[0].split("[")[0] for path, (_, new) in self.paths.items() if new]
        return list(dict.fromkeys(keys))

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys(path.split(".")[0].split("[")[0] for path in self.paths))


class Differ:
    """Compares a resource's state with new inputs; `changes` holds the result."""

    def __init__(self, same: Same, immutable: Immutable) -> None:
        self.same, self.immutable = same, immutable
        self.changes = Changes()

    def block(self, table: dict[str, Property], old: Values, new: Values, path: str = "") -> None:
        for prop in table.values():
            if prop.settable:
                self._property(prop, old.get(prop.name), new.get(prop.name), path + prop.name)

    def _property(self, prop: Property, old: Any, new: Any, path: str) -> None:
        if new is None and (prop.computed or empty(old)):
            return
        if new is not None and old is None and empty(new):
            return
        if new is not UNKNOWN and self.same(path, old, new):
            return
        if new is UNKNOWN or new is None or old is None:
            kind = "delete" if new is None else "add" if old is None else "update"
            block = cast(Values, new if new is not None else old)
            if new is not UNKNOWN and prop.block and self._only_empty(prop, block):
                return
            self._add(prop, path, kind, old, new)
        elif prop.block and isinstance(old, dict) and isinstance(new, dict):
            self.block(prop.fields, cast(Values, old), cast(Values, new), path + ".")
        elif prop.type == "Map":
            self._map(prop, cast(Values, old), cast(Values, new), path)
        elif prop.type == "Set":
            if sorted(map(self._key(prop), old)) != sorted(map(self._key(prop), new)):
                self._add(prop, path, "update", old, new)
        elif prop.type == "List" and not prop.block:
            self._list(prop, cast(list[Any], old), cast(list[Any], new), path)
        elif old != new and str(old) != str(new):
            self._add(prop, path, "update", old, new)

    def _only_empty(self, prop: Property, block: Values) -> bool:
        return prop.computed and all(empty(block.get(name)) for name in prop.fields)

    def _add(self, prop: Property, path: str, kind: str, old: Any, new: Any) -> None:
        self.changes.paths[path] = (kind, self.immutable(path, prop, old, new))

    def _map(self, prop: Property, old: Values, new: Values, path: str) -> None:
        for key in dict.fromkeys([*old, *new]):
            if old.get(key) != new.get(key):
                kind = "add" if key not in old else "delete" if key not in new else "update"
                self._add(prop, f"{path}.{key}", kind, old.get(key), new.get(key))

    def _list(self, prop: Property, old: list[Any], new: list[Any], path: str) -> None:
        for i in range(max(len(old), len(new))):
            where = f"{path}[{i}]"
            if i >= len(old):
                self._add(prop, where, "add", None, new[i])
            elif i >= len(new):
                self._add(prop, where, "delete", old[i], None)
            elif prop.fields and new[i] is not UNKNOWN:
                self.block(prop.fields, old[i], new[i], where + ".")
            elif old[i] != new[i] and not self.same(where, old[i], new[i]):
                self._add(prop, where, "update", old[i], new[i])

    @staticmethod
    def _key(prop: Property) -> Callable[[Any], str]:
        """What makes two items of a set the same: the settable fields that are not empty."""

        def key(item: Any) -> str:
            if prop.fields and isinstance(item, dict):
                return json.dumps(_settable(prop.fields, cast(Values, item)), sort_keys=True)
            return json.dumps(item, default=repr)

        return key


def _settable(table: dict[str, Property], values: Values) -> Values:
    out: Values = {}
    for name, prop in table.items():
        value = values.get(name)
        if not prop.settable or empty(value):
            continue
        if prop.block and isinstance(value, dict):
            value = _settable(prop.fields, cast(Values, value))
        elif prop.fields and isinstance(value, list):
            value = [_settable(prop.fields, item) for item in cast(list[Values], value)]
        out[name] = repr(value) if value is UNKNOWN else value
    return out
