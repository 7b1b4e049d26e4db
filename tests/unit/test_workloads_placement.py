"""Accelerators table and placement: selectors, requests, refused combinations."""

from __future__ import annotations

import re

import pytest

from infra.schema import Settings
from workloads import minimum_version, placement
from workloads.accelerators import ACCELERATORS, version_key
from workloads.placement import Reservation, parse_reservation, place


def stack(**keys: object) -> Settings:
    return Settings.model_validate(
        {"project": "my-project", "region": "us-central1", "stack": "dev", **keys}, by_name=True
    )


def allocatable(vcpus: int, memory_gib: int) -> tuple[float, float]:
    """What GKE leaves of a machine, by its published formula (CPU, memory in GiB)."""
    reserved, left = 0.0, float(memory_gib)
    for size, share in ((4, 0.25), (4, 0.20), (8, 0.10), (112, 0.06), (float("inf"), 0.02)):
        reserved += min(left, size) * share
        left -= min(left, size)
    cpu_reserved = 0.06 + 0.01 + 0.01 + max(vcpus - 4, 0) * 0.0025
    return vcpus - cpu_reserved, memory_gib - reserved - 0.1


GPU_ROWS = [row for row in ACCELERATORS.values() if row.has_gpu]
SHAPES = [(row, shape) for row in GPU_ROWS for shape in row.shapes.values()]


@pytest.mark.parametrize(("row", "shape"), SHAPES, ids=lambda value: getattr(value, "machine", ""))
def test_requests_fit_the_machine(row, shape):
    found = place(row, "on-demand", None, shape.gpus, 400)
    cpu, memory = allocatable(shape.vcpus, shape.memory_gib)
    assert found.gpus == shape.gpus
    assert 0.5 * cpu < found.cpu < cpu - 0.5
    assert 0.5 * memory < found.memory_gib < memory - 1
    assert 0 < found.disk_gib <= shape.local_ssd_gib


def test_table_matches_what_google_sells():
    assert set(ACCELERATORS) == {
        "nvidia-b200",
        "nvidia-h200-141gb",
        "nvidia-h100-mega-80gb",
        "nvidia-h100-80gb",
        "nvidia-a100-80gb",
        "nvidia-rtx-pro-6000",
        "nvidia-l4",
        "cpu",
    }
    counts = {row.name: row.counts for row in GPU_ROWS}
    assert counts["nvidia-b200"] == counts["nvidia-h200-141gb"] == (8,)
    assert counts["nvidia-h100-mega-80gb"] == (8,)
    assert counts["nvidia-l4"] == counts["nvidia-h100-80gb"] == (1, 2, 4, 8)
    for row in ACCELERATORS.values():
        assert re.fullmatch(r"1\.\d+\.\d+-gke\.\d+", row.minimum_version)


def test_b200_requests_stay_below_what_is_known_to_be_admitted():
    found = place(ACCELERATORS["nvidia-b200"], "spot", None, 8, 5000)
    assert (found.cpu, found.memory_gib, found.disk_gib) <= (220, 2800, 1000)
    assert found.memory_gib <= 2800
    assert found.disk_gib <= 1000


@pytest.mark.parametrize(
    ("row", "capacity"),
    [(row, capacity) for row in ACCELERATORS.values() for capacity in row.capacities],
    ids=lambda value: getattr(value, "name", value),
)
def test_selectors_are_labels_and_never_the_latest_driver(row, capacity):
    reservation = Reservation("r", "other-project", "block-1") if row.has_gpu else None
    found = place(row, capacity, reservation, row.whole_node, 200)
    for key, value in found.node_selector.items():
        assert re.fullmatch(r"[a-z.]+/[a-z-]+", key)
        assert re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", value)
    assert "latest" not in found.node_selector.values()
    reserved = [key for key in found.node_selector if "reservation" in key]
    assert bool(reserved) == (capacity == "reservation" and row.has_gpu)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("my-reservation", Reservation("my-reservation")),
        ("projects/my-project/reservations/r1", Reservation("r1")),
        ("projects/owner-project/reservations/r1", Reservation("r1", "owner-project")),
        (
            "projects/owner-project/reservations/r1/reservationBlocks/b-2",
            Reservation("r1", "owner-project", "b-2"),
        ),
        (
            "projects/owner-project/reservations/r1/reservationBlocks/b/reservationSubBlocks/s",
            Reservation("r1", "owner-project", "b", "s"),
        ),
        ("my-reservation/reservationBlocks/b-2", Reservation("my-reservation", None, "b-2")),
        ("projects/owner-project/r1", None),
        ("projects//reservations/r1", None),
        ("owner-project/r1", None),
        ("My-Reservation", None),
        ("r1/", None),
        ("https://www.googleapis.com/compute/v1/projects/p/zones/z/reservations/r", None),
    ],
)
def test_reservation_forms(text, expected):
    assert parse_reservation(text, "my-project") == expected


