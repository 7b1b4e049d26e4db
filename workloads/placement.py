"""Where a run's pods may land and what they take there: node selectors and resource requests.

No toleration is set anywhere. Autopilot adds those for GPUs and Spot to the pods whose requests and
selectors ask for them, and its admission refuses a GPU toleration on any other pod (skypilot#4542).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from training.common.config import Problem, closest
from workloads.accelerators import (
    ACCELERATORS,
    BOOT_DISK_GIB,
    CPU_SHARE,
    DISK_SHARE,
    FLEX_START_VERSION,
    MAX_DISK_GIB,
    MEMORY_SHARE,
    Accelerator,
    version_key,
)

CAPACITIES = ("reservation", "spot", "flex-start", "on-demand")
RESERVATION_FORMS = (
    "NAME, projects/P/reservations/NAME or projects/P/reservations/NAME/reservationBlocks/BLOCK"
)
_NAME = r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?"
_PROJECT = r"[a-z][-a-z0-9]{4,28}[a-z0-9]"
_RESERVATION = re.compile(
    rf"(?:projects/(?P<project>{_PROJECT})/reservations/)?(?P<name>{_NAME})"
    rf"(?:/reservationBlocks/(?P<block>{_NAME})(?:/reservationSubBlocks/(?P<subblock>{_NAME}))?)?"
)


class PlacementSettings(Protocol):
    """What placement reads of the stack's settings."""

    @property
    def project(self) -> str: ...
    @property
    def accelerator(self) -> str: ...
    @property
    def capacity(self) -> str: ...
    @property
    def reservation(self) -> str | None: ...


@dataclass(frozen=True)
class Reservation:
    """A Compute Engine reservation; `project` is None when it is the cluster's own."""

    name: str
    project: str | None = None
    block: str | None = None
    subblock: str | None = None


@dataclass(frozen=True)
class Placement:
    """What one worker pod asks for.

    Attributes:
        node_selector: labels of the nodes that it may land on.
        gpus: GPUs, 0 on cpu.
        cpu: virtual CPUs.
        memory_gib: memory in GiB.
        disk_gib: ephemeral storage in GiB.
        evictable: the machine may be taken away at any time, so that no promise is asked for.
    """

    node_selector: Mapping[str, str]
    gpus: int
    cpu: int
    memory_gib: int
    disk_gib: int
    evictable: bool = False


def parse_reservation(text: str, project: str) -> Reservation | None:
    """A reservation from its name or path, or None when `text` is neither.

    Args:
        text: one of `RESERVATION_FORMS`.
        project: the cluster's project; a path into it means an own reservation.
    """
    match = _RESERVATION.fullmatch(text)
    if match is None:
        return None
    owner = match["project"]
    return Reservation(
        name=match["name"],
        project=None if owner == project else owner,
        block=match["block"],
        subblock=match["subblock"],
    )


def place(
    accelerator: Accelerator,
    capacity: str,
    reservation: Reservation | None,
    workers: int,
    disk_gib: int,
) -> Placement:
    """The placement of a pod with `workers` processes that needs `disk_gib` of scratch space.

    The combination has passed `problems`.
    """
    if not accelerator.has_gpu:
        selector = {"cloud.google.com/gke-spot": "true"} if capacity == "spot" else {}
        # One CPU a worker, one for Ray's own processes; tiny models need little memory.
        return Placement(
            selector, 0, workers + 1, 4 * workers + 2, min(disk_gib, 10), capacity == "spot"
        )
    shape = accelerator.shapes[workers]
    selector = {
        "cloud.google.com/gke-accelerator": accelerator.name,
        "cloud.google.com/gke-gpu-driver-version": "default",
        **_capacity_labels(capacity, reservation),
    }
    disk = min(disk_gib, disk_room(accelerator, workers))
    if accelerator.local_ssd_by_selector:
        if disk_gib > BOOT_DISK_GIB:
            selector["cloud.google.com/compute-class"] = "Accelerator"
            selector["cloud.google.com/gke-ephemeral-storage-local-ssd"] = "true"
        else:
            disk = disk_gib
    return Placement(
        node_selector=selector,
        gpus=workers,
        cpu=int(shape.vcpus * CPU_SHARE),
        memory_gib=int(shape.memory_gib * MEMORY_SHARE),
        disk_gib=disk,
        evictable=capacity == "spot",
    )


def disk_room(accelerator: Accelerator, workers: int) -> int:
    """The most scratch space, in GiB, that a pod may ask for on the machine with so many GPUs."""
    return min(MAX_DISK_GIB, int(accelerator.shapes[workers].local_ssd_gib * DISK_SHARE))


def _capacity_labels(capacity: str, reservation: Reservation | None) -> dict[str, str]:
    if capacity == "spot":
        return {"cloud.google.com/gke-spot": "true"}
    if capacity == "flex-start":
        return {"cloud.google.com/gke-flex-start": "true"}
    if capacity == "on-demand" or reservation is None:
        return {}
    # A label value holds no '/': project, name and block each have a label of their own.
    labels = {
        "cloud.google.com/reservation-name": reservation.name,
        "cloud.google.com/reservation-affinity": "specific",
        "cloud.google.com/reservation-project": reservation.project,
        "cloud.google.com/reservation-blocks": reservation.block,
        "cloud.google.com/reservation-subblocks": reservation.subblock,
    }
    return {key: value for key, value in labels.items() if value is not None}


def problems(settings: PlacementSettings) -> list[Problem]:
    """All that is wrong with accelerator, capacity and reservation of a stack, in their order."""
    found: list[Problem] = []
    row = ACCELERATORS.get(settings.accelerator)
    if row is None:
        part = settings.accelerator.lower().removeprefix("nvidia-")
        holding = min((name for name in ACCELERATORS if part in name), key=len, default=None)
        near = holding or closest(settings.accelerator, ACCELERATORS) or next(iter(ACCELERATORS))
        found.append(
            Problem(
                "gemma:accelerator",
                settings.accelerator,
                f"one of {', '.join(ACCELERATORS)}",
                f"pulumi config set gemma:accelerator {near}",
            )
        )
    allowed = row.capacities if row else CAPACITIES
    if settings.capacity not in allowed:
        found.append(
            Problem(
                "gemma:capacity",
                settings.capacity,
                f"one of {', '.join(allowed)}" + (f" with {row.name}" if row else ""),
                f"pulumi config set gemma:capacity {allowed[0]}",
            )
        )
    found.extend(_reservation_problems(settings))
    return found


def _reservation_problems(settings: PlacementSettings) -> list[Problem]:
    given = settings.reservation
    if settings.capacity == "reservation" and settings.accelerator != "cpu":
        fix = "pulumi config set gemma:reservation RESERVATION"
        if not given:
            allowed = f"{RESERVATION_FORMS} (capacity is reservation)"
            return [Problem("gemma:reservation", None, allowed, fix)]
        if parse_reservation(given, settings.project) is None:
            return [Problem("gemma:reservation", given, RESERVATION_FORMS, fix)]
    elif given:
        why = (
            "nothing: accelerator cpu has no reservations"
            if settings.accelerator == "cpu"
            else f"nothing: with capacity {settings.capacity} it would be left unused"
        )
        return [Problem("gemma:reservation", given, why, "pulumi config rm gemma:reservation")]
    return []


def minimum_version(settings: PlacementSettings) -> str:
    """Oldest GKE version whose Autopilot serves the stack's accelerator under its capacity."""
    versions = [ACCELERATORS[settings.accelerator].minimum_version]
    if settings.capacity == "flex-start":
        versions.append(FLEX_START_VERSION)
    return max(versions, key=version_key)
