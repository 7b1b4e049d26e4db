"""A vision run of six steps: its settings, what it left, and how its day is made a bad one."""

import json
import os
import signal
import time
from pathlib import Path

from safetensors.torch import load_file

from training.gemma3_vision import config, train

STEPS = 6


def settings(samples, output, workers=2, rows=None, **sections):
    sft = {
        "max_steps": STEPS,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2 // workers,
        "learning_rate": 4e-3,
        "bf16": False,
        "activation_checkpointing": False,
        "logging_steps": 1,
        "save_steps": 2,
        "eval_steps": 3,
        "dataloader_num_workers": 0,
    }
    return config.resolve(
        {
            "model": {"model_name_or_path": str(samples / "model"), "dtype": "float32"},
            "data": {"dataset_name": str(rows or samples / "products")},
            "sft": {**sft, **sections.get("sft", {})},
            "evaluation": {"rows": 2, "max_new_tokens": 4},
            "quantization": {"bnb_4bit_compute_dtype": "float32"},
            "ray": sections.get("ray", {"max_failures": 1}),
            "lora": sections.get("lora", {"lora_dropout": 0.1}),
            "export": sections.get("export", {}),
            "run": {
                "output_dir": str(output),
                "id": output.name,
                "device": "cpu",
                "workers_per_node": workers,
            },
        }
    )


def losses(output):
    lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: line["loss"] for line in lines if "loss" in line}


def adapter(output):
    return load_file(output / "adapter" / "adapter_model.safetensors")


def same_weights(left, right):
    assert left.keys() == right.keys()
    return all(bool((left[name] == right[name]).all()) for name in left)


def complete(output, step):
    return (output / "checkpoints" / f"step-{step:06d}" / "manifest.json").exists()


def wait_for(what, holds):
    deadline = time.monotonic() + 240
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def unverified(real):
    """`train.work` without the fresh process at its end: the uninterrupted run has it.

    In its place rank 0 waits until the last rank has ended: none waits for rank 0.
    """

    def work(resolved):
        from ray.train import get_context

        from training.gemma3_vision import outcome

        last, rank = get_context().get_world_size() - 1, get_context().get_world_rank()
        left = Path(os.environ["GEMMA_SCRATCH"]) / f"{resolved['run']['id']}-left"
        outcome.verify = lambda *_: wait_for("the last rank", lambda: not last or left.exists())
        real(resolved)
        if rank == last:
            left.touch()

    return work


def disturbed(output, notes):
    """`train.work` on a bad day; `notes` gets the step at which each attempt starts.

    Worker 1's node is to go at step 3, and it is killed without warning once that checkpoint is
    complete. In the next attempt rank 0 is, when step 4 is saved.
    """
    real = unverified(train.work)

    def work(resolved):
        from training.common import checkpoints
        from training.gemma3_vision import trainer

        stop = Path(os.environ["GEMMA_STOP_FILE"])
        restore, step_end = checkpoints.restore_on_all, trainer.Guard.on_step_end

        def noted(store, local, rank, local_rank):
            found = restore(store, local, rank, local_rank)
            if rank == 0:
                with notes.open("a") as file:
                    file.write(f"{found.step if found else 0}\n")
            return found

        def on_step_end(self, args, state, control, **named):
            step_end(self, args, state, control, **named)
            attempts = len(notes.read_text().split())
            at = (attempts, args.process_index, state.global_step)
            if at == (1, 1, 3):
                stop.touch()
            elif at in ((1, 1, 4), (2, 0, 5)):
                step = state.global_step - 1
                wait_for(f"checkpoint {step}", lambda: complete(output, step))
                stop.unlink(missing_ok=True)
                os.kill(os.getpid(), signal.SIGKILL)

        checkpoints.restore_on_all, trainer.Guard.on_step_end = noted, on_step_end
        real(resolved)

    return work
