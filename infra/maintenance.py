"""What GKE demands of a maintenance window and its exclusions, known before it is asked.

https://cloud.google.com/kubernetes-engine/docs/concepts/maintenance-windows-and-exclusions
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from datetime import datetime, timedelta

from infra.schema import Exclusion, Maintenance, Settings
from training.common.config import Problem

KEY = "gemma:cluster.maintenance"
SET = "pulumi config set --path '{key}' "
SPAN = timedelta(days=32)
LEAST, LEAST_AT_ONCE = timedelta(hours=48), timedelta(hours=4)  # in each such span
DAYS = {"MO", "TU", "WE", "TH", "FR", "SA", "SU"}
LIMITS: Mapping[str, timedelta] = {"NO_UPGRADES": timedelta(days=30)}
MOST_WITHOUT_UPGRADES = 3


def problems(settings: Settings) -> list[Problem]:
    """All that is wrong with the stack's window and its exclusions."""
    maintenance = settings.cluster.maintenance
    found = _span_problem("", maintenance.start, maintenance.end) or _window_problems(maintenance)
    for index, exclusion in enumerate(maintenance.exclusions):
        limit = LIMITS.get(exclusion.scope)
        place = f".exclusions[{index}]"
        if exclusion.end or limit:
            found += _span_problem(place, exclusion.start, exclusion.end, limit)
    return found + _exclusion_problems(maintenance.exclusions)


def _span_problem(
    place: str, start: str, end: str | None, limit: timedelta | None = None
) -> list[Problem]:
    begins = datetime.fromisoformat(start)
    length = datetime.fromisoformat(end) - begins if end else timedelta.max
    if timedelta(0) < length <= (limit or timedelta.max):
        return []
    within = f", at most {limit.days} days" if limit else ""
    example = (begins + timedelta(days=1)).isoformat().replace("+00:00", "Z")
    return [Problem(f"{KEY}{place}.end", end, f"a time after {start}{within}", SET + example)]


def _window_problems(maintenance: Maintenance) -> list[Problem]:
    """Whether the window comes often enough for GKE, which counts no shorter ones."""
    length = datetime.fromisoformat(maintenance.end) - datetime.fromisoformat(maintenance.start)
    given_parts = (part.partition("=") for part in maintenance.recurrence.split(";"))
    parts = {name: value for name, _, value in given_parts}
    days, interval = parts.get("BYDAY", "MO").split(","), parts.get("INTERVAL", "1")
    key, rule = f"{KEY}.recurrence", maintenance.recurrence
    example = "FREQ=WEEKLY;BYDAY=SA,SU"
    if not DAYS.issuperset(days) or not interval.isdigit() or int(interval) < 1:
        allowed = f"BYDAY of {', '.join(sorted(DAYS))} and an INTERVAL of 1 or more"
        return [Problem(key, rule, allowed, f"{SET}'{example}'")]
    daily = parts["FREQ"] == "DAILY" and "BYDAY" not in parts
    times = SPAN.days / int(interval) * (1 if daily else len(set(days)) / 7)
    if length >= LEAST_AT_ONCE and length * times >= LEAST:
        return []
    given = f"{rule}, each time {length}"
    allowed = "at least 48 hours in any 32 days, in windows of at least 4 hours"
    fix = f"{SET}'{example}' && pulumi config set --path '{KEY}.end' "
    later = datetime.fromisoformat(maintenance.start) + timedelta(hours=12)
    return [Problem(key, given, allowed, fix + later.isoformat().replace("+00:00", "Z"))]


def _exclusion_problems(exclusions: tuple[Exclusion, ...]) -> list[Problem]:
    found: list[Problem] = []
    names = [exclusion.name for exclusion in exclusions]
    for index, name in enumerate(names):
        if name in names[:index]:
            allowed = "a name that no other exclusion has"
            fix = f"{SET}{shlex.quote(f'{name}-{index + 1}')}"
            found.append(Problem(f"{KEY}.exclusions[{index}].name", name, allowed, fix))
    complete = [index for index, e in enumerate(exclusions) if e.scope == "NO_UPGRADES"]
    for index in complete[MOST_WITHOUT_UPGRADES:]:
        allowed = f"another scope: GKE takes {MOST_WITHOUT_UPGRADES} exclusions of this one"
        key = f"{KEY}.exclusions[{index}].scope"
        found.append(Problem(key, "NO_UPGRADES", allowed, f"{SET}NO_MINOR_OR_NODE_UPGRADES"))
    return found
