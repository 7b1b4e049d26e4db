"""What no test may depend on: how it was started, and which repository lies around it."""

from __future__ import annotations

import os
import signal

import pytest

#: Inside a hook they name the repository that is committed to, whatever the folder.
OF_A_HOOK = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")


@pytest.fixture(scope="session", autouse=True)
def surroundings(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Ctrl-C as a terminal has it, and no repository around the folders of tests."""
    # A shell without job control starts what is in its background deaf to Ctrl-C, and with it all
    # of its children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in OF_A_HOOK:
        os.environ.pop(name, None)
    os.environ["GIT_CEILING_DIRECTORIES"] = str(tmp_path_factory.getbasetemp())
