"""The text trainer's memory and speed, as ratios.

    make bench            or    pytest -q -s tests/bench/text.py            (about ten minutes)

Host memory: a random Gemma 4 of 1 GB on eight ranks, in copies of the model, less what the same run
takes on a model of next to nothing. Told apart: memory that only the processes can give back (on
CPUs the shards; on GPUs these are not the host's), and pages of the file that rank 0 reads, which
the kernel can take back; until the weights are sharded, and in the first step (gathered layers and
activations, which on GPUs are not the host's either).

Packing: real tokens a second of the same rows, packed against padded. What it costs is attention
over the whole sequence, a third of a layer's work at width 1,024 and a fifteenth in Gemma 4 31B.
"""

from __future__ import annotations

import json
import re
import statistics
import time
from collections import Counter
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


def held(launcher: int) -> dict[str, int]:
    """Bytes of the launcher's workers together: a page that several share counts once (PSS)."""
    total = {"Pss_Anon": 0, "Pss_File": 0}
    try:
        workers = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    except OSError:
        return total
    for pid in workers:
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue  # it has ended meanwhile
        for kind in total:
            found = re.search(rf"^{kind}:\s+(\d+) kB", text, re.MULTILINE)
            total[kind] += int(found[1]) * 1024 if found else 0
    return total


def test_host_memory_of_eight_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Else glibc keeps what was freed (16 GB here), and the peak says more of it than of the model.
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", str(2**20))
    peaks: dict[str, Counter[tuple[str, str]]] = {"small": Counter(), "large": Counter()}
    size = 0
    for name, model in (("small", SMALL), ("large", LARGE)):
        log, peak = tmp_path / name / "log", peaks[name]

        # To the end of the first step. To generate, each rank holds the model whole on its GPU.
        def watch(launcher: int, log: Path = log, peak: Counter[tuple[str, str]] = peak) -> bool:
            said = log.read_text()
            phase = "first step" if "weights sharded over" in said else "loading"
            for kind, now in held(launcher).items():
                peak[phase, kind] = max(peak[phase, kind], now)
            return "step 1/" in said

        # An adapter is whole on each rank until it is sharded. Of rank 16 it would be 5 % of this
        # small model, where it is less than 1 % of a 31B one.
        size = train(tmp_path / name, RANKS, model, watch, lora={"r": 1})
    print(f"\n{RANKS} ranks, model of {size / 1e9:.2f} GB; peaks over all ranks together:")
    names = {"Pss_Anon": "held", "Pss_File": "mapped from the file"}
    for phase, kind in peaks["large"]:
        large, small = (peaks[name][phase, kind] for name in ("large", "small"))
        print(
            f"{phase}, {names[kind]}: {(large - small) / size:.2f} copies "
            f"({large / 1e9:.2f} GB, {small / 1e9:.2f} GB without the model)"
        )


@pytest.mark.parametrize(("hidden", "layers"), [(256, 8), (1024, 2)])
def test_packed_against_padded(tmp_path: Path, hidden: int, layers: int) -> None:
    speeds: dict[bool, float] = {}
    for packing in (True, False):
        folder = tmp_path / f"packing-{packing}"
        # Both put 2,048 positions a step through the model: two full sequences, or eight rows.
        batch = {"max_length": 1024, "per_device_train_batch_size": 2} if packing else {
            "max_length": 1024, "per_device_train_batch_size": 8}  # fmt: skip
        sft = {**batch, "packing": packing, "max_steps": 12}
        changes = {"sft": sft, "data": {"accumulate": "sequences"}}
        train(folder, 1, (hidden, layers), lambda pid: False, **changes)
        lines = [json.loads(x) for x in (folder / "out" / "metrics.jsonl").read_text().splitlines()]
        steps = [line for line in lines if "loss" in line][2:]
        speeds[packing] = statistics.median(s["tokens"] / s["seconds_per_step"] for s in steps)
        padding = sum(s["padding"] for s in steps) / sum(s["tokens"] + s["padding"] for s in steps)
        print(f"\npacking {packing}: {speeds[packing]:.0f} real tokens/s, {padding:.0%} padding")
    ratio = speeds[True] / speeds[False]
    print(f"width {hidden}: packed {ratio:.2f} times the tokens a second of padded")
