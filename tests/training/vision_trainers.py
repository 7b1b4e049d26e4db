"""The vision trainer on the tiny Gemma 3 and this CPU: its settings, and how it is made."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from training.gemma3_vision.config import typed


def settings(samples, output="x", **sections):
    sft = {
        "bf16": False,
        "activation_checkpointing": False,
        "dataloader_num_workers": 0,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 1,
        "learning_rate": 4e-3,
        "report_to": "none",
        "logging_steps": 1,
        "max_steps": 4,
        "eval_strategy": "no",
        "eval_on_start": False,
    }
    return typed(
        {
            "model": {"model_name_or_path": str(samples / "model")},
            "data": {"dataset_name": str(samples / "products")},
            "evaluation": {"max_new_tokens": 8, "rows": 2},
            "run": {"output_dir": str(output), "device": "cpu"},
            **{name: keys for name, keys in sections.items() if name != "sft"},
            "sft": {**sft, **sections.get("sft", {})},
        }
    )


def trainer_maker(samples: Path, processor: Any, place: Path) -> Callable[..., Any]:
    """A function that makes (trainer, split, settings) in `place`, from changed sections."""
    from trl.trainer.sft_config import SFTConfig

    from training.gemma3_vision import data, model, throughput
    from training.gemma3_vision.train import arguments, quiet
    from training.gemma3_vision.trainer import Guard, VisionTrainer

    def make(save=False, **sections):
        quiet()
        config = settings(samples, place / "run", **sections)
        split = data.prepare(config.data, samples / "products", multiple=4)
        guard = Guard()
        args = arguments(config, place / "scratch")
        args["save_strategy"] = "steps" if save else "no"
        base = model.load_base(config, samples / "model")
        trainer = VisionTrainer(
            model=base,
            args=SFTConfig(**args),
            train_dataset=split.train,
            eval_dataset=split.held_out,
            processing_class=processor,
            peft_config=model.adapter_config(config),
            callbacks=[guard],
            lengths=split.lengths,
            throughput=throughput.Throughput(base.config),
        )
        guard.trainer = trainer
        model.keep_full_precision(trainer.model)
        return trainer, split, config

    return make