def test_a_shared_reservation_gets_a_label_for_each_part():
    reservation = parse_reservation(
        "projects/owner-project/reservations/r1/reservationBlocks/b-2", "my-project"
    )
    found = place(ACCELERATORS["nvidia-b200"], "reservation", reservation, 8, 200)
    assert found.node_selector == {
        "cloud.google.com/gke-accelerator": "nvidia-b200",
        "cloud.google.com/gke-gpu-driver-version": "default",
        "cloud.google.com/reservation-name": "r1",
        "cloud.google.com/reservation-affinity": "specific",
        "cloud.google.com/reservation-project": "owner-project",
        "cloud.google.com/reservation-blocks": "b-2",
    }


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, ["gemma:reservation"]),
        ({"reservation": "a/b"}, ["gemma:reservation"]),
        ({"accelerator": "b200", "reservation": "r"}, ["gemma:accelerator"]),
        ({"accelerator": "b200", "reservation": "a/b"}, ["gemma:accelerator", "gemma:reservation"]),
        ({"capacity": "spot", "reservation": "r"}, ["gemma:reservation"]),
        ({"accelerator": "cpu"}, ["gemma:capacity"]),
        (
            {"accelerator": "cpu", "capacity": "on-demand", "reservation": "r"},
            ["gemma:reservation"],
        ),
        ({"accelerator": "cpu", "capacity": "on-demand"}, []),
        ({"reservation": "r"}, []),
        ({"capacity": "flex-start"}, []),
    ],
)
def test_problems_name_their_key_and_a_fix(keys, expected):
    found = placement.problems(stack(**keys))
    assert [problem.key for problem in found] == expected
    assert all(problem.fix.startswith("pulumi config") for problem in found)


def test_unknown_accelerator_lists_the_known_ones():
    (problem,) = placement.problems(stack(accelerator="nvidia-b100", reservation="r"))
    assert all(name in problem.allowed for name in ACCELERATORS)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("nvidia-h100", "nvidia-h100-80gb"),
        ("H200", "nvidia-h200-141gb"),
        ("nvidia-tesla-a100", "nvidia-a100-80gb"),
        ("l4", "nvidia-l4"),
        ("tpu-v6e", "nvidia-b200"),
    ],
)
def test_the_command_names_the_accelerator_that_was_probably_meant(given, meant):
    (problem,) = placement.problems(stack(accelerator=given, reservation="r"))
    assert problem.fix == f"pulumi config set gemma:accelerator {meant}"


def test_local_ssd_is_asked_for_only_where_the_boot_disk_is_too_small():
    row = ACCELERATORS["nvidia-l4"]
    small = place(row, "on-demand", None, 8, 60)
    large = place(row, "on-demand", None, 8, 180)
    key = "cloud.google.com/gke-ephemeral-storage-local-ssd"
    assert key not in small.node_selector
    assert small.disk_gib == 60
    assert large.node_selector[key] == "true"
    assert large.node_selector["cloud.google.com/compute-class"] == "Accelerator"
    assert large.disk_gib == 180


def test_minimum_version_is_the_newest_that_anything_needs():
    assert minimum_version(stack(reservation="r")) == "1.32.2-gke.1422000"
    assert minimum_version(stack(capacity="flex-start")) == "1.33.0-gke.1712000"
    assert version_key("1.9.0-gke.1") < version_key("1.10.0-gke.1")
