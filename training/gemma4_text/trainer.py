"""TRL's trainer with what a run on many GPUs and a bucket needs: adapters saved whole from shards,
tokens counted, checkpoints uploaded, a signal to stop obeyed."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from trl.trainer.sft_trainer import SFTTrainer

from training.common.checkpoints import Checkpoints

TERMINATED = 143  # 128 + SIGTERM: the Job starts the pod again


class TextTrainer(SFTTrainer):
    """SFTTrainer that saves only the adapter, gathered from all shards, and counts tokens."""

    _counted: torch.Tensor | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Gemma's multimodal classes say False (of their own loss, which is not used here), and each
        # micro-batch would weigh the same, however many tokens it trains. With True the loss is
        # divided by the trained tokens of the global batch, whatever its packing, accumulation or
        # world size.
        self.model_accepts_loss_kwargs = True

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Write the whole adapter, whatever the checkpoints' state dict type is.

        The stock method gathers the frozen base as well (62 GB on rank 0 for Gemma 4 31B) with
        FULL_STATE_DICT, and writes nothing at all, in silence, with SHARDED_STATE_DICT.
        """
        state = gather_trainable(self.model)
        if self.args.should_save:
            self._save(output_dir or self.args.output_dir, state_dict=state)

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        """Nothing, once all steps are done.

        A run that died after its last step (while it was evaluated) resumes with nothing left to
        train. The stock loop looks at max_steps only after a step, so it would train one more.
        """
        if self.state.global_step >= self.state.max_steps:
            self.control.should_training_stop = True
        else:
            super()._run_epoch(*args, **kwargs)

    def training_step(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """One micro-batch; its tokens are added to the counts."""
        counted = count(inputs).to(self.accelerator.device)
        self._counted = counted if self._counted is None else self._counted + counted
        return super().training_step(model, inputs, *args, **kwargs)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log; since the last training log: `tokens` (real), `padding`, `trained_tokens`."""
        if "loss" in logs and self._counted is not None:
            total = self._counted.clone()
            if dist.is_initialized():
                dist.all_reduce(total)
            names = ("tokens", "padding", "trained_tokens")
            logs.update(dict(zip(names, (int(v) for v in total.tolist()), strict=True)))
            self._counted = None
        super().log(logs, start_time)


def count(inputs: dict[str, Any]) -> torch.Tensor:
    """(real tokens, padding, trained tokens) of one micro-batch, int64.

    A token is trained when it is predicted from the one before it in the same document.
    """
    labels, size = inputs["labels"], inputs["input_ids"].numel()
    if "attention_mask" in inputs:
        real = int(inputs["attention_mask"].sum())
    else:
        # Packed: padding repeats position 0 at the end of the row.
        positions = inputs["position_ids"]
        starts = (positions == 0).flatten()
        tail = int(starts.flip(0).long().cumprod(0).sum())
        real = size - max(0, tail - 1 if tail and size > tail else tail)
    trained = int((labels[:, 1:] != -100).sum())
    return torch.tensor([real, size - real, trained], dtype=torch.int64)


def gather_trainable(model: Any) -> dict[str, torch.Tensor]:
    """Trainable parameters by name, whole, on the CPU (empty on ranks other than 0).

    All ranks must call it.
    """
    state: dict[str, torch.Tensor] = {}
    first = not dist.is_initialized() or dist.get_rank() == 0
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            whole = parameter.detach()
            if isinstance(whole, DTensor):
                whole = whole.full_tensor()
            if first:
                state[name] = whole.cpu()
    return state


class Stop:
    """SIGTERM: at once before and after training, after a checkpoint while training."""

    def __init__(self) -> None:
        self.asked = False
        self.training = False
        signal.signal(signal.SIGTERM, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        if not self.training:
            os.write(2, b"SIGTERM: nothing to save\n")
            os._exit(TERMINATED)


class RunCallback(TrainerCallback):
    """Uploads each checkpoint, and ends training in order when the run is told to stop.

    Args:
        checkpoints: of this run; None on ranks that upload nothing (all but one a machine).
        stop: the signal's state.
        device: where the ranks agree on whether to stop.
    """

    def __init__(self, checkpoints: Checkpoints | None, stop: Stop, device: torch.device) -> None:
        self.checkpoints, self.stop, self.device = checkpoints, stop, device
        self.stopped = False

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        # The signal reaches the ranks at different steps: one must not save without the others.
        asked = torch.tensor([int(self.stop.asked)], device=self.device)
        if dist.is_initialized():
            dist.all_reduce(asked, dist.ReduceOp.MAX)
        if int(asked):
            self.stopped = True
            control.should_save = True
            control.should_training_stop = True

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        if dist.is_initialized():
            dist.barrier()  # each rank writes its own random state
        if self.checkpoints is not None:
            folder = Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"
            self.checkpoints.start(folder, state.global_step)
            print(f"checkpoint of step {state.global_step}", file=sys.stderr, flush=True)
