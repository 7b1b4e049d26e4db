"""Fixtures of the unit tests."""

from __future__ import annotations

import asyncio
import sys

import pytest
from google.rpc import status_pb2
from pulumi.runtime import config, mocks, settings

# pulumi.provider, which the stand-in plugin is made of, has a copy of google.rpc.Status that cannot
# be in one process with Google's own. The program's processes never import it; a test run does.
sys.modules["pulumi.runtime.proto.status_pb2"] = status_pb2

from tests.unit import program, stack_settings  # noqa: E402


@pytest.fixture(autouse=True)
def nothing_of_an_earlier_stack():
    """Pulumi's globals as a new process has them.

    asyncio.run in an earlier test leaves no current event loop, and an earlier program's root
    resource would apply its transformations to this one's resources.
    """
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    settings.ROOT.set(None)
    yield
    # What a program that was stopped by an error left waiting.
    if waiting := asyncio.all_tasks(loop):
        for task in waiting:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*waiting, return_exceptions=True))
    loop.close()


@pytest.fixture
def declare():
    """Runs the program on Pulumi's mocks; returns what it declared (tests/unit/program.py)."""
    return program.run


@pytest.fixture
def no_resources():
    """The stack dev, in which nothing may be declared and nobody asked."""
    mocks.set_mocks(stack_settings.NoResources(), project="gemma", stack="dev")
    yield
    config.set_all_config({}, [])
