"""What a user sees: paths, what to do, and the time that is left."""

import contextlib
import time
from pathlib import Path

import pytest

import tools
from tools.__main__ import main
from tools.progress import Estimate, duration


def test_path_is_printed_without_any_work(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--path"]) == 0
    assert capsys.readouterr().out.strip() == str(tools.bin_dir())
    assert not base.exists()


def test_unknown_name(capsys: pytest.CaptureFixture[str]) -> None:
    with contextlib.suppress(SystemExit):
        main(["etdc"])
    assert "sets: preview, demo, test" in capsys.readouterr().err


def test_missing_data_say_what_to_do(base: Path) -> None:
    with pytest.raises(FileNotFoundError, match="make tools"):
        tools.share_dir("kuberay/crds")


def test_durations() -> None:
    assert [duration(s) for s in (3.2, 250, 725)] == ["3 s", "4m10s", "12 min"]


def test_time_left_follows_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    estimate = Estimate(total=100, later=50, seconds_per_unit=2)
    assert estimate.left() == 300
    clock[0], estimate.done = 40.0, 10  # twice as slow as measured: half trusted by now
    assert estimate.left() == (2 + 4) / 2 * 140
    clock[0], estimate.done = 200.0, 50
    assert estimate.left() == 4 * 100
