"""Turns pydantic's findings about a stack's configuration into problems a user can act on."""

from __future__ import annotations

import copy
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, cast, get_args, get_origin

import pulumi
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from infra.environments import ENVIRONMENTS
from training.common.config import ConfigError, Problem, closest, rename, under

NAMESPACE = "gemma"
#: In place of pydantic's own words, by its type of error.
PHRASES = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "dict_type": "a group of keys",
    "float_parsing": "a number",
    "float_type": "a number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "model_type": "a group of keys",
    "string_type": "text",
    "tuple_type": "a list",
}

#: Types of error of what holds other keys.
GROUPS = ("dict_type", "model_type", "tuple_type")


class StackConfigError(ConfigError, pulumi.RunError):
    """A `ConfigError` that Pulumi prints as it is, without a traceback of the program."""


def key_of(detail: ErrorDetails) -> str:
    """The key as `pulumi config set --path` takes it: gemma:cluster.authorizedNetworks[0].cidr."""
    path = ""
    for part in detail["loc"]:
        if part != "[key]":
            path = f"{path}[{part}]" if isinstance(part, int) else under(path, part)
    return f"{NAMESPACE}:" + path.removeprefix(".")


def problem(
    detail: ErrorDetails, model: type[BaseModel], given: Mapping[str, Any] | None = None
) -> Problem:
    """One of pydantic's findings in our words; `given` is what the user gave, defaults left out."""
    path = [part for part in detail["loc"] if part != "[key]"]
    key = key_of(detail)
    flag = "--path " if len(path) > 1 else ""
    value = cast("object", detail["input"])
    if detail["type"] == "extra_forbidden":
        beside = _group_at(given, path)
        return unknown(key, value, siblings(path, model), beside=beside)
    field = _field(path, model)
    if detail["type"] == "missing":
        choices = _choices(field)
        allowed = " or ".join(map(repr, choices)) or "must be given"
        example = choices[0] if choices else "VALUE"
        return Problem(key, None, allowed, f"pulumi config set --path '{key}' {example}")
    context = detail.get("ctx", {})
    allowed = str(
        context["error"] if "error" in context else context.get("expected", detail["msg"])
    )
    allowed = PHRASES.get(detail["type"], allowed.removeprefix("Input should be "))
    if detail["loc"][-1] == "[key]":
        return Problem(key, path[-1], allowed, _another_name(path, given))
    remove = f"pulumi config rm {flag}'{key}'"
    if detail["type"] in GROUPS:
        if isinstance(value, str) and field and _holds_texts(field):
            again = f"pulumi config set --path '{key}[0]' {shlex.quote(value)}"
            return Problem(key, value, allowed, f"{remove} && {again}")
    elif value is not None or (field and field.is_required()):
        example = _example(detail, _choices(field), _usual(path, field, given or {}))
        return Problem(key, value, allowed, f"pulumi config set {flag}'{key}' {example}")
    return Problem(key, value, allowed, remove)  # what is left out has its default


def _another_name(path: Sequence[str | int], given: Mapping[str, Any] | None) -> str:
    """The command for a name that cannot be: what stands below it moves, and none of it is lost."""
    group = _group_at(given, path)
    name = str(path[-1])
    below = group.get(name)
    fitting = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    if isinstance(below, Mapping) and "." not in name and fitting and fitting not in group:
        return rename(fitting, cast("Mapping[str, Any]", below))
    return "pulumi config rm --path '{key}'"


def _group_at(given: Mapping[str, Any] | None, path: Sequence[str | int]) -> Mapping[str, Any]:
    """What was given around the last part of `path`."""
    group: Any = given or {}
    for part in path[:-1]:
        group = _child(group, part)
    return cast("Mapping[str, Any]", group) if isinstance(group, Mapping) else {}


def _example(detail: ErrorDetails, choices: Sequence[str], usual: object) -> str:
    """A value that is allowed, as a shell takes it: the likeliest one that is known."""
    if near := closest(str(detail["input"]), choices):
        return near
    least = detail.get("ctx", {}).get("ge")  # never the most: it may be thousands of machines
    if least is not None:
        return f"{least:g}"
    if usual is None:
        return choices[0] if choices else "VALUE"
    return shlex.quote(str(usual).lower() if isinstance(usual, bool) else str(usual))


