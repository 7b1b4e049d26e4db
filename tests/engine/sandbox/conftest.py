"""Sandboxes that run pods: one for all tests that leave it as they found it, or one's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import Sandbox
from tests.engine.sandbox.kit import give_image, make_namespace


def run(folder: Path) -> Iterator[Sandbox]:
    give_image(folder)
    with Sandbox(folder) as running:
        make_namespace(running)
        yield running


@pytest.fixture(scope="session")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """With an image and the namespace `t`."""
    yield from run(tmp_path_factory.mktemp("cloud"))


@pytest.fixture
def own_cloud(tmp_path: Path) -> Iterator[Sandbox]:
    """The same, for a test that takes its cluster away."""
    yield from run(tmp_path)
