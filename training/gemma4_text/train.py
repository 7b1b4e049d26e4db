"""Fine-tune Gemma 4 for text-to-SQL with LoRA under FSDP2.

    python -m training.gemma4_text.train --config run.yaml --check
    accelerate launch --config_file accelerate.yaml -m training.gemma4_text.train --config run.yaml

The order is config, distributed setup, model, adapter, data, train, save, verify. A run whose
result.json says done ends at once; one that was interrupted goes on from its newest checkpoint.
Exit codes: 0 done, 143 stopped after a checkpoint, 78 what a retry cannot mend: a configuration, or
a loss that left all bounds.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
import uuid
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from training.common import quiet, sources
from training.common.config import ConfigError, refuse
from training.common.device import check as check_device
from training.common.hub_errors import UnreachableError
from training.common.pins import pins, told
from training.common.preflight import preflight
from training.common.record import finished
from training.common.storage import Folder
from training.gemma4_text import tokens
from training.gemma4_text.config import Config, DataConfig, load
from training.gemma4_text.rows import Row, read_rows
from training.gemma4_text.split import fingerprint, make_split


def main() -> int:
    """Read the configuration and run; see the module for the exit codes."""
    parser = argparse.ArgumentParser(description="Fine-tune Gemma 4 for text-to-SQL.")
    parser.add_argument("--config", required=True, help="YAML file of overrides and the run")
    parser.add_argument("--check", action="store_true", help="end where the training would start")
    arguments = parser.parse_args()
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    quiet.libraries()
    try:
        # --- config
        config = load(arguments.config)
        if finished(Folder(config.run.output_dir)):
            print(f"already complete: {config.run.output_dir}", file=sys.stderr)
            return 0
        if arguments.check or "RANK" not in os.environ:  # the Job checks before its ranks start
            preflight(config)
        config = pinned(config)
        if arguments.check:
            check_rows(config.data)
            return 0
        return run(config)
    except ConfigError as error:
        return refuse(error)
    except UnreachableError as error:
        print(error, file=sys.stderr, flush=True)
        return 1


def run(config: Config) -> int:  # noqa: PLR0915 - one story from top to bottom
    """Train, save, evaluate, verify; the exit code."""
    import torch.distributed as dist
    import yaml
    from transformers import AutoTokenizer, PrinterCallback
    from trl.trainer.sft_config import SFTConfig

    from training.common import metrics
    from training.common.checkpoints import Checkpoints
    from training.gemma4_text import finish, model
    from training.gemma4_text.trainer import TERMINATED, RunCallback, Stop, TextTrainer

    began = time.monotonic()
    stop = Stop()
    folder = Folder(config.run.output_dir)

    # --- distributed setup
    check_device(config.run.device)
    world = int(os.environ.get("WORLD_SIZE", "1"))
    local = sources.scratch() / "runs" / config.run.id
    os.environ["TENSORBOARD_LOGGING_DIR"] = str(local / "tensorboard")
    settings = dict(config.sft)
    repository = settings.pop("hub_model_id", None)
    settings.pop("hub_private_repo", None)
    if world > 1:
        settings["fsdp"] = True
        settings["fsdp_config"] = {
            "version": 2,
            "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "state_dict_type": config.fsdp.state_dict_type,
            "reshard_after_forward": config.fsdp.reshard_after_forward,
            "cpu_offload": config.fsdp.offload_params,
            "cpu_ram_efficient_loading": True,
        }
    arguments = SFTConfig(
        output_dir=str(local / "trainer"),
        use_cpu=config.run.device == "cpu",
        completion_only_loss=True,
        disable_tqdm=True,
        dataset_kwargs={"skip_prepare_dataset": True},  # encoded and packed below
        **settings,
    )
    rank = arguments.process_index
    node, on_node = rank // config.run.workers_per_node, arguments.local_process_index
    first = rank == 0
    device = arguments.device

    def wait() -> None:
        if world > 1:
            dist.barrier()

    attempt = [uuid.uuid4().hex[:8]]  # names this start; the same on all nodes
    if world > 1:
        dist.broadcast_object_list(attempt, device=device)
    checkpoints = Checkpoints(
        folder,
        keep=arguments.save_total_limit or 3,
        node=node,
        nodes=config.run.nodes,
        attempt=attempt[0],
    )
    say(first, f"run {config.run.name} ({config.run.id}): {world} process(es) on {device}")
    if first:
        resolved = {name: _plain(part) for name, part in vars(config).items()}
        folder.write("config.yaml", yaml.safe_dump(resolved, sort_keys=False))
    resume = bring_back(checkpoints, folder, local, arguments)
    say(first and resume is not None, "resuming from the newest complete checkpoint")

    # --- model: without its weights, so that what does not fit it is told before 62 GB are fetched
    named_base = config.model.model_name_or_path, config.model.model_revision
    source = sources.fetch(*named_base, "model", weights=False)
    tokenizer = AutoTokenizer.from_pretrained(source)
    tokens.end_of_turn(tokenizer, config.data)
    base = model.load(source, config.model, weights=False)
    wrapped = model.wrap_class(base, config.fsdp)

    # --- adapter
    adapter = model.lora_config(base, config.lora)
    targets = adapter.target_modules
    named = targets if isinstance(targets, str) else ", ".join(sorted(targets))
    say(first, f"{type(base).__name__}: {wrapped}, LoRA on {named}")

    # --- data
    table = sources.fetch(config.data.dataset_name, config.data.dataset_revision, "dataset")
    split = make_split(read_rows(table, config.data), config.data)
    limit = arguments.max_length

    def encoded(name: str, rows: list[Row]) -> Any:
        return tokens.once(
            local / "tokens" / name,
            on_node == 0,
            wait,
            lambda: tokens.tokenise(tokenizer, rows, config.data, limit),
        )

    rows, held_out = encoded("train", split.train), encoded("held_out", split.held_out)
    split.dropped["longer than max_length"] = (
        len(split.train) + len(split.held_out) - len(rows) - len(held_out)
    )
    # What is dropped is not asked either: a row of any length would have to fit the GPU's memory.
    split.held_out = tokens.fitting(tokenizer, split.held_out, config.data, limit)
    sequences = rows
    if arguments.packing and limit is not None:
        sequences = tokens.packed(rows, limit, arguments.packing_strategy)
        if config.data.accumulate == "rows":
            arguments.gradient_accumulation_steps = tokens.accumulation(
                arguments.gradient_accumulation_steps, len(rows), len(sequences)
            )
    per_step = arguments.train_batch_size * arguments.gradient_accumulation_steps * world
    say(
        first,
        f"{len(rows)} training rows in {len(sequences)} sequences, {per_step} a step; "
        f"{len(held_out)} rows held out; dropped: "
        + ", ".join(f"{number} {reason}" for reason, number in split.dropped.items()),
    )

    # --- train
    if first:
        source = sources.fetch(*named_base, "model")
        base = model.load(source, config.model, weights=True)
    keep = partial(metrics.keep, local, folder) if first else None
    runner = RunCallback(checkpoints if on_node == 0 else None, stop, device, keep)
    trainer = TextTrainer(
        model=base,
        args=arguments,
        train_dataset=sequences,
        eval_dataset=held_out,
        processing_class=tokenizer,
        peft_config=adapter,
        callbacks=[runner, metrics.MetricsCallback(local)],
        base=named_base,
    )
    trainer.remove_callback(PrinterCallback)  # MetricsCallback prints
    peft: Any = trainer.model
    if world > 1:
        plugin: Any = trainer.accelerator.state.fsdp_plugin
        plugin.transformer_cls_names_to_wrap = [wrapped]
        if arguments.bf16:
            plugin.mixed_precision_policy = model.precision()
        model.materialise(peft)
        model.share_buffers(peft, device)
    with metrics.Mirror(local / metrics.METRICS, folder, metrics.METRICS, active=first):
        stop.training = True
        try:
            trainer.train(resume_from_checkpoint=resume)
        except metrics.DivergedError as error:  # as the next try would, on the same rows
            return refuse(error)
        checkpoints.wait()
    if runner.stopped:
        say(first, f"stopped at step {trainer.state.global_step}, checkpoint complete")
        return TERMINATED
    stop.over()

    # --- save
    trainer.save_model(str(local / "adapter"))
    if first:
        finish.save(config, tokenizer, source, local=local, rows=(len(rows), len(held_out)))

    # --- verify
    facts = {
        "steps": trainer.state.global_step,
        "parameters": sum(parameter.numel() for parameter in peft.parameters()),
        "train_loss": round(metrics.last(local, "loss") or 0.0, 4),
        "rows": tokens.counts(rows),
        "sequences": len(sequences),
        "sequences_per_step": per_step,
        "dropped": split.dropped,
        "data_fingerprint": fingerprint(split.train + split.held_out),
        **told(config),
    }
    end = {"repository": repository, "local": local, "facts": facts, "began": began}
    return finish.finish(config, trainer, tokenizer, split, **end)


def bring_back(checkpoints: Any, folder: Folder, local: Path, arguments: Any) -> str | None:
    """The folder of the newest checkpoint on this machine, with the metrics up to it, or None."""
    from training.common.checkpoints import restore_on_all
    from training.common.metrics import resume_metrics

    rank, on_node = arguments.process_index, arguments.local_process_index
    place = local / "trainer" / "checkpoint-restored"
    if on_node == 0:
        shutil.rmtree(local / "trainer", ignore_errors=True)  # of a container that died here
    found = restore_on_all(checkpoints, place, rank, on_node, arguments.device)
    if on_node == 0:
        resume_metrics(folder, local, found.step if found else 0)
    return str(place) if found else None


def check_rows(settings: DataConfig) -> None:
    """Raise what is wrong with the rows and their split; the ranks find them in the cache."""
    folder = sources.fetch(settings.dataset_name, settings.dataset_revision, "dataset")
    make_split(read_rows(folder, settings), settings)


def pinned(config: Config) -> Config:
    """The configuration with commits in place of the Hub's branches."""
    found = pins(config)
    return replace(
        config,
        model=replace(config.model, **found.get("model", {})),
        data=replace(config.data, **found.get("data", {})),
    )


def say(first: bool, text: str) -> None:
    """One line on stderr, from one process."""
    if first:
        print(text, file=sys.stderr, flush=True)


def _plain(part: object) -> object:
    """A section as YAML can hold it."""
    if isinstance(part, tuple):
        return list(part)
    if isinstance(part, dict):
        return part
    values = vars(part) if hasattr(part, "__dict__") else part
    return values if not isinstance(values, dict) else {k: _list(v) for k, v in values.items()}


def _list(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


if __name__ == "__main__":
    sys.exit(main())
