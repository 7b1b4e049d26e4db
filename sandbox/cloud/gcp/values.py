"""Between the engine's property values and plain Python ones.

Everything in this plugin works on plain values (dict, list, str, int, float, bool, None,
`UNKNOWN`); secretness is taken off at the door and put back, per top-level property, on the way
out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import pulumi
from pulumi.provider.experimental.property_value import PropertyValue
from pulumi.runtime import rpc

Values = dict[str, Any]

DEFAULTS = "__defaults"  # the bridge's list of the inputs that the user did not give


class _Unknown:
    """A value that only the real creation will tell (the engine's "computed")."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = _Unknown()
# The engine sends an unknown value as a string that stands for it, by type. pulumi 3.272's
# PropertyValue passes that string on as if it were text, and cannot send its own Computed.
_WIRE = frozenset(
    {
        rpc.UNKNOWN,
        "1c4a061d-8072-4f0a-a4cb-0ff528b18fe7",  # bool
        "3eeb2bf0-c639-47a8-9e75-3b44932eb421",  # number
        "6a19a0b0-7e62-4c92-b797-7f8e31da9cc2",  # list
        "030794c1-ac77-496b-92df-f27374a8bd58",  # asset
        "dd056dcd-154b-4c76-9bd3-c8f88648b5ff",  # object
    }
)


class Sensitive:
    """Marks a value inside an output as secret; `pack` turns it into an engine secret."""

    def __init__(self, value: Any) -> None:
        self.value = value


def unpack(properties: Mapping[str, PropertyValue]) -> tuple[Values, set[str]]:
    """Plain values, and the names of the top-level properties that held a secret anywhere."""
    values = {name: _plain(value) for name, value in properties.items()}
    secrets = {name for name, value in properties.items() if value.contains_secret()}
    return values, secrets


def pack(values: Mapping[str, Any], secrets: set[str] | None = None) -> dict[str, PropertyValue]:
    """Property values for the engine; those named in `secrets` become secret as a whole."""
    secrets = secrets or set()
    return {name: _property(value, secret=name in secrets) for name, value in values.items()}


def _plain(value: PropertyValue) -> Any:  # noqa: PLR0911 - one return for each type
    inner = value.value
    if isinstance(inner, str) and inner in _WIRE:
        return UNKNOWN
    if isinstance(inner, Mapping):
        return {key: _plain(item) for key, item in inner.items()}
    if isinstance(inner, str | bool) or inner is None:
        return inner
    if isinstance(inner, float):
        return int(inner) if inner.is_integer() else inner
    if isinstance(inner, Sequence):
        return [_plain(item) for item in inner]
    if isinstance(inner, pulumi.StringAsset):
        return {"__asset": inner.text}
    if isinstance(inner, pulumi.FileAsset):
        return {"__asset_path": str(inner.path)}
    raise TypeError(f"unsupported value in a resource property: {type(inner).__name__}")


def _property(value: Any, secret: bool = False) -> PropertyValue:  # noqa: PLR0911 - as above
    if isinstance(value, Sensitive):
        return _property(value.value, secret=True)
    if value is UNKNOWN:
        return PropertyValue(rpc.UNKNOWN, is_secret=secret)
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return PropertyValue(value, is_secret=secret)
    if isinstance(value, int | float):
        return PropertyValue(float(value), is_secret=secret)
    if isinstance(value, dict):
        fields = cast(Values, value)
        if "__asset" in fields:
            return PropertyValue(pulumi.StringAsset(fields["__asset"]), is_secret=secret)
        if "__asset_path" in fields:
            return PropertyValue(pulumi.FileAsset(fields["__asset_path"]), is_secret=secret)
        return PropertyValue({k: _property(v) for k, v in fields.items()}, is_secret=secret)
    if isinstance(value, list | tuple):
        return PropertyValue([_property(v) for v in cast(list[Any], value)], is_secret=secret)
    raise TypeError(f"unsupported output value: {type(value).__name__}")


def known(value: Any) -> bool:
    """Whether no part of the value waits for a creation."""
    if value is UNKNOWN:
        return False
    if isinstance(value, dict):
        return all(known(item) for item in cast(Values, value).values())
    if isinstance(value, list):
        return all(known(item) for item in cast(list[Any], value))
    return True


def empty(value: Any) -> bool:
    """Whether the provider takes the value for "not set" (it has no other notion of absence)."""
    return value is None or value is False or value in ("", 0, [], {})
