"""docs/accelerators.md follows from the table of machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from workloads import reference
from workloads.accelerators import ACCELERATORS


def test_the_page_is_fresh() -> None:
    assert reference.main(["--check"]) == 0, "run `python -m workloads.reference`"


def test_every_machine_of_every_accelerator_is_listed() -> None:
    page = reference.page()
    for row in ACCELERATORS.values():
        assert f"| `{row.name}` |" in page
        for gpus, shape in row.shapes.items():
            assert f"| {gpus} | {shape.machine} | {gpus} x {row.gpu_memory_gib} GiB |" in page


def test_a_stale_page_is_told_and_written_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reference, "PAGE", tmp_path / "accelerators.md")
    assert reference.main(["--check"]) == 1
    assert "accelerators.md is stale" in capsys.readouterr().err
    assert reference.main([]) == reference.main(["--check"]) == 0
