"""Checkpoints of the trainer through Ray Train's storage: complete or not there, resumed exactly.

    <run folder>/checkpoints/step-000020/...            the trainer's own files, RNG of every rank
    <run folder>/checkpoints/step-000020/manifest.json  sizes and SHA-256 of them, written last

Ray Train runs the upload in a thread of rank 0 (the step goes on) and registers the checkpoint at
its controller. Which one a worker resumes from, and which are kept, is decided by the manifests
alone: Ray's register lags behind by a poll, so that a worker killed after a report would lose a
checkpoint, and Ray counts a folder as one whatever it holds.
"""

import random
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from training.common.checkpoints import Checkpoints
from training.common.metrics import keep
from training.common.storage import Folder
from training.gemma3_vision.eviction import Eviction


class RayCheckpoints(TrainerCallback):
    """Hands each saved checkpoint to Ray Train; every rank takes part, rank 0 uploads.

    Args:
        store: the run's checkpoints.
        folder: the run's folder.
        scratch: local folder of metrics.jsonl and TensorBoard's files, which go with a checkpoint:
            the lines before it would be missing after a resume on another node.
    """

    def __init__(self, store: Checkpoints, folder: Folder, scratch: Path) -> None:
        self.store, self.folder, self.scratch = store, folder, scratch
        self.eviction = Eviction()
        self._leaving: int | None = None  # the step whose checkpoint lets this node go

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self.eviction.begin()

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self.eviction.end()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Save at once where any worker's node is to go."""
        import torch
        import torch.distributed as dist

        if self._leaving is not None:
            return
        asked = torch.tensor(int(self.eviction.asked()), device=args.device)
        dist.all_reduce(asked, op=dist.ReduceOp.MAX)
        if asked.item():
            self._leaving, control.should_save = state.global_step, True

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        import torch.distributed as dist
        from ray import train

        local = Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"
        # Each rank wrote its own RNG file on its own disk; rank 0 uploads them all, or dropout on
        # the other nodes would differ after a resume.
        states: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(states, rng_state())
        metrics = {"step": state.global_step, "epoch": state.epoch}
        if not state.is_world_process_zero:
            train.report(metrics, checkpoint_upload_mode=train.CheckpointUploadMode.ASYNC)
            if self._leaving is not None:
                self.eviction.end()  # all that this rank knows is in rank 0's hands
            return
        for rank, value in enumerate(states):
            write_rng(local, rank, len(states), value)
        train.report(
            metrics,
            checkpoint=train.Checkpoint.from_directory(str(local)),
            checkpoint_dir_name=f"step-{state.global_step:06d}",
            checkpoint_upload_mode=train.CheckpointUploadMode.ASYNC,
            checkpoint_upload_fn=self._upload,
            delete_local_checkpoint_after_upload=True,
        )

    def put(self, local: Path, step: int) -> None:
        """Copy a saved checkpoint to the run's folder; if it dies in that, the one before stays."""
        keep(self.scratch, self.folder)
        self.store.upload(local, step)
        # The checkpoint before may still be on its way when this one is asked for.
        if self._leaving is not None and step >= self._leaving:
            self.eviction.end()

    def _upload(self, checkpoint: Any, name: str) -> Any:
        from ray import train

        self.put(Path(checkpoint.path), int(name.removeprefix("step-")))
        storage: Any = train.get_context().get_storage()
        return train.Checkpoint(
            f"{storage.experiment_fs_path}/{name}", filesystem=storage.storage_filesystem
        )


def rng_state() -> dict[str, Any]:
    """This process's random states, in the form that transformers' Trainer saves."""
    import numpy as np
    import torch

    found: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "cpu": torch.random.get_rng_state(),
    }
    if torch.cuda.is_available():
        found["cuda"] = torch.cuda.random.get_rng_state_all()
    return found


def write_rng(folder: Path, rank: int, world: int, state: dict[str, Any]) -> None:
    """Write a rank's random state where the Trainer looks for it."""
    import torch

    torch.save(state, folder / ("rng_state.pth" if world == 1 else f"rng_state_{rank}.pth"))
