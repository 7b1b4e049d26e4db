"""TRL's trainer with what a run on many GPUs and a bucket needs: adapters saved whole from shards,
tokens counted, checkpoints uploaded, a signal to stop obeyed."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from peft import LoraConfig
from torch.distributed.tensor import DTensor
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from trl.trainer.sft_trainer import SFTTrainer

from training.common.checkpoints import Checkpoints
from training.common.device import memory_gib, peak_flops
from training.gemma4_text.work import Work

TERMINATED = 143  # 128 + SIGTERM: the Job starts the pod again


class TextTrainer(SFTTrainer):
    """SFTTrainer that saves only the adapter, gathered from all shards, and counts its work.

    Args:
        base: name and revision of the base model, as the saved adapter says them.
    """

    def __init__(self, *args: Any, base: tuple[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.base = base
        self.work = Work.of(self.model)
        self._counted = torch.zeros(4, dtype=torch.float64)
        self._since = time.monotonic()
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
            folder = str(output_dir or self.args.output_dir)
            self._save(folder, state_dict=state)
            # Only now: with a name that is no local folder PEFT asks the Hub at each save whether
            # the vocabulary has grown, and warns when it gets no answer.
            saved = LoraConfig.from_pretrained(folder)
            saved.base_model_name_or_path, saved.revision = self.base
            saved.save_pretrained(folder)

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
        """One micro-batch; what is in it is added to the counts."""
        self._since = self._since or time.monotonic()
        lengths, padding, trained = count(inputs)
        flops = self.work.step(lengths, trained)
        self._counted += torch.tensor([sum(lengths), padding, trained, flops], dtype=torch.float64)
        return super().training_step(model, inputs, *args, **kwargs)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log; with a loss, also what all ranks did since the last one.

        `tokens` (real), `padding` and `trained_tokens`; `model_tflops` a second and process, `mfu`
        as a share of the GPU's peak where that is known, and `memory_gib` of this process.
        """
        if "loss" in logs:
            # float64 on GPUs as well: FLOPs have more digits than float32.
            total = self._counted.to(self.accelerator.device)
            if dist.is_initialized():
                dist.all_reduce(total)
            *tokens, flops = total.tolist()
            names = ("tokens", "padding", "trained_tokens")
            logs.update(dict(zip(names, map(int, tokens), strict=True)))
            now = time.monotonic()
            rate = flops / self.args.world_size / max(now - (self._since or now), 1e-9)
            logs["model_tflops"] = round(rate / 1e12, 6)
            if peak := peak_flops():
                logs["mfu"] = round(rate / peak, 4)
            logs["memory_gib"] = round(memory_gib(), 3)
            self._counted.zero_()
            self._since = now
        super().log(logs, start_time)


def count(inputs: dict[str, Any]) -> tuple[list[int], int, int]:
    """(lengths of the documents, padding, trained tokens) of one micro-batch.

    A token is trained when it is predicted from the one before it in the same document.
    """
    labels, size = inputs["labels"], inputs["input_ids"].numel()
    if "attention_mask" in inputs:
        lengths = inputs["attention_mask"].sum(dim=1).tolist()
    else:
        # Packed: a document starts at position 0. One of a single token is none, but padding.
        starts = (inputs["position_ids"].flatten() == 0).nonzero().flatten().tolist()
        ends = [*starts[1:], size]
        lengths = [end - start for start, end in zip(starts, ends, strict=True) if end > start + 1]
    trained = int((labels[:, 1:] != -100).sum())
    return lengths, size - sum(lengths), trained


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


def held(parameter: torch.Tensor) -> int:
    """Bytes of a parameter that this rank holds: its shard, where there is one."""
    own = parameter.to_local() if isinstance(parameter, DTensor) else parameter
    return own.numel() * own.element_size()


class Stop:
    """SIGTERM: at once before and after training, after a checkpoint while training."""

    def __init__(self) -> None:
        self.asked = False
        self.training = False
        signal.signal(signal.SIGTERM, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        if not self.training:
            self._leave()

    def over(self) -> None:
        """Training is over; what was asked for too late for its last step is done now."""
        self.training = False
        if self.asked:
            self._leave()

    def _leave(self) -> None:
        os.write(2, b"SIGTERM: nothing to save\n")
        os._exit(TERMINATED)


class RunCallback(TrainerCallback):
    """Uploads each checkpoint, and ends training in order when the run is told to stop.

    Args:
        checkpoints: of this run; None on ranks that upload nothing (all but one a machine).
        stop: the signal's state.
        device: where the ranks agree on whether to stop.
        keep: copies what was logged to the run's folder; None on ranks that log nothing.
    """

    def __init__(
        self,
        checkpoints: Checkpoints | None,
        stop: Stop,
        device: torch.device,
        keep: Callable[[], None] | None,
    ) -> None:
        self.checkpoints, self.stop, self.device, self.keep = checkpoints, stop, device, keep
        self.stopped = False

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        **_: Any,
    ) -> None:
        # Of 62 GB this takes minutes, and nothing else says that it is over.
        if args.world_size > 1 and state.is_world_process_zero:
            size = sum(map(held, model.parameters())) / 2**30
            said = f"weights sharded over {args.world_size} processes, {size:.2f} GiB on each"
            print(said, file=sys.stderr, flush=True)

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
            self.checkpoints.start(folder, state.global_step, self.keep)
            print(f"checkpoint of step {state.global_step}", file=sys.stderr, flush=True)
