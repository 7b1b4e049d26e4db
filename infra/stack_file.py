"""Reads a stack's file before the engine does, and tells what stands in it in vain.

python -m infra.stack_file STACK    exit 1 where something is wrong with it, and what mends that
"""

from __future__ import annotations

import sys
from collections.abc import Hashable
from pathlib import Path
from typing import Any, cast

import yaml
from yaml.constructor import ConstructorError

from training.common.config import ConfigError, Problem

PULUMIS = {"config", "encryptedkey", "encryptionsalt", "environment", "secretsprovider"}

AGAIN = "stands here again"
LEVELS = (
    "`key: value`, indented by spaces alone: as many as the keys beside it, two more than the key "
    "that it belongs to"
)
#: What belongs where the parser stopped, by its words for why.
HINTS = {
    AGAIN: "each key once: join what stands below both, or remove one",
    "'\\t'": "spaces where this line has a tab",
    "undefined alias": "a value that begins with this sign in quotes: `key: '*'`",
    "cannot start": "a value that begins with this sign in quotes: `key: '@'`",
    "a flow mapping": "a `}` that closes the `{` of this line, and commas between",
    "a flow sequence": "a `]` that closes the `[` of this line, and commas between",
    "a quoted scalar": "the quote that closes the one in this line",
    "a simple key": "a colon and a space after the key: `key: value`",
    "mapping values": f"{LEVELS}. Does the line above lack the colon after its key, or a "
    "value that holds `: ` its quotes?",
    "found '<scalar>'": "nothing after a value's closing quote, and each quote above closed",
    "another document": "one document: remove the line `---`",
}
#: Their cause is where the parser began, not where it stopped.
BEGAN = ("a flow mapping", "a flow sequence", "a quoted scalar", "a simple key")


class Loader(yaml.SafeLoader):
    """Refuses a key that stands twice, as the engine does; PyYAML would take the second."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set[str]()
        for key, _ in node.value:
            if str(key.value) in seen:
                raise ConstructorError(
                    problem=f"the key {key.value} {AGAIN}", problem_mark=key.start_mark
                )
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


def read(path: Path) -> dict[str, Any]:
    """What a stack's file holds; empty where nothing stands in it.

    Raises:
        ConfigError: it is no YAML, or no mapping; names the line, its text and what belongs there.
        OSError: there is no such file.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError([Problem(path.name, str(error), "text in UTF-8")]) from None
    try:
        found: Any = yaml.load(text, Loader)
    except yaml.MarkedYAMLError as error:
        raise ConfigError([_told(path.name, text, error)]) from None
    except yaml.YAMLError as error:
        raise ConfigError([Problem(path.name, str(error), "readable text in UTF-8")]) from None
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ConfigError([Problem(path.name, found, "a mapping that begins with `config:`")])
    mapping = cast("dict[str, Any]", found)
    config: object = mapping.get("config")
    if config is not None and not isinstance(config, dict):
        allowed = f"below `config:` in {path.name} {LEVELS}"
        raise ConfigError([Problem("config", config, allowed)])
    return mapping


def _told(file: str, text: str, error: yaml.MarkedYAMLError) -> Problem:
    """The parser's finding in our words."""
    words = f"{error.context} {error.problem}"
    cause = next((part for part in HINTS if part in words), "")
    mark = error.context_mark if cause in BEGAN else error.problem_mark
    number = mark.line if mark else 0
    lines = text.splitlines()
    line = lines[number] if number < len(lines) else "(the end of the file)"
    return Problem(f"{file}, line {number + 1}", line, HINTS.get(cause, LEVELS))


def problems(path: Path) -> list[Problem]:
    """What a stack's file holds in vain; none where there is no such file.

    A key beside `config:`: a line that lost its indentation would otherwise take a run, or all
    settings, with it. And a key without a value, which the engine takes for an empty text.
    """
    try:
        found = read(path)
    except (OSError, ConfigError):  # the engine has told both, or `main` before it
        return []
    beside = [
        Problem(
            str(key),
            f"beside `config:` in {path.name}",
            "below `config:`, two spaces further in: what stands beside it is overlooked",
            f"indent `{key}:` and all that belongs to it in {path.name}, below `config:`",
        )
        for key in found
        if key not in PULUMIS
    ]
    allowed = "a value, or keys below it that stand further in; what is left out has its default"
    empty = [
        Problem(key, None, allowed, "pulumi config rm '{key}'")
        for key, value in cast("dict[str, object]", found.get("config") or {}).items()
        if value is None
    ]
    return beside + empty


def keys(path: Path) -> set[str]:
    """The keys below `config:`, with their namespace; none where the file cannot be read."""
    try:
        return set(cast("dict[str, object]", read(path).get("config") or {}))
    except (OSError, ConfigError):
        return set()


def main(stack: str) -> int:
    """Tells what the engine would name without file, text or remedy, or not at all."""
    path = Path(f"Pulumi.{stack}.yaml")
    try:
        read(path)
        if found := problems(path):
            raise ConfigError(found)
    except OSError:
        return 0  # a new stack has no file, and an unknown one the engine tells
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
