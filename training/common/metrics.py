"""Metrics of a run: one JSON line and one line of progress a logging step, and a guard.

The lines go to `metrics.jsonl` in a local folder; `Mirror` copies the file to the run's folder
while the run goes on (a bucket cannot append).
"""

from __future__ import annotations

import json
import math
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from training.common.storage import Folder

METRICS = "metrics.jsonl"
TENSORBOARD = "tensorboard"
# Two copies at once could leave the older one.
_COPYING = threading.Lock()


class DivergedError(RuntimeError):
    """The loss or the gradient is no longer a number, or has exploded."""


class MetricsCallback(TrainerCallback):
    """Writes each log of a TRL or transformers trainer; only the main process writes.

    Args:
        folder: local folder of `metrics.jsonl`; appended to.
        explode: stop when the loss exceeds this many times the lowest so far (and 2 nats above).
    """

    def __init__(self, folder: str | os.PathLike[str], explode: float = 10.0) -> None:
        self.path = Path(folder) / METRICS
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.explode = explode
        self._lowest = math.inf
        self._began = self._last_time = time.monotonic()
        self._first_step = self._last_step = 0
        self._last_tokens = 0.0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self._began = self._last_time = time.monotonic()
        self._first_step = self._last_step = state.global_step

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        logs = dict(logs or {})
        if not state.is_world_process_zero:
            self._guard(logs, state.global_step)
            return
        now = time.monotonic()
        line: dict[str, Any] = {"step": state.global_step, "time": round(time.time(), 3)}
        if "loss" in logs:
            seconds = max(now - self._last_time, 1e-9)
            # `tokens` counts since the last log; TRL's own num_tokens since the start of training,
            # and from 0 again after a resume.
            tokens = float(logs.get("num_tokens", 0.0))
            fresh = logs.get("tokens", tokens - min(self._last_tokens, tokens))
            logs["tokens_per_second"] = round(float(fresh) / seconds, 1)
            logs["seconds_per_step"] = round(
                seconds / max(state.global_step - self._last_step, 1), 4
            )
            self._last_tokens, self._last_time = tokens, now
            self._last_step = state.global_step
        line.update(logs)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        if "loss" in logs:
            print(self._progress(state, logs, now), file=sys.stderr, flush=True)
        elif "eval_loss" in logs:
            self._last_time += logs.get("eval_runtime", 0.0)  # nothing was trained meanwhile
            text = (
                f"step {state.global_step}/{state.max_steps}  held-out loss {logs['eval_loss']:.4f}"
            )
            print(text, file=sys.stderr, flush=True)
        self._guard(logs, state.global_step)

    def _progress(self, state: TrainerState, logs: dict[str, Any], now: float) -> str:
        done = max(state.global_step - self._first_step, 1)
        left = (now - self._began) / done * (state.max_steps - state.global_step)
        parts = [
            f"step {state.global_step}/{state.max_steps}",
            f"loss {logs['loss']:.3f}",
            f"lr {logs.get('learning_rate', 0.0):.1e}",
            f"{logs['tokens_per_second']:.0f} tok/s",
            f"eta {duration(left)}",
        ]
        return "  ".join(parts)

    def _guard(self, logs: dict[str, Any], step: int) -> None:
        for name in ("loss", "grad_norm"):
            if name in logs and not math.isfinite(float(logs[name])):
                raise DivergedError(f"{name} is {logs[name]} at step {step}")
        if "loss" in logs:
            loss = float(logs["loss"])
            if loss > self._lowest * self.explode and loss > self._lowest + 2:
                text = f"loss {loss:.3f} at step {step}, the lowest was {self._lowest:.3f}"
                raise DivergedError(text)
            self._lowest = min(self._lowest, loss)


class Mirror:
    """Copies a growing local file to the run's folder every few seconds, and once at the end.

    Args:
        path: the local file; it need not exist yet.
        folder: the run's folder.
        name: of the copy.
        active: False makes it do nothing (on all processes but one).
        seconds: between copies.
    """

    def __init__(
        self, path: Path, folder: Folder, name: str, *, active: bool = True, seconds: float = 15.0
    ) -> None:
        self.path, self.folder, self.name, self.seconds = path, folder, name, seconds
        self.active = active
        self._stop = threading.Event()
        self._size = -1
        self._thread = threading.Thread(target=self._loop, name=f"mirror-{name}", daemon=True)

    def __enter__(self) -> Mirror:
        if self.active:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if not self.active:
            return
        self._stop.set()
        self._thread.join()
        self.copy()

    def copy(self) -> None:
        """Copy now, if the file has grown since the last time."""
        with _COPYING:
            if self.path.is_file() and self.path.stat().st_size != self._size:
                size = self.path.stat().st_size
                self.folder.write(self.name, self.path.read_bytes())
                self._size = size

    def _loop(self) -> None:
        while not self._stop.wait(self.seconds):
            try:
                self.copy()
            except Exception as error:
                print(f"{self.name} not copied: {error!r}", file=sys.stderr, flush=True)


def keep(local: Path, folder: Folder) -> None:
    """Copy all that was logged so far to the run's folder, ahead of the checkpoint of that step.

    A run that is killed resumes after the checkpoint: no later copy would have what came before.

    Args:
        local: folder of metrics.jsonl and of TensorBoard's events, as far as there are any.
        folder: the run's folder.
    """
    with _COPYING:
        for name in (METRICS, TENSORBOARD):
            if (local / name).exists():
                folder.upload(local / name, name)


def resume_metrics(folder: Folder, local: str | os.PathLike[str], step: int) -> None:
    """Bring the run's earlier lines, up to and including `step`, to the local file."""
    target = Path(local) / METRICS
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        lines = folder.read(METRICS).decode().splitlines()
    except FileNotFoundError:
        lines = []
    kept: list[str] = []
    for line in lines:
        try:
            if json.loads(line)["step"] <= step:
                kept.append(line + "\n")
        except (ValueError, KeyError):
            continue
    target.write_text("".join(kept), encoding="utf-8")


def read_metrics(local: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """All lines of the local metrics.jsonl (empty when there is none)."""
    path = Path(local) / METRICS
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def duration(seconds: float) -> str:
    """`3m10s`, `2h05m`, `45s`."""
    whole = max(0, round(seconds))
    if whole >= 3600:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 60}m{whole % 60:02d}s" if whole >= 60 else f"{whole}s"


def last(local: str | os.PathLike[str], name: str) -> float | None:
    """The last value of a metric in the local metrics.jsonl, or None."""
    values = [line[name] for line in read_metrics(local) if name in line]
    return values[-1] if values else None
