"""The property table: what each resource type takes, returns, defaults and never changes.

resources.json holds, for each resource type, the real provider's properties under their Pulumi
names. It was read once from the provider's own schema (9.35 line of google-beta, which SDK 10.2
carries); nested blocks that the provider limits to one item are objects, as in the SDK.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

Table = dict[str, Any]


@dataclass(frozen=True)
class Property:
    """One property: Terraform's schema flags, and the nested block's properties if it has any."""

    name: str
    type: str  # String, Int, Float, Bool, Map, List, Set
    required: bool = False
    optional: bool = False
    computed: bool = False
    force_new: bool = False
    sensitive: bool = False
    default: str | None = None
    elem: str | None = None
    max_items: int = 0
    conflicts: tuple[str, ...] = ()
    exactly_one: tuple[str, ...] = ()
    fields: dict[str, Property] = field(default_factory=dict[str, "Property"])

    @property
    def settable(self) -> bool:
        return self.required or self.optional

    @property
    def block(self) -> bool:
        """A nested block of at most one item, which Pulumi shows as an object."""
        return bool(self.fields) and self.max_items == 1

    def default_value(self) -> Any:
        """The schema's default, typed; None where there is none."""
        if self.default is None:
            return None
        if self.type == "Bool":
            return self.default == "true"
        if self.type == "Int":
            return int(self.default)
        if self.type == "Float":
            return float(self.default)
        return self.default


def _property(name: str, raw: Table) -> Property:
    return Property(
        name=name,
        type=raw["type"],
        required=raw.get("required", False),
        optional=raw.get("optional", False),
        computed=raw.get("computed", False),
        force_new=raw.get("forceNew", False),
        sensitive=raw.get("sensitive", False),
        default=raw.get("default"),
        elem=raw.get("elem"),
        max_items=raw.get("maxItems", 0),
        conflicts=tuple(raw.get("conflictsWith", ())),
        exactly_one=tuple(raw.get("exactlyOneOf", ())),
        fields={key: _property(key, item) for key, item in raw.get("fields", {}).items()},
    )


@cache
def _raw() -> Table:
    return json.loads(Path(__file__).with_name("resources.json").read_text())


def types() -> list[str]:
    """All resource types that the stand-in knows, such as gcp:storage/bucket:Bucket."""
    return list(_raw())


@cache
def properties(token: str) -> dict[str, Property]:
    """The properties of one resource type. Raises KeyError for a type that is not in the table."""
    return {name: _property(name, raw) for name, raw in _raw()[token].items()}


def snake(name: str) -> str:
    """`ipCidrRange` as the provider's messages write it: `ip_cidr_range`."""
    return "".join("_" + c.lower() if c.isupper() else c for c in name)


def camel(name: str) -> str:
    """`ip_cidr_range` as Pulumi writes it: `ipCidrRange`."""
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)
