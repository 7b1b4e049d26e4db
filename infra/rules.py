"""What is wrong with settings that are right one by one and do not go together."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable

from infra import maintenance
from infra.fields import BUCKET, SUBNETWORK
from infra.schema import Network, Settings
from training.common.config import Problem

RANGES = {"cidr", "pods_cidr", "services_cidr"}  # of the dedicated network
RANGE_NAMES = {"pods_range", "services_range"}  # of an existing one

Rule = Callable[[Settings], Iterable[Problem]]


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
    subnetwork = SUBNETWORK.fullmatch(network.subnetwork or "")
    if settings.region and subnetwork and subnetwork["region"] not in (None, settings.region):
        allowed = f"a subnetwork in the stack's region, {settings.region}"
        key = "gemma:network.subnetwork"
        problems.append(Problem(key, network.subnetwork, allowed, fix))
    if network.pods_range and network.pods_range == network.services_range:
        allowed = "another range than network.podsRange"
        key = "gemma:network.servicesRange"
        problems.append(Problem(key, network.services_range, allowed, fix))
    unused = RANGES if network.name else RANGE_NAMES if not problems else set[str]()
    for field in sorted(network.model_fields_set & unused):
        key = f"gemma:network.{Network.model_fields[field].alias}"
        owner = "an existing" if network.name else "a dedicated"
        allowed = f"nothing: {owner} network has its own ranges, this would be left unused"
        remove = "pulumi config rm --path '{key}'"
        problems.append(Problem(key, getattr(network, field), allowed, remove))
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


def _endpoint_problems(settings: Settings) -> list[Problem]:
    """The IP endpoint answers the whole internet where nothing says otherwise."""
    if settings.cluster.control_plane == "dns" or settings.cluster.authorized_networks:
        return []
    key = "gemma:cluster.authorizedNetworks"
    allowed = "the address ranges that may use the IP endpoint; 0.0.0.0/0 for all, on purpose"
    command = "pulumi config set --path '{key}[0]."
    fix = f"{command}name' NAME && {command}cidr' RANGE"
    return [Problem(key, None, allowed, fix)]


def _bucket_problems(settings: Settings) -> list[Problem]:
    """A second bucket, NAME-builds, holds build contexts: the longer name must fit too.

    A name with a dot is a domain, whose owner alone may make it; NAME-builds is nobody's domain.
    The default is made of project and stack: where one of them is refused it is not known yet.
    """
    taken, problems = [settings.bucket_name], list[Problem]()
    for index, source in enumerate(settings.bucket.sources):
        if source in taken:
            allowed = "each bucket once, and not the stack's own"
            fix = "pulumi config rm --path '{key}'"
            problems.append(Problem(f"gemma:bucket.sources[{index}]", source, allowed, fix))
        taken.append(source)
    name = f"{settings.bucket_name}-builds"
    known = settings.bucket.name or (settings.project and settings.stack)
    if not known or (BUCKET.fullmatch(name) and len(name) <= 63 and "." not in name):
        return problems
    allowed = "at most 56 characters and no dot (NAME-builds is made beside it)"
    fitting = settings.bucket_name.replace(".", "-")[:56].rstrip("-_")
    fix = f"pulumi config set --path '{{key}}' {fitting}"
    return [*problems, Problem("gemma:bucket.name", settings.bucket_name, allowed, fix)]


def _label_problems(settings: Settings) -> list[Problem]:
    """Google takes 64 labels on a resource; ours and the provider's own are among them."""
    most, reserved = 60, "goog"
    problems = [
        Problem(
            f"gemma:labels.{key}",
            settings.labels[key],
            f"a key that does not begin with {reserved}: those are Google's own",
            "pulumi config rm --path '{key}'",
        )
        for key in settings.labels
        if key.startswith(reserved)
    ]
    if len(settings.labels) > most:
        given, allowed = f"{len(settings.labels)} labels", f"at most {most} labels"
        fix = "pulumi config rm --path '{key}.KEY'"
        problems.append(Problem("gemma:labels", given, allowed, fix))
    return problems


RULES: tuple[Rule, ...] = (
    _network_problems,
    _endpoint_problems,
    _bucket_problems,
    _label_problems,
    maintenance.problems,
)
