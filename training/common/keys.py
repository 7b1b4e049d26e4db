"""What a configuration key may hold, and the check of a section against that.

Our own sections are frozen dataclasses: `keys_of` reads the rules from their annotations. The
sections that pass through to a library (SFTConfig, LoraConfig, BitsAndBytesConfig) come from
`schema/*.json`, which `python -m training.common.schema.generate` writes from the pinned versions,
so that a check needs none of those libraries.
"""

from __future__ import annotations

import json
import math
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, cast

from training.common.config import Problem, unknown_key

NAMES = {
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "list": "a list",
    "mapping": "a mapping",
    "null": "null",
}


@dataclass(frozen=True)
class Bound:
    """Limits of a number: `least` and `most` are allowed themselves, `above`, `below` are not."""

    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None

    def holds(self, value: float) -> bool:
        """Whether `value` lies within (a NaN never does)."""
        return (
            not math.isnan(value)
            and (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
            and (self.most is None or value <= self.most)
            and (self.below is None or value < self.below)
        )

    def __str__(self) -> str:
        parts: list[str] = []
        for text, limit in (
            ("at least", self.least),
            ("above", self.above),
            ("at most", self.most),
            ("below", self.below),
        ):
            if limit is not None:
                parts.append(f"{text} {limit:g}")
        return " and ".join(parts)


@dataclass(frozen=True)
class Key:
    """What one key may hold: any of `types` (names of NAMES), text only from `choices` if given."""

    types: tuple[str, ...]
    choices: tuple[str, ...] = ()
    bound: Bound | None = None
    required: bool = False

    def describe(self) -> str:
        """A phrase for a human: `a number above 0`."""
        parts: list[str] = []
        for name in self.types:
            if name == "string" and self.choices:
                parts.append("one of " + ", ".join(self.choices))
            elif name == "integer" and "number" in self.types:
                continue
            elif name in ("integer", "number") and self.bound is not None:
                parts.append(f"{NAMES[name]} {self.bound}")
            else:
                parts.append(NAMES[name])
        return " or ".join(parts)

    def read(self, value: object) -> tuple[object, bool]:
        """(the value as it is used, whether it is allowed)."""
        name = _name(value)
        if name == "string" and "string" not in self.types:
            # YAML 1.1 reads 1e-4 (no dot) as text: a number was meant.
            number = _number(cast("str", value), self.types)
            if number is None:
                return value, False
            value, name = number, _name(number)
        if (
            isinstance(value, float)
            and value.is_integer()
            and "integer" in self.types
            and "number" not in self.types
        ):
            value, name = int(value), "integer"  # JSON from elsewhere may hold 16.0
        if name == "integer" and "number" in self.types and "integer" not in self.types:
            # The engine hands over 2.0 as 2: the same configuration must have the same text.
            value, name = float(cast("int", value)), "number"
        if name not in self.types and not (name == "integer" and "number" in self.types):
            return value, False
        if name == "string" and self.choices and value not in self.choices:
            return value, False
        if name in ("integer", "number") and self.bound is not None:
            return value, self.bound.holds(float(cast("float", value)))
        return value, True


def check(
    prefix: str,
    section: object,
    keys: Mapping[str, Key],
    reserved: Mapping[str, str] | None = None,
    by_user: Iterable[str] = (),
) -> tuple[dict[str, Any], list[Problem]]:
    """A section as it is used, and everything wrong with it.

    Args:
        prefix: path of the section, for messages.
        section: what was given; None counts as empty.
        keys: what each key may hold.
        reserved: keys that the user may not set, with the reason.
        by_user: keys of the section that are no default.
    """
    if section is None:
        section = {}
    if not isinstance(section, Mapping):
        return {}, [Problem(prefix, section, "a mapping")]
    given = cast("Mapping[str, object]", section)
    problems: list[Problem] = []
    read: dict[str, Any] = {}
    for name, value in given.items():
        path = f"{prefix}.{name}"
        if reserved and name in reserved:
            fix = "pulumi config rm --path '{key}'"
            problems.append(Problem(path, value, f"not set by hand: {reserved[name]}", fix))
        elif name not in keys:
            problems.append(unknown_key(prefix, name, value, keys, by_user))
        else:
            used, allowed = keys[name].read(value)
            if allowed:
                read[name] = used
            else:
                # `pulumi config set` makes a number of digits, also of those of a commit.
                text = _name(value) == "integer" and "string" in keys[name].types
                fix = f"pulumi config set {'--type string ' if text else ''}--path '{{key}}' VALUE"
                problems.append(Problem(path, value, keys[name].describe(), fix))
    for name, key in keys.items():
        if key.required and name not in given:
            fix = "pulumi config set --path '{key}' VALUE"
            problems.append(Problem(f"{prefix}.{name}", None, key.describe(), fix))
    return read, problems


@cache
def schema(name: str) -> Mapping[str, Key]:
    """Keys of a library's configuration class: `sft`, `lora` or `quantization`."""
    path = Path(__file__).parent / "schema" / f"{name}.json"
    loaded = json.loads(path.read_text(encoding="utf-8"))["keys"]
    return {
        key: Key(tuple(rule["types"]), tuple(rule.get("choices", ())))
        for key, rule in loaded.items()
    }


def bounded(keys: Mapping[str, Key], bounds: Mapping[str, Bound]) -> dict[str, Key]:
    """`keys` with limits that the library itself checks late or not at all."""
    return {
        name: Key(key.types, key.choices, bounds.get(name), key.required)
        for name, key in keys.items()
    }


def keys_of(section: type) -> dict[str, Key]:
    """Rules of one of our own sections, read from a dataclass's annotations."""
    hints = typing.get_type_hints(section, include_extras=True)
    return {
        field.name: key_of(
            hints[field.name],
            required=field.default is MISSING and field.default_factory is MISSING,
        )
        for field in fields(section)
    }


def key_of(hint: Any, *, required: bool = False) -> Key:
    """The rule of one annotation: a union of simple types, lists, mappings, literals, bounds."""
    kinds: list[str] = []
    choices: list[str] = []
    bound: Bound | None = None
    pending: list[Any] = [hint]
    while pending:
        part = pending.pop(0)
        origin = typing.get_origin(part)
        if origin is typing.Annotated:
            part, *extras = typing.get_args(part)
            bound = next((extra for extra in extras if isinstance(extra, Bound)), bound)
            pending.insert(0, part)
        elif origin in (typing.Union, types.UnionType):
            pending[:0] = typing.get_args(part)
        elif origin is typing.Literal:
            literals = typing.get_args(part)
            kinds += [_name(literal) for literal in literals]
            choices += [literal for literal in literals if isinstance(literal, str)]
        else:
            kinds.append(_kind(origin or part))
    return Key(tuple(dict.fromkeys(kinds)), tuple(choices), bound, required)


def _kind(kind: Any) -> str:
    simple = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}
    if kind in simple:
        return simple[kind]
    if isinstance(kind, type) and issubclass(kind, Mapping):
        return "mapping"
    if isinstance(kind, type) and issubclass(kind, list | tuple):
        return "list"
    raise TypeError(f"no rule for the annotation {kind!r}")


def _name(value: object) -> str:
    if value is None:
        return "null"
    for kind, name in (
        (bool, "boolean"),
        (int, "integer"),
        (float, "number"),
        (str, "string"),
        (Mapping, "mapping"),
    ):
        if isinstance(value, kind):
            return name
    return "list" if isinstance(value, list | tuple) else type(value).__name__


def _number(text: str, kinds: tuple[str, ...]) -> int | float | None:
    try:
        if "integer" in kinds and text.strip().lstrip("+-").isdigit():
            return int(text)
        return float(text) if "number" in kinds else None
    except ValueError:
        return None
