"""Fixtures of the unit tests."""

from __future__ import annotations

import pytest

from tests.unit import program


@pytest.fixture
def declare():
    """Runs the program on Pulumi's mocks; returns what it declared (tests/unit/program.py)."""
    return program.run
