"""After training: evaluate base and tuned, verify the saved adapter, write the run's results."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from training.common import card, hub, metrics, record, sources
from training.common.storage import Folder
from training.gemma4_text import data, evaluate, export, model, verify
from training.gemma4_text.config import Config
from training.gemma4_text.pages import write_report

TASK = "text-generation"
PROBES = 4  # held-out rows whose losses the reloaded adapter must reproduce


def publish(
    config: Config,
    tokenizer: Any,
    base: Path,
    repository: str | None,
    *,
    local: Path,
    rows: tuple[int, int],
) -> str | None:
    """Put the saved adapter where it lasts: the run's folder, and the Hub when asked to.

    Returns:
        The page on the Hub, or None.
    """
    folder, adapter = Folder(config.run.output_dir), local / "adapter"
    page = None
    tokenizer.save_pretrained(adapter)
    (adapter / "training_args.bin").unlink(missing_ok=True)  # a pickle, of no use to anyone
    card.write(adapter, config, TASK, rows)
    folder.upload(adapter, "adapter")
    if layers := export.for_vllm(base, adapter, local / "adapter-vllm"):
        folder.upload(local / "adapter-vllm", "adapter-vllm")
        print(f"{layers} layers have no v_proj: vLLM needs adapter-vllm", file=sys.stderr)
    if repository:
        text = f"Adapter of run {config.run.id}"
        page = hub.push(adapter, repository, text)
        print(f"pushed to {page}", file=sys.stderr, flush=True)
    return page


def finish(
    config: Config,
    trainer: Any,
    tokenizer: Any,
    split: data.Split,
    *,
    local: Path,
    facts: dict[str, Any],
    began: float,
) -> int:
    """All that follows the last step; all ranks call it. The exit code."""
    folder = Folder(config.run.output_dir)
    first = trainer.args.process_index == 0
    rows = split.held_out[: config.evaluation.rows or None]
    tuned, base, probes, probe_losses = _measure(config, trainer, tokenizer, rows)
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()
    if not first:
        return 0
    trainer.model = trainer.model_wrapped = trainer.optimizer = None
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()

    fresh = _reload(config, local, folder, probes)
    wrong = verify.compare(probe_losses, fresh, config.model.dtype)
    if wrong:
        raise RuntimeError("the saved adapter is not what was trained: " + "; ".join(wrong))
    print("adapter reloaded in a fresh process: equals the trainer's", file=sys.stderr)

    evaluation: dict[str, Any] = {"tuned": tuned["figures"]}
    if base is not None:
        evaluation["base"] = base["figures"]
    written = {**evaluation, "verified_on_rows": len(probes)}
    folder.write("evaluation.json", json.dumps(written, indent=2) + "\n")
    if config.export.merged:  # minutes, which no other rank waits for here
        source = sources.fetch(
            config.model.model_name_or_path, config.model.model_revision, "model"
        )
        layers = export.merge(source, local / "adapter", folder, local / "merged")
        print(f"merged {layers} layers into {folder.uri}/merged", file=sys.stderr, flush=True)
    rows_seen = facts["rows"]["rows"], len(split.held_out)
    card.write(local / "adapter", config, TASK, rows_seen, evaluation)
    folder.upload(local / "adapter" / "README.md", "adapter/README.md")
    lines = metrics.read_metrics(local)
    facts = {
        **facts,
        "held_out_rows": len(split.held_out),
        "seconds": round(time.monotonic() - began, 1),
    }
    page = write_report(config, rows, tuned, base, lines=lines, facts=facts)
    folder.write("report.html", page)
    if (local / "tensorboard").is_dir():
        folder.upload(local / "tensorboard", "tensorboard")
    result = record.finish(folder, vars(config.run), {**facts, "evaluation": evaluation})
    print(json.dumps({"event": "done", "output_dir": folder.uri, **result["evaluation"]}))
    return 0


def _measure(
    config: Config, trainer: Any, tokenizer: Any, rows: list[data.Row]
) -> tuple[dict[str, Any], dict[str, Any] | None, list[dict[str, list[int]]], dict[str, Any]]:
    """Tuned and base under one harness, and both losses of the probe rows."""
    first = trainer.args.process_index == 0
    trained = trainer.model
    device = trainer.args.device
    trained.eval()
    trained.config.use_cache = True
    model.whole(trained, True)
    end = data.end_of_turn(tokenizer, config.data)
    probes = [data.encode(tokenizer, row, config.data, end) for row in rows[:PROBES]]
    losses: dict[str, Any] = {}
    results: dict[str, dict[str, Any] | None] = {"tuned": None, "base": None}
    for name in ("tuned", "base"):
        with trained.disable_adapter() if name == "base" else nullcontext(), torch.no_grad():
            sums = [evaluate.nll(trained, evaluate.pad([p], 0, device)) for p in probes]
            losses[name] = [total / max(number, 1) for total, number in sums]
            if name == "base" and not config.evaluation.baseline:
                continue
            loss = evaluate.held_out_loss(
                trained,
                tokenizer,
                rows,
                data=config.data,
                batch_size=trainer.args.per_device_eval_batch_size,
                device=device,
            )
            answers = evaluate.generate(
                trained,
                tokenizer,
                rows,
                data=config.data,
                evaluation=config.evaluation,
                device=device,
            )
        if first:
            figures, verdicts = evaluate.score(rows, answers, config.evaluation)
            figures = {"held_out_loss": round(loss, 6), **figures}
            results[name] = {"figures": figures, "answers": answers, "verdicts": verdicts}
            print(f"{name}: {json.dumps(figures)}", file=sys.stderr, flush=True)
    model.whole(trained, False)
    return results["tuned"] or {}, results["base"], probes, losses


def _reload(
    config: Config, local: Path, folder: Folder, probes: list[dict[str, list[int]]]
) -> dict[str, Any]:
    """What a fresh process measures with the adapter as it lies in the run's folder."""
    saved = local / "reloaded"
    folder.download("adapter", saved)
    model_folder = sources.fetch(
        config.model.model_name_or_path, config.model.model_revision, "model"
    )
    request = local / "verify.json"
    request.write_text(
        json.dumps(
            {
                "model": str(model_folder),
                "adapter": str(saved),
                "dtype": config.model.dtype,
                "attn_implementation": config.model.attn_implementation,
                "device": config.run.device,
                "rows": probes,
            }
        ),
        encoding="utf-8",
    )
    # None of the launcher's variables: this process must know nothing of ranks or FSDP.
    ours = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "GROUP_", "ROLE_", "TORCHELASTIC_")
    environment = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith((*ours, "ACCELERATE_", "FSDP_"))
    }
    done = subprocess.run(
        [sys.executable, "-m", "training.gemma4_text.verify", str(request)],
        env=environment,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return json.loads(done.stdout.splitlines()[-1])
