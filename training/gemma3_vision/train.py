"""Fine-tune Gemma 3 to describe products from their pictures: QLoRA, on Ray Train.

    python -m training.gemma3_vision.train --config run.yaml

The driver joins the Ray cluster that it finds, or starts one on this machine, and runs `work` in
one process a GPU. Started again, it resumes from the newest complete checkpoint; a run that is done
ends at once. Exit codes: 0 done, 78 nothing that a retry could mend, 1 anything else. A submitted
Ray job ends as STOPPED in place of 78: failed ones are retried whatever their code.
"""

import argparse
import os
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from training.common import device, record, sources
from training.common.config import EXIT_CODE, ConfigError, merge, refuse
from training.common.hub_errors import UnreachableError
from training.common.pins import pins
from training.common.preflight import preflight
from training.common.sections import dump_yaml, read_yaml
from training.common.storage import Folder
from training.gemma3_vision.config import Config, resolve, typed

os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # TRL reports each run otherwise
os.environ.setdefault("RAY_TRAIN_ENABLE_PRINT_PATCH", "0")  # each line would come twice
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # the loader forks

GAVE_UP = "the run is given up: it would end the same way"
"""Said of a job that stops itself, since a stopped one may as well have been stopped by its owner.
The alert on failed runs looks for this line.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--config", required=True, help="YAML of this run, see config.yaml")
    parser.add_argument("--check", action="store_true", help="end where the workers would start")
    given = parser.parse_args()
    try:
        code = drive(resolve({"run": {}, **read_yaml(given.config)}), check=given.check)
    except ConfigError as error:
        code = refuse(error)
    except UnreachableError as error:
        print(error, file=sys.stderr, flush=True)
        code = 1
    if code == EXIT_CODE:
        from training.gemma3_vision.failures import stop_own_job

        print(GAVE_UP, file=sys.stderr, flush=True)
        stop_own_job()
    return code


def drive(resolved: Mapping[str, Any], *, check: bool = False) -> int:
    """Start the workers, wait for them, and say how it went (an exit code).

    With `check`, only ask for all that the workers will need.
    """
    # --- config
    config = typed(resolved)
    folder = Folder(config.run.output_dir)
    if record.finished(folder):
        print(f"already complete: {folder.uri}", file=sys.stderr, flush=True)
        return 0
    preflight(config)
    resolved = merge(resolved, pins(config))
    if check:
        return 0
    folder.write("config.yaml", dump_yaml(resolved))

    # --- distributed setup
    import ray
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer
    from ray.train.v2.api.exceptions import TrainingFailedError

    from training.gemma3_vision.failures import StopWhenHopeless, hopeless
    from training.gemma3_vision.register import RAY_NAME, mend_register

    if not ray.is_initialized():
        workers = config.run.nodes * config.run.workers_per_node
        found = os.environ.get("RAY_ADDRESS")  # set by Ray for the driver of a submitted job
        ray.init("auto") if found else ray.init("local", num_cpus=workers + 1)
    mend_register(folder)
    gpu = config.run.device == "cuda"
    trainer = TorchTrainer(
        work,
        train_loop_config=dict(resolved),
        scaling_config=ScalingConfig(
            num_workers=config.run.nodes * config.run.workers_per_node, use_gpu=gpu
        ),
        torch_config=TorchConfig(backend="nccl" if gpu else "gloo"),
        run_config=RunConfig(
            name=RAY_NAME,
            storage_path=folder.uri if folder.remote else str(Path(folder.uri).absolute()),
            failure_config=FailureConfig(
                max_failures=config.ray.max_failures,
                max_preemption_failures=config.ray.max_preemption_failures,
            ),
            callbacks=[StopWhenHopeless()],
        ),
    )
    try:
        trainer.fit()
    except TrainingFailedError as error:
        final = hopeless(error)
        if final is not None:
            return refuse(final)
        print(error, file=sys.stderr, flush=True)
        return 1
    return 0


def work(resolved: Mapping[str, Any]) -> None:
    """What each worker does; `resolved` is the checked configuration."""
    from training.gemma3_vision.failures import named

    with named():
        train(resolved)


def train(resolved: Mapping[str, Any]) -> None:  # noqa: PLR0915 - one story, top to bottom
    """The same, with errors as they are."""
    began = time.monotonic()
    # --- config
    import torch.distributed as dist
    from ray.train import get_context
    from transformers import PrinterCallback
    from trl.trainer.sft_config import SFTConfig

    from training.common.checkpoints import Checkpoints, restore_on_all
    from training.common.metrics import MetricsCallback
    from training.gemma3_vision import checkpointing, data, evaluate, model, outcome
    from training.gemma3_vision.failures import refused
    from training.gemma3_vision.throughput import Throughput
    from training.gemma3_vision.trainer import Guard, VisionTrainer

    config = typed(resolved)
    quiet()

    # --- distributed setup: Ray has set the rank variables and joined the process group
    context = get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    device.check(config.run.device)
    scratch = fresh_scratch(config, context.get_local_rank())
    dist.barrier()

    # --- model
    weights = sources.fetch(config.model.model_name_or_path, config.model.model_revision, "model")
    processor = model.load_processor(weights, config.model.model_name_or_path)
    base = model.load_base(config, weights)

    # --- adapter
    with refused("lora"):
        adapter = model.adapter_config(config)

    # --- data
    rows = sources.fetch(config.data.dataset_name, config.data.dataset_revision, "dataset")
    with refused("sft"):
        args = SFTConfig(**arguments(config, scratch))
    step = args.per_device_train_batch_size * args.gradient_accumulation_steps * world
    split = data.prepare(config.data, rows, multiple=step)
    outcome.assert_same(split.fingerprint, "the split")

    # --- train
    folder = Folder(config.run.output_dir)
    guard, store = Guard(), Checkpoints(folder, kept(config))
    saver = checkpointing.RayCheckpoints(store, folder, scratch)
    with refused("sft and trainer.lora"):  # PEFT looks for the target modules here
        trainer = VisionTrainer(
            model=base,
            args=args,
            train_dataset=split.train,
            eval_dataset=split.held_out,
            processing_class=processor,
            peft_config=adapter,
            callbacks=[guard, MetricsCallback(scratch), saver],
            lengths=split.lengths,
            throughput=Throughput(base.config),
        )
    guard.trainer = trainer
    trainer.remove_callback(PrinterCallback)  # MetricsCallback prints a line a step
    model.keep_full_precision(trainer.model)
    resumed = scratch / "resumed"
    found = restore_on_all(store, resumed, rank, context.get_local_rank())
    newest = resumed if found else None
    args.eval_on_start &= newest is None  # else this point of the curve is there already
    with outcome.followed(config, trainer, split, newest, scratch):
        trainer.train(resume_from_checkpoint=str(newest) if newest else None)
    trainer.accelerator.wait_for_everyone()

    # --- save
    # Without the trainer's autocast around it, as whoever loads the adapter will run it.
    tuned = trainer.accelerator.unwrap_model(trainer.model, keep_fp32_wrapper=False)
    if rank == 0:
        outcome.save(tuned, processor, config, split, scratch / "adapter")

    # --- verify
    # The last that the ranks do together: to verify, merge and push takes rank 0 minutes, and none
    # waits for another that long.
    measured = evaluate.measure(tuned, processor, split.held_out, config, rank=rank, world=world)
    if rank == 0:
        outcome.verify(resolved, measured, scratch)
        page = outcome.hand_over(
            config, weights, scratch, processor, split=split, measured=measured
        )
        facts = outcome.facts(trainer, split, config, time.monotonic() - began)
        facts["hub_page"] = page
        outcome.publish(config, scratch, split, measured, facts)


def fresh_scratch(config: Config, local_rank: int) -> Path:
    """This run's folder on the node's own disk, empty: an attempt before may have left files."""
    scratch = sources.scratch() / f"gemma3-vision-{config.run.id}"
    if local_rank == 0:
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True, exist_ok=True)
    os.environ["TENSORBOARD_LOGGING_DIR"] = str(scratch / "tensorboard")
    return scratch


def kept(config: Config) -> int:
    """How many checkpoints stay in the run's folder."""
    return config.sft.get("save_total_limit") or 10**6


def quiet() -> None:
    """No progress bars: in a log file they are one long line."""
    import datasets
    from transformers.utils import logging

    logging.disable_progress_bar()
    datasets.disable_progress_bars()


def arguments(config: Config, scratch: Path) -> dict[str, Any]:
    """SFTConfig's keyword arguments: the section `sft`, and what follows from the run."""
    return {
        **config.sft,
        "output_dir": str(scratch / "trainer"),
        "use_cpu": config.run.device == "cpu",
        "remove_unused_columns": False,  # the transform makes the columns that the collator reads
        "completion_only_loss": True,
        "disable_tqdm": True,
        "ddp_find_unused_parameters": False,
        "logging_nan_inf_filter": False,  # a NaN must be seen by the guard, not averaged away
        "save_total_limit": None,  # local copies go after the upload; the bucket keeps N
        "push_to_hub": False,  # pushed at the end, from the verified adapter
    }


if __name__ == "__main__":
    sys.exit(main())
