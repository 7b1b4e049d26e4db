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
from training.gemma4_text import evaluate, export, model, tokens, verify
from training.gemma4_text.config import Config
from training.gemma4_text.pages import write_report
from training.gemma4_text.rows import Row
from training.gemma4_text.split import Split

TASK = "text-generation"
PROBES = 4  # held-out rows whose losses the reloaded adapter must reproduce


def save(config: Config, tokenizer: Any, base: Path, *, local: Path, rows: tuple[int, int]) -> None:
    """Put the saved adapter into the run's folder, where it lasts, before anything can go wrong.

    Args:
        config: of the run.
        tokenizer: saved beside the adapter.
        base: local folder of the base checkpoint.
        local: this machine's folder of the run, with `adapter`.
        rows: numbers of training and of held-out rows, for the card.
    """
    folder, adapter = Folder(config.run.output_dir), local / "adapter"
    tokenizer.save_pretrained(adapter)
    (adapter / "training_args.bin").unlink(missing_ok=True)  # a pickle, of no use to anyone
    card.write(adapter, config, TASK, rows)
    folder.upload(adapter, "adapter")
    if layers := export.for_vllm(base, adapter, local / "adapter-vllm"):
        folder.upload(local / "adapter-vllm", "adapter-vllm")
        print(f"{layers} layers have no v_proj: vLLM needs adapter-vllm", file=sys.stderr)


def finish(
    config: Config,
    trainer: Any,
    tokenizer: Any,
    split: Split,
    *,
    repository: str | None,
    local: Path,
    facts: dict[str, Any],
    began: float,
) -> int:
    """All that follows the last step; all ranks call it. The exit code.

    The ranks part once all answers are there: to score them, to verify, merge and push takes
    minutes, and no rank waits for another that long.
    """
    folder = Folder(config.run.output_dir)
    first = trainer.args.process_index == 0
    rows = split.held_out[: config.evaluation.rows or None]
    said, probes, probe_losses = _measure(config, trainer, tokenizer, rows)
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

    results = {name: _scored(config, name, rows, *found) for name, found in said.items()}
    evaluation = {name: result["figures"] for name, result in results.items()}
    written = {**evaluation, "verified_on_rows": len(probes)}
    folder.write("evaluation.json", json.dumps(written, indent=2) + "\n")
    rows_seen = facts["rows"]["rows"], len(split.held_out)
    card.write(local / "adapter", config, TASK, rows_seen, evaluation)
    folder.upload(local / "adapter" / "README.md", "adapter/README.md")
    if config.export.merged:
        base = sources.fetch(config.model.model_name_or_path, config.model.model_revision, "model")
        layers = export.merge(base, local / "adapter", folder, local / "merged")
        print(f"merged {layers} layers into {folder.uri}/merged", file=sys.stderr, flush=True)
    page = None
    if repository:
        page = hub.push(local / "adapter", repository, f"Adapter of run {config.run.id}")
        print(f"pushed to {page}", file=sys.stderr, flush=True)
    lines = metrics.read_metrics(local)
    facts = {
        **facts,
        "hub_page": page,
        "held_out_rows": len(split.held_out),
        "seconds": round(time.monotonic() - began, 1),
    }
    tuned, untuned = results["tuned"], results.get("base")
    folder.write(
        "report.html", write_report(config, rows, tuned, untuned, lines=lines, facts=facts)
    )
    metrics.keep(local, folder)
    result = record.finish(folder, vars(config.run), {**facts, "evaluation": evaluation})
    print(json.dumps({"event": "done", "output_dir": folder.uri, **result["evaluation"]}))
    return 0


def _measure(
    config: Config, trainer: Any, tokenizer: Any, rows: list[Row]
) -> tuple[dict[str, tuple[float, list[str]]], list[dict[str, list[int]]], dict[str, Any]]:
    """Held-out loss and answers of tuned and base, and both losses of the probe rows."""
    trained = trainer.model
    device = trainer.args.device
    trained.eval()
    trained.config.use_cache = True
    model.whole(trained, True)
    end = tokens.end_of_turn(tokenizer, config.data)
    probes = [tokens.encode(tokenizer, row, config.data, end) for row in rows[:PROBES]]
    losses: dict[str, Any] = {}
    said: dict[str, tuple[float, list[str]]] = {}
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
            said[name] = loss, answers
    model.whole(trained, False)
    return said, probes, losses


def _scored(
    config: Config, name: str, rows: list[Row], loss: float, answers: list[str]
) -> dict[str, Any]:
    figures, verdicts = evaluate.score(rows, answers, config.evaluation)
    figures = {"held_out_loss": round(loss, 6), **figures}
    print(f"{name}: {json.dumps(figures)}", file=sys.stderr, flush=True)
    return {"figures": figures, "answers": answers, "verdicts": verdicts}


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
