"""One running sandbox for the engine tests: a start takes seconds, so they share it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox import Sandbox


@pytest.fixture(scope="session")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A sandbox whose node holds pods as Running and starts no process for them."""
    with Sandbox(tmp_path_factory.mktemp("sandbox"), run_pods=False) as running:
        yield running
