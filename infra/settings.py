"""Reads the stack's configuration: the only reader of Pulumi's config.

Every problem is collected before one error is raised, so a user mends a configuration in
one go and nothing is created from half of it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pulumi
from pulumi.runtime import config as pulumi_config
from pydantic import ValidationError

from infra import stack_file
from infra.environments import ENVIRONMENTS
from infra.fields import PROJECT, REGION, ZONE
from infra.problems import NAMESPACE, StackConfigError, key_of, problem, unknown, without
from infra.rules import RULES, Rule
from infra.schema import Settings
from training.common.config import Problem, closest, merge

TOKEN = f"{NAMESPACE}:huggingFaceToken"
SECRET = f"{NAMESPACE}:huggingFaceSecret"
KEYS = [f.alias or name for name, f in Settings.model_fields.items() if not f.exclude]
"""The keys of the namespace, as a user writes them, but for the token."""


def load_settings(rules: Sequence[Rule] = ()) -> Settings:
    """The stack's settings.

    Args:
        rules: further checks of the whole, such as `workloads.problems`.

    Raises:
        StackConfigError: with the problems of every key and of every rule.
    """
    # These first and alone: commands that set what is there in vain would write it twice.
    if in_vain := stack_file.problems(_file()):
        raise StackConfigError(in_vain)
    values = _stack_config()
    given, problems = _decode(values)
    problems += _token_problems(values)
    project, region, stack = values.get("gcp:project"), values.get("gcp:region"), pulumi.get_stack()
    wrong = _place_problems(project, region, stack)
    refused = {found.key for found in wrong}  # and so not known: no rule judges by it
    token = values.get(TOKEN)
    settings, found = _validate(
        given,
        project="" if "gcp:project" in refused else project,
        region="" if "gcp:region" in refused else region,
        stack="" if "stack name" in refused else stack,
        huggingFaceToken=pulumi.Output.secret(token) if token else None,
    )
    problems += [*wrong, *found]
    if settings:
        told = {found.key for found in problems}  # and taken out, so a rule may miss it
        for rule in (*RULES, *rules):
            problems += [found for found in rule(settings) if found.key not in told]
    if problems or settings is None:
        raise StackConfigError(problems)
    return settings


def _validate(given: Mapping[str, Any], **place: Any) -> tuple[Settings | None, list[Problem]]:
    """The model, and what was wrong: where a value is refused, the rest is still checked."""
    environment = str(given.get("environment", "dev"))
    values = {**merge(ENVIRONMENTS.get(environment, {}), given), **place}
    problems: list[Problem] = []
    for _ in range(5):  # taking a value out may uncover one more finding, not many
        try:
            return Settings.model_validate(values, by_alias=True, by_name=False), problems
        except ValidationError as error:
            details = error.errors()
        seen = {found.key for found in problems}  # what was taken out is missing the next time
        problems += [problem(d, Settings, given) for d in details if key_of(d) not in seen]
        values = {**without({**values, **dict.fromkeys(place)}, details), **place}
    return None, problems


def _stack_config() -> dict[str, str]:
    """All keys of the stack, also those that nobody asked for: `pulumi.Config` cannot list them."""
    values = {**pulumi_config.get_config_env(), **pulumi_config.CONFIG.get()}
    return {key: value for key, value in values.items() if value != ""}


def _decode(values: Mapping[str, str]) -> tuple[dict[str, Any], list[Problem]]:
    """The namespace's values by key, structured ones as Python objects."""
    given: dict[str, Any] = {}
    problems: list[Problem] = []
    set_here = _set_here(values)
    for full_key, text in values.items():
        namespace, _, key = full_key.partition(":")
        if full_key == TOKEN:
            continue
        if namespace != NAMESPACE:
            if closest(namespace, [NAMESPACE]):
                problems.append(_misspelled(full_key, key, set_here))
            continue
        if key not in KEYS:
            # A misspelled token must not be repeated in a log.
            hidden = pulumi_config.is_config_secret(full_key) or text.startswith("hf_")
            known = [*KEYS, "huggingFaceToken"]
            problems.append(
                unknown(full_key, _structured(text), known, beside=set_here, hidden=hidden)
            )
        elif pulumi_config.is_config_secret(full_key):
            allowed = f"no secret ({TOKEN} alone may be one): Google stores this in the clear"
            problems.append(
                Problem(full_key, "(secret)", allowed, f"pulumi config rm '{full_key}'")
            )
        else:
            given[key] = _structured(text)
    return given, problems


