"""The sandbox's folder: one holder at a time, nothing left of it, nothing made by asking."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.folder import REPOSITORY, Folder, SandboxBusyError


def sandbox(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sandbox", "--folder", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, check=False)


def test_who_holds_the_folder_is_said_with_the_ways_out(tmp_path: Path):
    place = Folder(tmp_path / "sandbox")
    held = place.lock()
    place.run.mkdir()
    place.running.write_text('{"starter": 4711}')
    with pytest.raises(SandboxBusyError) as refused:
        place.lock()
    for words in (f"{place.root} is already running (process 4711)", "Ctrl-C", "GEMMA_SANDBOX"):
        assert words in str(refused.value)
    refusal = sandbox(place.root, "clean")
    assert refusal.returncode == 1
    assert str(refused.value) in refusal.stderr
    os.close(held)


def test_clean_leaves_nothing_and_says_so(tmp_path: Path):
    place = Folder(tmp_path / "sandbox")
    os.close(place.lock())
    place.prepare()
    assert f"removed {place.root}" in sandbox(place.root, "clean").stdout
    assert not place.root.exists()
    assert "nothing to remove" in sandbox(place.root, "clean").stdout
    assert not place.root.exists()


def test_a_folder_made_anew_has_one_holder(tmp_path: Path):
    place = Folder(tmp_path / "sandbox")
    first = place.lock()
    waiting = os.open(place.root / "lock", os.O_RDWR)  # as one that came before the removal
    place.remove()
    os.close(first)
    held = place.lock()
    with pytest.raises(SandboxBusyError):
        place.lock()
    assert not os.path.samestat(os.fstat(waiting), os.fstat(held))
    os.close(waiting)
    os.close(held)


def test_looking_at_a_demo_that_never_ran_starts_nothing(tmp_path: Path):
    asked = sandbox(tmp_path / "sandbox", "exec", "--existing", "--", "true")
    assert (asked.returncode, asked.stdout) == (1, "")
    assert "no demo has run in" in asked.stderr
    assert not (tmp_path / "sandbox").exists()
