"""TRL's SFTTrainer with an order that the seed alone decides, and with the batch's rows at hand."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import Sampler
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_pt_utils import get_length_grouped_indices
from trl.trainer.sft_trainer import SFTTrainer

from training.common.metrics import DivergedError
from training.gemma3_vision.evaluate import collator, held_out_loss
from training.gemma3_vision.throughput import Throughput


class EpochOrder(Sampler[int]):
    """The order of an epoch, from seed and epoch: the same on every rank and after a resume.

    Args:
        size: rows in an epoch.
        seed: of the order.
        lengths: of the rows; given, rows of like length share a batch of `batch` rows.
        batch: rows in a step, over all workers.
    """

    def __init__(
        self, size: int, seed: int, lengths: Sequence[int] | None = None, batch: int = 1
    ) -> None:
        self.size, self.seed, self.lengths, self.batch = size, seed, lengths, batch
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.seed * 100_003 + self.epoch)
        if self.lengths is not None:
            return iter(get_length_grouped_indices(self.lengths, self.batch, generator=generator))
        return iter(torch.randperm(self.size, generator=generator).tolist())


class RowCollator:
    """TRL's collator, with the rows' numbers in the batch and no loss on rows that only fill it."""

    def __init__(self, processor: Any) -> None:
        self.inner = collator(processor)

    def __call__(self, rows: list[dict[str, Any]]) -> Any:
        rows = [dict(row) for row in rows]  # TRL's collator writes into them
        numbers = torch.tensor([row.pop("row") for row in rows])
        fillers = torch.tensor([row.pop("filler") for row in rows])
        batch = self.inner(rows)
        batch["labels"][fillers] = -100
        batch["rows"] = numbers
        return batch


class VisionTrainer(SFTTrainer):
    """SFTTrainer; see the module's docstring. `lengths` groups rows of like length when wanted."""

    def __init__(self, *, lengths: Sequence[int], throughput: Throughput, **arguments: Any) -> None:
        processor = arguments["processing_class"]
        super().__init__(data_collator=RowCollator(processor), **arguments)
        # Gemma 3's class says it takes no loss arguments, so each micro-batch would weigh the same
        # however few tokens it trains (transformers#37197); TRL's fused loss does take them.
        self.model_accepts_loss_kwargs = True
        self.lengths = lengths
        self.throughput = throughput
        self.rows: list[torch.Tensor] = []  # of the step under way, on this rank
        self.finite = torch.ones((), dtype=torch.bool, device=self.args.device)

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        grouped = self.args.train_sampling_strategy == "group_by_length"
        step = self.args.train_batch_size * self.args.world_size
        return EpochOrder(
            len(self.lengths),
            self.args.data_seed if self.args.data_seed is not None else self.args.seed,
            self.lengths if grouped else None,
            step * self.args.gradient_accumulation_steps,
        )

    def _run_epoch(self, *arguments: Any, **named: Any) -> None:
        """Nothing, once all steps are done.

        A run that died while it was evaluated resumes with nothing left to train. The stock loop
        looks at max_steps only after a step, so it would train one more.
        """
        if self.state.global_step >= self.state.max_steps:
            self.control.should_training_stop = True
        else:
            super()._run_epoch(*arguments, **named)

    def training_step(self, model: Any, inputs: Any, *arguments: Any, **named: Any) -> torch.Tensor:
        self.rows.append(inputs.pop("rows"))
        self.throughput.count(inputs)
        loss = super().training_step(model, inputs, *arguments, **named)
        self.finite &= torch.isfinite(loss.detach())
        return loss

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """The held-out loss so far: every token counts once, as in the run's evaluation.

        The stock loop means over batches, and counts some rows twice to fill the last one.
        """
        began = time.monotonic()
        loss = held_out_loss(
            self.model,
            self.processing_class,
            self.eval_dataset,
            self.args.per_device_eval_batch_size,
            rank=self.args.process_index,
            world=self.args.world_size,
        )
        seconds = time.monotonic() - began
        self.throughput.leave_out(seconds)
        found = {"eval_loss": loss, "eval_runtime": round(seconds, 3)}
        model: Any = self.model
        model.eval()  # by this TRL's log knows whose numbers it has; each step trains again
        self.log(found)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, found)
        return found

    def _save_checkpoint(self, *arguments: Any, **named: Any) -> None:
        """For whatever reason it is saved, nothing that is not a number goes into a checkpoint."""
        model: Any = self.model
        for name, parameter in model.named_parameters():
            if parameter.requires_grad and not bool(torch.isfinite(parameter).all()):
                text = f"{name} is not a number at step {self.state.global_step}"
                raise DivergedError(f"{text}; {self.where()}")
        super()._save_checkpoint(*arguments, **named)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" in logs:
            logs.update(self.throughput.read(self.args.world_size))
        try:
            super().log(logs, start_time)
        except DivergedError as error:
            raise DivergedError(f"{error}; {self.where()}") from error

    def where(self) -> str:
        """The rows of the step under way, for an error's text."""
        numbers = torch.cat(self.rows).tolist() if self.rows else []
        return f"rows of this step on worker {self.args.process_index}: {numbers}"


class Guard(TrainerCallback):
    """Stops at the first loss that is not a number, and names the rows of its step."""

    def __init__(self) -> None:
        self.trainer: VisionTrainer | None = None

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        assert self.trainer is not None
        self.trainer.rows.clear()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        trainer: Any = self.trainer
        assert trainer is not None
        if not bool(trainer.finite):
            text = f"the loss is not a number at step {state.global_step}"
            raise DivergedError(f"{text}; {trainer.where()}")