def _file() -> Path:
    return Path(f"Pulumi.{pulumi.get_stack()}.yaml")


def _set_here(values: Mapping[str, str]) -> set[str]:
    """The keys of the namespace that the user has set.

    The engine hands over Pulumi.yaml's defaults too: what equals them counts where the stack's file
    names it.
    """
    prefix = f"{NAMESPACE}:"
    defaults = {
        prefix + (field.alias or name): str(field.default).lower()
        for name, field in Settings.model_fields.items()
    }
    given = {
        key.removeprefix(prefix)
        for key, text in values.items()
        if key.startswith(prefix) and text not in ("{}", defaults.get(key))
    }
    return given | {key.removeprefix(prefix) for key in stack_file.keys(_file())}


def _misspelled(full_key: str, key: str, set_here: Collection[str]) -> Problem:
    """A key of a namespace that nobody reads. Its value may be a token: it is not repeated."""
    meant, remove = f"{NAMESPACE}:{key}", f"pulumi config rm '{full_key}'"
    if key in set_here:
        allowed = f"{meant}, which is given too: remove {full_key}, which nothing reads"
        return Problem(full_key, "(hidden)", allowed, remove)
    allowed = f"did you mean {meant}? Nothing reads {full_key}"
    fix = f"{remove} && pulumi config set '{meant}' VALUE"
    return Problem(full_key, "(hidden)", allowed, fix)


def _structured(text: str) -> Any:
    """Pulumi hands over lists and maps as JSON, scalars as they are typed."""
    if text.lstrip().startswith(("{", "[")):
        try:
            return json.loads(text)
        except json.JSONDecodeError:
            pass  # the model then says what it wanted in its place
    return text


def _token_problems(values: Mapping[str, str]) -> list[Problem]:
    token = values.get(TOKEN)
    if token is None:
        return []
    problems: list[Problem] = []
    fix = f"pulumi config set --secret {TOKEN}"
    if not pulumi_config.is_config_secret(TOKEN):
        allowed = (
            "a secret. Renew this token at https://huggingface.co/settings/tokens: it was "
            "written in the clear"
        )
        problems.append(Problem(TOKEN, "(plain text)", allowed, fix))
    if token != token.strip() or not token.isprintable():
        problems.append(Problem(TOKEN, "(hidden)", "the token alone: no space, no line end", fix))
    if SECRET in values:
        allowed = f"either this or {TOKEN}"
        problems.append(Problem(SECRET, values[SECRET], allowed, f"pulumi config rm {TOKEN}"))
    return problems


def _place_problems(project: str | None, region: str | None, stack: str) -> list[Problem]:
    problems: list[Problem] = []
    if not project or not PROJECT.fullmatch(project):
        # Never from the environment: a stack must not land in whatever project a shell points at.
        allowed = "the id of a Google Cloud project, 6 to 30 of a-z, 0-9 and '-', a letter first"
        problems.append(
            Problem("gcp:project", project, allowed, "pulumi config set gcp:project PROJECT_ID")
        )
    if not region or not REGION.fullmatch(region):
        zonal = region is not None and ZONE.fullmatch(region) is not None
        example = region[:-2] if region and zonal else "us-central1"
        allowed = "a region (Autopilot clusters have no zone)" if zonal else "a Google Cloud region"
        problems.append(
            Problem("gcp:region", region, allowed, f"pulumi config set gcp:region {example}")
        )
    if not PROJECT.fullmatch(f"gemma-{stack}-trainer"):
        problems.append(
            Problem(
                "stack name",
                stack,
                "at most 16 lower-case letters, digits, '-', last no '-': service accounts are "
                "named after it",
                "pulumi stack rename dev",
            )
        )
    return problems