def _choices(field: FieldInfo | None) -> tuple[str, ...]:
    return get_args(field.annotation) if field and get_origin(field.annotation) is Literal else ()


def _holds_texts(field: FieldInfo) -> bool:
    return get_origin(field.annotation) is tuple and _group_in(field.annotation) is None


def _usual(
    path: Sequence[str | int], field: FieldInfo | None, given: Mapping[str, Any]
) -> object | None:
    """The default of a plain value, its environment's where that picks it."""
    found: Any = ENVIRONMENTS.get(str(given.get("environment", "dev")), {})
    for part in path:
        found = _child(found, part)
    if found is None and field is not None:
        found = field.default
    return found if isinstance(found, bool | int | float | str) else None


def unknown(
    full_key: str,
    value: object,
    known: Iterable[str],
    *,
    beside: Iterable[str] = (),
    hidden: bool = False,
) -> Problem:
    """A key that does not exist, with the one that was probably meant.

    Args:
        full_key: with its namespace.
        value: what was given.
        known: the keys that exist there.
        beside: the keys that were given there; the right one among them is not written over.
        hidden: the value is not shown.
    """
    names = sorted(known)
    meant = closest(full_key.replace(":", ".").rsplit(".", 1)[-1], names)
    twice = meant is not None and meant in beside
    hint = f"{meant}, which is given too: remove this one; " if twice else ""
    if meant and not twice:
        hint = f"did you mean {meant}? "
    allowed = f"{hint}known here: {', '.join(names)}"
    move = None if twice else meant
    if hidden:
        again = f" && pulumi config set --secret --path '{{group}}{move}'" if move else ""
        return Problem(full_key, "(hidden)", allowed, rename(None, value) + again)
    return Problem(full_key, value, allowed, rename(move, value))


def siblings(path: Sequence[str | int], model: type[BaseModel]) -> list[str]:
    """The keys that the group around the last part of `path` has."""
    group = model
    for part in path[:-1]:
        group = _below(group, part)
    return [f.alias or name for name, f in group.model_fields.items() if not f.exclude]


def _field(path: Sequence[str | int], model: type[BaseModel]) -> FieldInfo | None:
    """The field at `path`; None for a name in a map or a place in a list."""
    group: type[BaseModel] | None = model
    field: FieldInfo | None = None
    for part in path:
        if field is not None:
            group = _group_in(field.annotation)
        if field is not None and get_origin(field.annotation) in (dict, tuple):
            field = None
        else:
            fields = group.model_fields.items() if group else ()
            field = next((f for name, f in fields if (f.alias or name) == part), None)
    return field


def _below(model: type[BaseModel], part: str | int) -> type[BaseModel]:
    """The group of the field `part`; for a name in a map or a place in a list, the same group."""
    for name, field in model.model_fields.items():
        if (field.alias or name) == part:
            return _group_in(field.annotation) or model
    return model


def _group_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    groups = [_group_in(argument) for argument in get_args(annotation)]
    return next((group for group in groups if group is not None), None)


def without(values: Mapping[str, Any], details: Iterable[ErrorDetails]) -> dict[str, Any]:
    """`values` less what pydantic refused, so that the other checks can still see the rest.

    A group that lacks a required key goes as a whole.
    """
    kept: dict[str, Any] = copy.deepcopy(dict(values))
    for detail in details:
        path = [part for part in detail["loc"] if part != "[key]"]
        if detail["type"] == "missing":
            path = path[:-1]
        group: Any = kept
        for part in path[:-1]:
            group = _child(group, part)
        if isinstance(group, dict) and path:
            cast("dict[Any, Any]", group).pop(path[-1], None)
        elif isinstance(group, list) and path:
            # Later findings in the same list count from the start: empty it rather than shift it.
            cast("list[Any]", group).clear()
    return kept


def _child(group: Any, part: str | int) -> Any:
    if isinstance(group, dict):
        return cast("dict[Any, Any]", group).get(part)
    if isinstance(group, list) and isinstance(part, int):
        items = cast("list[Any]", group)
        return items[part] if part < len(items) else None
    return None
