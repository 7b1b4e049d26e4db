"""One simulated cluster for all tests of the runs' objects; its start takes ten seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.engine.workloads.simulation import Simulation


@pytest.fixture(scope="session")
def simulation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulation]:
    """The cluster, for tests that leave nothing in it."""
    with Simulation(tmp_path_factory.mktemp("simulation")) as running:
        yield running


@pytest.fixture
def cluster(simulation: Simulation) -> Iterator[Simulation]:
    """The cluster, emptied afterwards."""
    yield simulation
    simulation.clear()
