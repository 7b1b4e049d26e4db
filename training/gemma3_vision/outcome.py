"""What a run leaves in its folder, and the proof that the adapter there is the one trained."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from training.common import card, hub, record, report
from training.common.config import EXIT_CODE
from training.common.metrics import METRICS, Mirror, keep, read_metrics, resume_metrics
from training.common.pins import told
from training.common.storage import Folder
from training.gemma3_vision import export
from training.gemma3_vision.config import Config
from training.gemma3_vision.data import Split
from training.gemma3_vision.evaluate import Measured
from training.gemma3_vision.failures import Hopeless

EMPTY = "(empty)"
TASK = "image-text-to-text"
LAUNCHER = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def assert_same(value: str, what: str) -> None:
    """Fail where the ranks disagree about `value`."""
    import torch.distributed as dist

    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    if len(set(values)) > 1:
        raise RuntimeError(f"the workers do not agree on {what}: {values}")


@contextmanager
def followed(
    config: Config, trainer: Any, split: Split, newest: Path | None, scratch: Path
) -> Iterator[None]:
    """Say where training starts, and copy its metrics to the run's folder while it goes on."""
    if not trainer.is_world_process_zero():
        yield
        return
    trained = sum(p.numel() for p in trainer.model.parameters() if p.requires_grad)
    step = step_of(newest)
    print(
        f"{len(split.train) - split.fillers} rows to train on, {len(split.held_out)} held out, "
        f"{sum(split.skipped.values())} left out, {trained:,} trained parameters, "
        f"{'resuming' if newest else 'starting'} at step {step}",
        file=sys.stderr,
        flush=True,
    )
    folder = Folder(config.run.output_dir)
    resume_metrics(folder, scratch, step if newest else -1)  # -1: not the first held-out loss
    with Mirror(scratch / METRICS, folder, METRICS):
        yield


def step_of(checkpoint: Path | None) -> int:
    """The optimizer step at which a local checkpoint was saved; 0 where there is none."""
    if checkpoint is None:
        return 0
    state = json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))
    return int(state["global_step"])


def facts(trainer: Any, split: Split, config: Config, seconds: float) -> dict[str, Any]:
    """What the record says about a run besides its configuration and its numbers."""
    return {
        "steps": trainer.state.global_step,
        "parameters": trainer.model.get_base_model().num_parameters(),
        "train_rows": sizes(split)[0],
        "held_out_rows": sizes(split)[1],
        "rows_left_out": dict(split.skipped),
        "workers": trainer.args.world_size,
        "seconds": round(seconds, 1),
        **told(config),
    }


def save(model: Any, processor: Any, config: Config, split: Split, local: Path) -> None:
    """Write adapter and processor, and copy them to the run's folder."""
    settings = model.peft_config["default"]
    settings.base_model_name_or_path = config.model.model_name_or_path  # not this pod's cache
    settings.revision = config.model.model_revision
    model.save_pretrained(local)
    processor.save_pretrained(local)
    card.write(local, config, TASK, sizes(split))
    Folder(config.run.output_dir).upload(local, "adapter")


def verify(resolved: Mapping[str, Any], measured: Measured, scratch: Path) -> dict[str, Any]:
    """Load the adapter from the run's folder in a fresh process and compare what it says.

    Raises:
        Hopeless: the reloaded adapter differs from the trained one, or does nothing.
        RuntimeError: the process could not tell: killed, say, or without its bucket.
    """
    request = scratch / "verify.json"
    request.write_text(
        json.dumps({"config": dict(resolved), "expected": measured.probe}), encoding="utf-8"
    )
    environment = {k: v for k, v in os.environ.items() if k not in LAUNCHER}
    done = subprocess.run(
        [sys.executable, "-m", "training.gemma3_vision.verify", str(request)],
        env=environment,
        cwd=Path(__file__).parents[2],
        check=False,
        capture_output=True,
        text=True,
    )
    lines = done.stdout.splitlines()
    if done.returncode == EXIT_CODE:
        raise Hopeless(f"the saved adapter is not what was trained:\n{done.stdout}")
    if done.returncode != 0 or not lines:
        text = f"the adapter could not be verified (exit code {done.returncode})"
        raise RuntimeError(f"{text}:\n{done.stdout}{done.stderr[-4000:]}")
    found: dict[str, Any] = json.loads(lines[-1])
    said = (
        f"equals the trainer's, loss {found['tuned_loss']:.4f} (untuned {found['base_loss']:.4f})"
    )
    print(f"adapter reloaded in a fresh process: {said}", file=sys.stderr, flush=True)
    return found


