"""Property values of resources: compared, flattened and written as lines of a diff."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

#: How the engine writes values that only exist after a deployment
#: (sdk/go/common/resource/plugin/rpc.go, UnknownStringValue and its siblings).
UNKNOWN = frozenset(
    {
        "1c4a061d-8072-4f0a-a4cb-0ff528b18fe7",
        "3eeb2bf0-c639-47a8-9e75-3b44932eb421",
        "04da6b54-80e4-46f7-96ec-b56ff0331ba9",
        "6a19a0b0-7e62-4c92-b797-7f8e31da9cc2",
        "030794c1-ac77-496b-92df-f27374a8bd58",
        "e48ece36-62e2-4504-bad9-02848725956a",
        "dd056dcd-154b-4c76-9bd3-c8f88648b5ff",
    }
)
#: Marks a mapping as a special value; a secret carries the second text under it.
SIGNATURE = "4dabf18193072939515e22adb298388d"
SECRET = "1b47061264138c4ac30d75fd1eb44270"
#: Properties that say nothing to a reader: the provider's bookkeeping, and what a comment says
#: of each run anyway.
HIDDEN = frozenset({"__defaults", "__internal", "gemma.run/demand"})
LONGEST_LINE = 400


@dataclasses.dataclass(frozen=True)
class Difference:
    """One property that differs; `old` or `new` is `ABSENT` where it is added or removed."""

    path: str
    old: Any
    new: Any


class _Absent:
    def __repr__(self) -> str:
        return "(absent)"


ABSENT = _Absent()


def flatten(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Leaves of nested mappings and lists with their paths (`spec.containers[0].image`), sorted."""
    if isinstance(value, Mapping):
        mapping = cast(Mapping[str, object], value)
        if mapping.get(SIGNATURE) == SECRET:
            yield path, "[secret]"
        elif not mapping:
            yield path, {}
        else:
            for key in sorted(mapping):
                if key not in HIDDEN:
                    yield from flatten(mapping[key], _join(path, key))
    elif isinstance(value, list):
        items = cast(list[object], value)
        if not items:
            yield path, []
        for index, item in enumerate(items):
            yield from flatten(item, f"{path}[{index}]")
    else:
        yield path, value


def _join(path: str, key: str) -> str:
    if not all(c.isalnum() or c in "_-:" for c in key):  # ConfigMap files, annotation keys
        return f'{path}["{key}"]'
    return f"{path}.{key}" if path else key


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Difference]:
    """Leaves that differ between two sets of inputs, sorted by path."""
    before, after = dict(flatten(old)), dict(flatten(new))
    return [
        Difference(path, before.get(path, ABSENT), after.get(path, ABSENT))
        for path in sorted({*before, *after})
        if path and before.get(path, ABSENT) != after.get(path, ABSENT)
    ]


def lines(difference: Difference) -> list[str]:
    """The difference as lines of a diff; texts of several lines are compared line by line."""
    path, old, new = difference.path, difference.old, difference.new
    old_text, new_text = _block(old), _block(new)
    if old_text is not None and new_text is not None:
        body = list(difflib.unified_diff(old_text, new_text, n=1, lineterm=""))[2:]
        return [f"    {path}:", *(f"{line[:1]}     {line[1:]}" for line in body if line[:1] != "@")]
    return [
        *(f"-   {line}" for line in _assignment(path, old)),
        *(f"+   {line}" for line in _assignment(path, new)),
    ]


def _assignment(path: str, value: object) -> list[str]:
    if value is ABSENT:
        return []
    block = _block(value)
    if block is not None:
        return [f"{path}:", *(f"  {line}" for line in block)]
    return [f"{path}: {scalar(value)}"]


def _block(value: object) -> list[str] | None:
    """Lines of a text that is best read as several (YAML files, JSON documents), else None."""
    if not isinstance(value, str):
        return None
    if value.startswith(("{", "[")) and len(value) > LONGEST_LINE:
        try:
            return json.dumps(json.loads(value), indent=1, sort_keys=True).splitlines()
        except ValueError:
            return None
    return value.splitlines() if "\n" in value and not _opaque(value) else None


def _opaque(text: str) -> bool:
    return any(len(line) > 3 * LONGEST_LINE for line in text.splitlines())


def scalar(value: object) -> str:
    """One value on one line; long texts (archives, pickled code) by their length and hash."""
    if isinstance(value, str):
        if value in UNKNOWN:
            return "(known after the deployment)"
        if len(value) > LONGEST_LINE or _opaque(value):
            digest = hashlib.sha256(value.encode()).hexdigest()[:12]
            return f"({len(value)} characters, sha256 {digest})"
        return json.dumps(value, ensure_ascii=False) if "\n" in value else value
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=repr)
