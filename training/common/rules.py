"""How a trainer's configuration is checked: key by key, then what is wrong only together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from training.common.config import ConfigError, Problem, merge, unknown_key
from training.common.keys import Key, check
from training.common.sections import read_yaml

Values = Mapping[str, Any]
Rules = Mapping[str, tuple[Mapping[str, Key], Mapping[str, str]]]
"""By section: what its keys may hold, and the keys that a user may not set, with the reason."""

# Starts that leave the base as it is; the others (pissa, olora, …) change it, and the saved adapter
# would be one of a base that nobody has.
LORA_STARTS = ("gaussian", "orthogonal")


def resolve(
    overrides: Values,
    defaults: Path,
    rules: Rules,
    together: Callable[[Values], list[Problem]],
) -> dict[str, Any]:
    """A trainer's defaults with `overrides` laid over them, checked.

    Args:
        overrides: sections of keys, as in the stack's `trainer:`; `run` may be absent.
        defaults: the trainer's config.yaml.
        rules: of its sections.
        together: finds what is wrong only together, once each key is right by itself.

    Returns:
        A mapping of plain values that YAML can hold, sections in the order of `defaults`.

    Raises:
        ConfigError: with every problem; keys read `trainer.<section>.<key>`.
    """
    problems = [
        unknown_key("trainer", name, value, rules)
        for name, value in overrides.items()
        if name not in rules
    ]
    given = merge(read_yaml(defaults), {k: v for k, v in overrides.items() if k in rules})
    resolved: dict[str, Any] = {}
    for name, section in given.items():
        keys, reserved = rules[name]
        given_here = overrides.get(name)
        by_user = list(given_here) if isinstance(given_here, Mapping) else []
        resolved[name], found = check(f"trainer.{name}", section, keys, reserved, by_user)
        problems += found
    if not problems:
        problems = together(resolved)
    if problems:
        raise ConfigError(problems)
    return resolved


def wrong(key: str, value: object, allowed: str) -> Problem:
    """A problem with `<section>.<key>` that another value mends."""
    return Problem(f"trainer.{key}", value, allowed, "pulumi config set --path '{key}' VALUE")


def training(resolved: Values) -> list[Problem]:
    """What is wrong together in the sections `sft` and `lora` of any trainer."""
    problems: list[Problem] = []
    sft, lora = cast("Values", resolved["sft"]), cast("Values", resolved["lora"])
    warm = sft.get("warmup_steps", 0)
    if sft.get("lr_scheduler_type") == "constant" and warm:
        allowed = f"constant_with_warmup, since sft.warmup_steps is {warm} and constant ignores it"
        problems.append(wrong("sft.lr_scheduler_type", "constant", allowed))
    elif sft.get("max_steps") == 1 and warm:
        allowed = f"2 or more with sft.warmup_steps {warm}: the first step of a warm-up has "
        problems.append(wrong("sft.max_steps", 1, allowed + "a learning rate of 0"))
    if sft.get("bf16") and sft.get("fp16"):
        problems.append(wrong("sft.fp16", True, "false while sft.bf16 is true"))
    if (strategy := sft.get("save_strategy", "steps")) not in ("steps", "epoch"):
        allowed = "steps or epoch: a run must be resumable"
        problems.append(wrong("sft.save_strategy", strategy, allowed))
    if sft.get("activation_checkpointing") and sft.get("gradient_checkpointing"):
        allowed = "unset: it is the old name of sft.activation_checkpointing, which is set"
        problems.append(wrong("sft.gradient_checkpointing", True, allowed))
    start = lora.get("init_lora_weights", True)
    if isinstance(start, str) and start not in LORA_STARTS:
        allowed = f"true or one of {', '.join(LORA_STARTS)}: the others change the base as well"
        problems.append(wrong("lora.init_lora_weights", start, allowed))
    if lora.get("modules_to_save") and not lora.get("ensure_weight_tying"):
        allowed = "true with lora.modules_to_save: the tied head would become two copies"
        tied = lora.get("ensure_weight_tying", False)
        problems.append(wrong("lora.ensure_weight_tying", tied, allowed))
    return problems
