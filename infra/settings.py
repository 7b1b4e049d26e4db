"""Reads the stack's configuration: the only reader of Pulumi's config.

Every problem is collected before one error is raised, so a user mends a configuration in
one go and nothing is created from half of it.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pulumi
from pulumi.runtime import config as pulumi_config
from pydantic import ValidationError

from infra.environments import ENVIRONMENTS
from infra.fields import BUCKET, PROJECT, REGION, ZONE
from infra.problems import NAMESPACE, StackConfigError, key_of, problem, unknown, without
from infra.schema import Settings
from training.common.config import Problem, merge

TOKEN = f"{NAMESPACE}:huggingFaceToken"
SECRET = f"{NAMESPACE}:huggingFaceSecret"
KEYS = [f.alias or name for name, f in Settings.model_fields.items() if not f.exclude]
"""The keys of the namespace, as a user writes them, but for the token."""

Rule = Callable[[Settings], Iterable[Problem]]


def load_settings(rules: Sequence[Rule] = ()) -> Settings:
    """The stack's settings.

    Args:
        rules: further checks of the whole, such as `workloads.problems`.

    Raises:
        StackConfigError: with the problems of every key and of every rule.
    """
    values = _stack_config()
    given, problems = _decode(values)
    problems += _token_problems(values)
    project, region, stack = values.get("gcp:project"), values.get("gcp:region"), pulumi.get_stack()
    problems += _place_problems(project, region, stack)
    token = values.get(TOKEN)
    settings, found = _validate(
        given,
        project=project or "",
        region=region or "",
        stack=stack,
        huggingFaceToken=pulumi.Output.secret(token) if token else None,
    )
    problems += found
    if settings:
        for rule in (_network_problems, _bucket_problems, _maintenance_problems, *rules):
            problems += rule(settings)
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
        problems += [problem(d, Settings) for d in details if key_of(d) not in seen]
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
    for full_key, text in values.items():
        namespace, _, key = full_key.partition(":")
        if namespace != NAMESPACE or full_key == TOKEN:
            continue
        if key not in KEYS:
            # A misspelled token must not be repeated in a log.
            hidden = pulumi_config.is_config_secret(full_key) or text.startswith("hf_")
            problems.append(unknown(full_key, text, [*KEYS, "huggingFaceToken"], hidden=hidden))
        elif pulumi_config.is_config_secret(full_key):
            allowed = f"no secret ({TOKEN} alone may be one): Google stores this in the clear"
            problems.append(
                Problem(full_key, "(secret)", allowed, f"pulumi config rm '{full_key}'")
            )
        else:
            given[key] = _structured(text)
    return given, problems


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
        allowed = "the id of a Google Cloud project, 6 to 30 lower-case letters, digits, '-'"
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


def _network_problems(settings: Settings) -> list[Problem]:
    network = settings.network
    problems: list[Problem] = []
    both = "both network.name and network.subnetwork, or none of them"
    fix = "pulumi config set --path '{key}' NAME"
    if network.name and not network.subnetwork:
        problems.append(Problem("gemma:network.subnetwork", None, both, fix))
    if network.subnetwork and not network.name:
        problems.append(Problem("gemma:network.name", None, both, fix))
    if (network.pods_range is None) != (network.services_range is None):
        missing = "podsRange" if network.pods_range is None else "servicesRange"
        problems.append(
            Problem(f"gemma:network.{missing}", None, "both secondary ranges, or none of them", fix)
        )
    if not network.name:
        ranges = {
            "cidr": network.cidr,
            "podsCidr": network.pods_cidr,
            "servicesCidr": network.services_cidr,
        }
        parsed = {key: ipaddress.ip_network(value) for key, value in ranges.items()}
        names = list(ranges)
        for index, key in enumerate(names):
            for other in names[:index]:
                if parsed[key].overlaps(parsed[other]):
                    problems.append(
                        Problem(
                            f"gemma:network.{key}",
                            ranges[key],
                            f"a range apart from network.{other} ({ranges[other]})",
                            "pulumi config set --path '{key}' 10.32.0.0/16",
                        )
                    )
    return problems


def _bucket_problems(settings: Settings) -> list[Problem]:
    """A second bucket, NAME-builds, holds build contexts: the longer name must fit too."""
    name = f"{settings.bucket_name}-builds"
    if not settings.project or (BUCKET.fullmatch(name) and len(name) <= 63):
        return []  # without a project, whose lack is told already, the name is not known yet
    allowed = "at most 56 characters (NAME-builds is made beside it)"
    fix = "pulumi config set --path '{key}' NAME"
    return [Problem("gemma:bucket.name", settings.bucket_name, allowed, fix)]


def _maintenance_problems(settings: Settings) -> list[Problem]:
    maintenance = settings.cluster.maintenance
    spans: list[tuple[str, str, str | None, timedelta | None]] = [
        ("", maintenance.start, maintenance.end, None)
    ]
    for index, exclusion in enumerate(maintenance.exclusions):
        limit = timedelta(days=30) if exclusion.scope == "NO_UPGRADES" else None
        spans.append((f".exclusions[{index}]", exclusion.start, exclusion.end, limit))
    problems: list[Problem] = []
    for place, start, end, limit in spans:
        begins = datetime.fromisoformat(start)
        length = datetime.fromisoformat(end) - begins if end else timedelta.max
        if length <= timedelta(0) or (limit is not None and length > limit):
            within = f", at most {limit.days} days" if limit else ""
            problems.append(
                Problem(
                    f"gemma:cluster.maintenance{place}.end",
                    end,
                    f"a time after {start}{within}",
                    "pulumi config set --path '{key}' "
                    + (begins + timedelta(days=1)).isoformat().replace("+00:00", "Z"),
                )
            )
    return problems
