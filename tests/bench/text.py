"""The text trainer's memory and speed, as ratios.

    make bench            or    pytest -q -s tests/bench/text.py            (about ten minutes)

Host memory: a random Gemma 4 of 1 GB on eight ranks. Prints the peak over all ranks together, less
that of the same run on a model of next to nothing, in copies of the model. On GPUs the shards, the
gathered layers and the activations leave the host; here the shards alone are one more copy in all.

Packing: real tokens a second of the same rows, packed against padded.
"""

from __future__ import annotations

import json
import re
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.training.text_runs import start
from training.common.config import merge
from training.samples import text_model, text_to_sql

RANKS = 8
LARGE = (1536, 22)  # width and layers: 1.0 GB in bfloat16
SMALL = (64, 2)


def train(
    folder: Path,
    processes: int,
    model: tuple[int, int],
    watch: Callable[[int], bool],
    **changes: Any,
) -> int:
    """One short run in `folder`; the size of its model in bytes.

    Args:
        folder: for all that it reads and writes.
        processes: ranks.
        model: width and layers.
        watch: called again and again with the launcher's pid; True ends the run.
        changes: sections of the configuration.
    """
    folder.mkdir()
    text_to_sql.write(folder / "data")
    place = text_model.write(folder / "model", hidden=model[0], layers=model[1])
    config = merge(
        {
            "model": {"model_name_or_path": str(place)},
            "data": {"dataset_name": str(folder / "data"), "train_rows": 400, "held_out_rows": 8},
            "sft": {
                "max_length": 640,
                "max_steps": 2,
                "per_device_train_batch_size": 1,
                "gradient_accumulation_steps": 1,
                "eval_strategy": "no",
            },
            "evaluation": {"rows": 8, "baseline": False, "batch_size": 1, "max_new_tokens": 1},
        },
        changes,
    )
    log = folder / "log"
    with log.open("w") as said:
        (process,) = start(folder, config, processes, log=said)
        ended = False
        while process.poll() is None and not ended:
            ended = watch(process.pid)
            time.sleep(0.05)
        if ended:
            launcher = psutil.Process(process.pid)
            for one in [launcher, *launcher.children(recursive=True)]:
                one.kill()
        code = process.wait()
    assert ended or code == 0, log.read_text()[-3000:]
    return sum(path.stat().st_size for path in place.glob("*.safetensors"))


def proportional(launcher: int) -> int:
    """Bytes of the launcher's workers together: a page that several share counts once (PSS)."""
    total = 0
    try:
        workers = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    except OSError:
        return 0
    for pid in workers:
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue  # it has ended meanwhile
        found = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
        total += int(found[1]) * 1024 if found else 0
    return total


def test_host_memory_of_eight_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Else glibc keeps what was freed (16 GB here), and the peak says more of it than of the model.
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", str(2**20))
    highest: dict[str, int] = {"small": 0, "large": 0}
    size = 0
    for name, model in (("small", SMALL), ("large", LARGE)):
        log = tmp_path / name / "log"

        # To the end of the first step. To generate, each rank holds the model whole on its GPU.
        def watch(launcher: int, name: str = name, log: Path = log) -> bool:
            highest[name] = max(highest[name], proportional(launcher))
            return "step 1/" in log.read_text()

        size = train(tmp_path / name, RANKS, model, watch)
    more = highest["large"] - highest["small"]
    print(
        f"\nmodel {size / 1e9:.2f} GB; peak of {RANKS} ranks {highest['large'] / 1e9:.2f} GB, "
        f"{highest['small'] / 1e9:.2f} GB without it: {more / size:.2f} copies of the model"
    )


def test_packed_against_padded(tmp_path: Path) -> None:
    speeds: dict[bool, float] = {}
    for packing in (True, False):
        folder = tmp_path / f"packing-{packing}"
        # Both put 2,048 positions a step through the model: two full sequences, or eight rows.
        batch = {"max_length": 1024, "per_device_train_batch_size": 2} if packing else {
            "max_length": 1024, "per_device_train_batch_size": 8}  # fmt: skip
        sft = {**batch, "packing": packing, "max_steps": 12}
        changes = {"sft": sft, "data": {"accumulate": "sequences"}}
        train(folder, 1, (256, 8), lambda pid: False, **changes)
        lines = [json.loads(x) for x in (folder / "out" / "metrics.jsonl").read_text().splitlines()]
        steps = [line for line in lines if "loss" in line][2:]
        speeds[packing] = statistics.median(s["tokens"] / s["seconds_per_step"] for s in steps)
        padding = sum(s["padding"] for s in steps) / sum(s["tokens"] + s["padding"] for s in steps)
        print(f"\npacking {packing}: {speeds[packing]:.0f} real tokens/s, {padding:.0%} padding")
    print(f"packed against padded: {speeds[True] / speeds[False]:.2f} times the tokens a second")
