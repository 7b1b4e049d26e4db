"""Problems in a configuration, told all at once. Standard library only, so that preview can use it.

A problem names the key, what was given, what is allowed and the command that mends it. Readers of
a configuration collect problems and raise one `ConfigError` at the end: a user mends everything in
one go, before any machine exists.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

EXIT_CODE = 78
"""EX_CONFIG of sysexits.h: the Job's podFailurePolicy does not retry it."""


TOKEN = re.compile(r"\bhf_[A-Za-z0-9]{8,}")
"""A Hugging Face token, which may stand under any key and must not be repeated in a log."""

PLAIN = re.compile(r"[\w-]+")
LAST_PART = re.compile(r'(?:\["[^"]*"\]|[^.:"\[\]]*)$')


def under(prefix: str, key: object) -> str:
    """The path of `key` below `prefix` as `pulumi config set --path` takes it."""
    return f"{prefix}.{key}" if PLAIN.fullmatch(str(key)) else f'{prefix}["{key}"]'


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a configuration.

    Attributes:
        key: path of the key, with dots: `trainer.sft.learning_rate`.
        value: what was given (None when it is missing).
        allowed: what is allowed, as a phrase that follows "allowed: ".
        fix: the command that mends it; `{key}` stands for the full key and `{group}` for what is
            before its last part.
    """

    key: str
    value: object
    allowed: str
    fix: str = ""

    def under(self, prefix: str) -> Problem:
        """The same problem seen from a level above: its key gets `prefix` and a dot."""
        return dataclasses.replace(self, key=f"{prefix}.{self.key}")

    def __str__(self) -> str:
        lines = [self.key, f"    given:   {_shown(self.value)}", f"    allowed: {self.allowed}"]
        if self.fix:
            group = LAST_PART.sub("", self.key)
            group = group if group.endswith((".", ":")) else f"{group}."
            fix = self.fix.replace("{key}", self.key).replace("{group}", group)
            lines.append(f"    fix:     {fix}")
        return TOKEN.sub("hf_(hidden)", "\n".join(lines))


class ConfigError(ValueError):
    """A configuration that cannot be used; its text lists every problem.

    Attributes:
        problems: all that was found, in the order in which it was found.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        count = len(self.problems)
        head = f"{count} problem{'' if count == 1 else 's'} in the configuration"
        super().__init__("\n\n".join([head, *map(str, self.problems)]))


def merge(defaults: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """`defaults` with `overrides` laid over them.

    Mappings merge key by key, anything else (lists too) replaces what was there. Nothing in place
    of a mapping, which is how YAML reads a section whose lines are all comments, leaves it as it
    is. Neither argument is changed.
    """
    merged: dict[str, Any] = {key: _copied(value) for key, value in defaults.items()}
    for key, value in overrides.items():
        below = merged.get(key)
        if isinstance(below, Mapping) and value is None:
            continue
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            merged[key] = merge(cast("Mapping[str, Any]", below), cast("Mapping[str, Any]", value))
        else:
            merged[key] = _copied(value)
    return merged


# What other tools, or earlier versions of these libraries, call the same thing.
ELSEWHERE = {
    "alpha": "lora_alpha",
    "batch_size": "per_device_train_batch_size",
    "dropout": "lora_dropout",
    "epochs": "num_train_epochs",
    "gradient_checkpointing": "activation_checkpointing",
    "lr": "learning_rate",
    "max_seq_length": "max_length",
    "rank": "r",
}


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` was probably meant to be, or None."""
    names = list(known)
    if ELSEWHERE.get(name) in names:
        return ELSEWHERE[name]
    found = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return found[0] if found else None


def rename(near: str | None, value: object) -> str:
    """The command that gives a misspelled key its right name; without one, that takes it out."""
    remove = "pulumi config rm --path '{key}'"
    if near is None:
        return remove
    sets = [
        f"pulumi config set --path '{{group}}{near}{path}' {_word(leaf)}"
        for path, leaf in _leaves(value)
    ]
    return " && ".join([remove, *sets])


def _leaves(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """The plain values inside `value`, with their paths below it; nothing (null) has none."""
    if isinstance(value, Mapping):
        for key, item in cast("Mapping[object, object]", value).items():
            yield from _leaves(item, under(path, key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(cast("Sequence[object]", value)):
            yield from _leaves(item, f"{path}[{index}]")
    elif value is not None:
        yield path, value


def _word(value: object) -> str:
    """A value as a shell hands it to `pulumi config set`."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"-- {shlex.quote(text)}" if text.startswith("-") else shlex.quote(text)


def unknown_key(
    prefix: str, key: str, value: object, known: Iterable[str], beside: Iterable[str] = ()
) -> Problem:
    """The problem of a key that nothing reads, with the known one that it resembles.

    That one is not written over where it is among `beside`, the keys that were given too.
    """
    names = sorted(known)
    near = closest(key, names)
    if key.partition(".")[0] in names:
        near = key  # sft.learning_rate as one word: a level is missing, not a letter wrong
    path = under(prefix, key) if prefix else key
    if near is not None and near in beside:
        allowed = f"no such key; {near}, which is given too, stays: remove this one"
        return Problem(path, value, allowed, rename(None, value))
    if near is not None:
        allowed = f"no such key; did you mean {near.replace('.', ': ')}?"
    else:
        shown = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
        allowed = f"no such key; known here: {shown}"
    return Problem(path, value, allowed, rename(near, value))


def _shown(value: object) -> str:
    if value is None:
        return "nothing"
    text = repr(value)
    return text if len(text) <= 200 else text[:197] + "..."


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _copied(v) for k, v in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_copied(v) for v in cast("Sequence[Any]", value)]
    return value


def refuse(error: Exception) -> int:
    """Tell why a run cannot start and return the exit status that says so.

    torchrun turns every exit status of a worker into 1, so the status alone does not reach the
    Job: where GEMMA_CONFIG_ERROR_FILE names a file, its presence says the same to the container's
    wrapper, and the Job does not retry what a retry cannot mend.
    """
    print(f"\n{error}\n", file=sys.stderr, flush=True)
    marker = os.environ.get("GEMMA_CONFIG_ERROR_FILE")
    if marker:
        Path(marker).touch()
    return EXIT_CODE