def sizes(split: Split) -> tuple[int, int]:
    """Numbers of training rows, fillers left out, and of held-out rows."""
    return len(split.train) - split.fillers, len(split.held_out)


def hand_over(
    config: Config,
    weights: Path,
    scratch: Path,
    processor: Any,
    *,
    split: Split,
    measured: Measured,
) -> str | None:
    """Write the evaluation; merge and, last, push, where asked for; the Hub's page, if any."""
    adapter, folder = scratch / "adapter", Folder(config.run.output_dir)
    folder.write("evaluation.json", json.dumps(measured.summary, indent=2) + "\n")
    card.write(adapter, config, TASK, sizes(split), measured.summary)
    folder.upload(adapter / "README.md", "adapter/README.md")
    if config.export.merged:
        export.save_merged(config, weights, adapter, scratch / "merged", processor)
    if not (repository := config.sft.get("hub_model_id")):
        return None
    page = hub.push(adapter, repository, f"Adapter of run {config.run.id}")
    print(f"pushed to {page}", file=sys.stderr, flush=True)
    return page


def publish(
    config: Config,
    scratch: Path,
    split: Split,
    measured: Measured,
    facts: Mapping[str, Any],
) -> None:
    """Write report.html, TensorBoard's files and, last, result.json."""
    folder = Folder(config.run.output_dir)
    lines = read_metrics(scratch)
    if (scratch / METRICS).is_file():
        folder.upload(scratch / METRICS, METRICS)
    keep(scratch, folder)
    folder.write("report.html", page(config, lines, split, measured, facts))
    numbers = {name: part["held_out_loss"] for name, part in measured.summary.items()}
    record.finish(
        folder,
        vars(config.run),
        {**facts, "data_fingerprint": split.fingerprint, "held_out_loss": numbers},
    )


def page(
    config: Config,
    lines: list[dict[str, Any]],
    split: Split,
    measured: Measured,
    facts: Mapping[str, Any],
) -> str:
    """The report: loss curve, numbers of both models, pictures with the texts side by side."""
    summary = measured.summary
    tuned, base = summary["tuned"], summary.get("base")

    headlines = []
    for label, key, shown in (
        ("held-out loss", "held_out_loss", "{:.3f}".format),
        ("ROUGE-L (0 to 100)", "rouge_l", "{:.1f}".format),
        ("chrF (0 to 100)", "chrf", "{:.1f}".format),
        ("well-formed", "well_formed", report.percent),
    ):
        note = f"untuned: {shown(base[key])}" if base else ""
        headlines.append(report.Headline(label, shown(tuned[key]), note))
    described = f"{tuned['rows']} of {len(split.held_out)}"
    headlines.append(report.Headline("described rows", described, "the loss is over all held-out"))
    headlines.append(
        report.Headline("steps", str(facts["steps"]), f"{facts['seconds']:.0f} s in all")
    )
    samples = []
    for index in range(min(config.evaluation.samples, len(measured.tuned))):
        row = split.held_out[index]
        untuned = measured.base[index] if measured.base is not None else "not run"
        samples.append(
            [
                report.picture(thumbnail(row["images"][0]), alt=f"row {row['row']}"),
                row["completion"][0]["content"],
                untuned or EMPTY,
                measured.tuned[index] or EMPTY,
            ]
        )
    table = report.Section(
        "Held-out products",
        ["picture", "reference", "untuned", "tuned"],
        samples,
        note="Products that were never trained on, described by both models from the same prompt. "
        "Well-formed: one paragraph of the asked length, without chat, Markdown or repetition.",
        equal=True,
    )
    return report.page(
        f"{config.run.name}: {config.run.workload or 'gemma3-vision'}",
        f"{config.model.model_name_or_path}, QLoRA on {config.data.dataset_name}",
        settings=report.settings(config, facts["train_rows"], len(split.held_out)),
        notice=report.tiny(facts["parameters"]),
        headlines=headlines,
        curves={
            name: [(line["step"], line[key]) for line in lines if key in line]
            for name, key in (("training", "loss"), ("held-out", "eval_loss"))
        },
        sections=[table],
        facts={**facts, **record.versions()},
    )


def thumbnail(picture: Any, side: int = 256) -> bytes:
    """PNG bytes of the picture, at most `side` pixels in each direction."""
    small = picture.copy()
    small.thumbnail((side, side))
    buffer = io.BytesIO()
    small.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()
