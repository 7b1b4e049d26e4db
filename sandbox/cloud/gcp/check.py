"""Check: what the real provider refuses before it calls Google, and nothing more.

The messages are the provider's, so that a person who searches for one finds the real cause.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from .schema import Property, camel, snake
from .values import DEFAULTS, UNKNOWN, Values

Rule = Callable[[Any], str | None]  # what is wrong with a known value, or None
Rules = Mapping[str, Rule]  # by property path, such as releaseChannel.channel

HEX_DIGITS = 7  # of an automatic name, as the bridge appends them


class Checker:
    """Checks one resource's inputs and fills in defaults; `failures` holds what is wrong."""

    def __init__(self, name: str, table: dict[str, Property], rules: Rules) -> None:
        self.name, self.table, self.rules = name, table, rules
        self.failures: list[str] = []

    def run(self, news: Values, olds: Values, seed: bytes) -> Values:
        """The checked inputs: typed, with defaults, and with an automatic name if none is given."""
        inputs = {key: value for key, value in news.items() if key != DEFAULTS}
        if (prop := self.table.get("name")) and prop.settable and inputs.get("name") is None:
            inputs["name"] = self._automatic_name(olds, seed)
            named = ["name"]
        else:
            named = []
        checked = self._block(self.table, inputs, inputs, "")
        checked[DEFAULTS] = sorted([*checked[DEFAULTS], *named])
        return checked

    def _automatic_name(self, olds: Values, seed: bytes) -> str:
        if "name" in olds.get(DEFAULTS, ()) and isinstance(olds.get("name"), str):
            return olds["name"]
        return f"{self.name}-{hashlib.sha256(seed).hexdigest()[:HEX_DIGITS]}"

    def _fail(self, reason: str, path: str) -> None:
        self.failures.append(f"{reason}. Examine values at '{self.name}.{path}'.")

    def _block(self, table: dict[str, Property], values: Values, root: Values, path: str) -> Values:
        out: Values = {}
        for key, value in values.items():
            if key == DEFAULTS or value is None:
                continue
            prop = table.get(key)
            if prop is None or not prop.settable:
                self._fail(f'Invalid or unknown key "{key}"', path + key)
                continue
            out[key] = self._value(prop, value, root, path + key)
        defaults = [
            prop.name
            for prop in table.values()
            if prop.settable
            and prop.name not in out
            and prop.default_value() is not None
            and not any(self._conflicting(prop, root))
        ]
        for name in defaults:
            out[name] = table[name].default_value()
        for prop in table.values():
            self._combination(prop, out, defaults, root, path)
        out[DEFAULTS] = sorted(defaults)
        return out

    def _combination(
        self, prop: Property, values: Values, defaults: list[str], root: Values, path: str
    ) -> None:
        given = prop.name in values and prop.name not in defaults
        where = path + prop.name
        if prop.required and prop.name not in values:
            self._fail(
                f'Missing required argument. The argument "{snake(prop.name)}" is required, but '
                "no definition was found",
                where,
            )
        if given:
            for other in self._conflicting(prop, root):
                self._fail(
                    f'Conflicting configuration arguments. "{snake(prop.name)}": conflicts with '
                    f"{other}",
                    where,
                )
        if prop.exactly_one and prop.exactly_one[0].split(".")[-1] == snake(prop.name):
            found = [other for other in prop.exactly_one if _lookup(root, other) is not None]
            names = ",".join(prop.exactly_one)
            if not found:
                self._fail(
                    f'Invalid combination of arguments. "{snake(prop.name)}": one of `{names}` '
                    "must be specified",
                    where,
                )
            elif len(found) > 1:
                self._fail(
                    f'Invalid combination of arguments. "{snake(prop.name)}": only one of '
                    f"`{names}` can be specified, but `{','.join(found)}` were specified",
                    where,
                )

    def _conflicting(self, prop: Property, root: Values) -> Iterator[str]:
        return (other for other in prop.conflicts if _lookup(root, other) is not None)

    def _value(  # noqa: PLR0911 - one return for each type
        self, prop: Property, value: Any, root: Values, path: str
    ) -> Any:
        if value is UNKNOWN:
            return value
        if prop.block and isinstance(value, dict):
            return self._block(prop.fields, cast(Values, value), root, path + ".")
        if prop.type in ("List", "Set") and not prop.block:
            if not isinstance(value, list):
                return self._wrong_type("list", value, path)
            return [
                self._item(prop, item, root, f"{path}[{i}]")
                for i, item in enumerate(cast(list[Any], value))
            ]
        if prop.block:
            return self._wrong_type("object", value, path)
        if prop.type == "Map":
            if not isinstance(value, dict):
                return self._wrong_type("object", value, path)
            return {k: self._scalar("String", v, path) for k, v in cast(Values, value).items()}
        return self._ruled(self._scalar(prop.type, value, path), path)

    def _item(self, prop: Property, item: Any, root: Values, path: str) -> Any:
        if item is UNKNOWN or prop.elem == "Any":
            return item
        if prop.fields:
            if not isinstance(item, dict):
                return self._wrong_type("object", item, path)
            return self._block(prop.fields, cast(Values, item), root, path + ".")
        return self._ruled(self._scalar(prop.elem or "String", item, path), path)

    def _ruled(self, value: Any, path: str) -> Any:
        rule = self.rules.get("".join(part.split("]")[-1] for part in path.split("[")))
        if rule and value is not UNKNOWN and (reason := rule(value)):
            self._fail(reason.format(name=snake(path.rsplit(".", 1)[-1])), path)
        return value

    def _scalar(self, type_: str, value: Any, path: str) -> Any:  # noqa: PLR0911 - as above
        if value is UNKNOWN:
            return value
        if type_ == "String":
            if isinstance(value, bool):
                return "true" if value else "false"
            if isinstance(value, str | int | float):
                return str(value)
            if isinstance(value, dict) and ("__asset" in value or "__asset_path" in value):
                return cast(Values, value)
        elif type_ == "Bool":
            if isinstance(value, bool):
                return value
            if value in ("true", "false"):
                return value == "true"
        else:
            if isinstance(value, int | float) and not isinstance(value, bool):
                return value if type_ == "Float" else int(value)
            if isinstance(value, str) and value.lstrip("-").isdigit():
                return int(value)
        names = {"String": "string", "Bool": "boolean", "Int": "number", "Float": "number"}
        return self._wrong_type(names[type_], value, path)

    def _wrong_type(self, expected: str, value: Any, path: str) -> Any:
        found = {str: "string", bool: "boolean", int: "number", float: "number", list: "array"}
        self._fail(f"expected {expected} type, got {found.get(type(value), 'object')} type", path)
        return value


def _lookup(root: Values, path: str) -> Any:
    """The value at a Terraform path such as `remote_repository_config.0.apt_repository`."""
    value: Any = root
    for part in path.split("."):
        if part.isdigit():
            if isinstance(value, list):
                items = cast(list[Any], value)
                value = items[int(part)] if int(part) < len(items) else None
            continue
        if not isinstance(value, dict):
            return None
        fields = cast(Values, value)
        value = fields.get(camel(part), fields.get(camel(part) + "s"))
    return value


def one_of(*allowed: str) -> Rule:
    """The provider's ValidateEnum."""

    def rule(value: Any) -> str | None:
        if value in allowed:
            return None
        options = " ".join(f'"{item}"' for item in allowed)
        return f"expected {{name}} to be one of [{options}], got {value}"

    return rule


def matches(pattern: str, reason: str | None = None) -> Rule:
    """The provider's ValidateRegexp."""
    import re

    compiled = re.compile(pattern)

    def rule(value: Any) -> str | None:
        if compiled.fullmatch(str(value)):
            return None
        shown = pattern.replace("{", "{{").replace("}", "}}")
        return reason or f'"{{name}}" ("{value}") doesn\'t match regexp "^{shown}$"'

    return rule
