"""The run's report: headline numbers, loss curves, and wins, losses and errors side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from training.common.record import versions
from training.common.report import Headline, Section, badge, code, page, percent, settings, tiny
from training.gemma4_text.config import Config
from training.gemma4_text.rows import Row
from training.gemma4_text.sql import Verdict, extract

FIGURES = {
    "execution_accuracy": "execution accuracy",
    "non_empty_accuracy": "… where the gold gives rows",
    "valid_sql": "valid SQL",
    "exact_match": "exact match",
    "ast_match": "same syntax tree",
    "held_out_loss": "held-out loss (nats)",
}


def write_report(
    config: Config,
    rows: Sequence[Row],
    tuned: Mapping[str, Any],
    base: Mapping[str, Any] | None,
    *,
    lines: Sequence[Mapping[str, Any]],
    facts: Mapping[str, Any],
) -> str:
    """The page as HTML.

    Args:
        config: of the run.
        rows: that were evaluated.
        tuned: figures, answers and verdicts of the tuned model.
        base: the same of the untuned one, or None.
        lines: of metrics.jsonl.
        facts: for the record at the foot.
    """
    figures = tuned["figures"]
    before = base["figures"] if base else {}
    headlines = [
        Headline(
            "execution accuracy",
            percent(figures["execution_accuracy"]),
            f"untuned: {percent(before.get('execution_accuracy'))}",
        ),
        Headline(
            "held-out loss",
            f"{figures['held_out_loss']:.3f}",
            (f"untuned: {before['held_out_loss']:.3f}, " if before else "") + "evaluated rows",
        ),
        Headline(
            "valid SQL",
            percent(figures["valid_sql"]),
            f"untuned: {percent(before.get('valid_sql'))}",
        ),
        Headline(
            "evaluated rows",
            f"{len(rows)} of {facts['held_out_rows']}",
            f"{_excluded(figures)} golds do not run",
        ),
        Headline("steps", str(facts["steps"]), f"{facts['seconds']:.0f} s in all"),
    ]
    curves = {
        "training": [(line["step"], line["loss"]) for line in lines if "loss" in line],
        "held-out": [(line["step"], line["eval_loss"]) for line in lines if "eval_loss" in line],
    }
    if before and len(rows) == facts["held_out_rows"]:  # else the two are of different rows
        curves["held-out"].insert(0, (0, before["held_out_loss"]))
    comparison = Section(
        "Untuned and tuned, by the same harness",
        ["figure", "untuned", "tuned"],
        [
            [label, _figure(name, before.get(name)), _figure(name, figures[name])]
            for name, label in FIGURES.items()
        ],
        "Every query runs on a fresh SQLite database made from the row's schema; results are "
        "compared as multisets, in order only where the gold orders. Golds that SQLite does not "
        f"run are left out: {_by_dialect(figures)}.",
    )
    return page(
        f"{config.run.name}: {config.run.workload or 'gemma4-text'}",
        f"{config.model.model_name_or_path}, LoRA on {config.data.dataset_name}",
        settings=settings(config, facts["rows"]["rows"], facts["held_out_rows"]),
        notice=tiny(facts["parameters"]),
        headlines=headlines,
        curves=curves,
        sections=[comparison, *_samples(config, rows, tuned, base)],
        facts=_record(config, facts),
    )


def _samples(
    config: Config,
    rows: Sequence[Row],
    tuned: Mapping[str, Any],
    base: Mapping[str, Any] | None,
) -> list[Section]:
    kinds: dict[str, list[int]] = {}
    for index, verdict in enumerate(tuned["verdicts"]):
        was = base["verdicts"][index] if base else None
        kinds.setdefault(_kind(verdict, was), []).append(index)
    titles = {
        "won": "Won: right only after tuning",
        "kept": "Right before and after",
        "lost": "Lost: right only before tuning",
        "wrong": "Wrong: runs, but gives something else",
        "error": "Errors: do not run",
        "excluded": "Left out: the gold does not run in SQLite",
    }
    sections: list[Section] = []
    for kind, title in titles.items():
        chosen = kinds.get(kind, [])
        if not chosen:
            continue
        shown = chosen[: config.evaluation.samples]
        body = [
            [
                rows[i].question,
                code(rows[i].answer),
                code(extract(base["answers"][i])[:600]) if base else "",
                code(extract(tuned["answers"][i])[:600]),
                _verdict(tuned["verdicts"][i]),
            ]
            for i in shown
        ]
        note = f"{len(chosen)} row{'' if len(chosen) == 1 else 's'}" + (
            f", the first {len(shown)} shown" if len(shown) < len(chosen) else ""
        )
        columns = ["question", "gold", "untuned", "tuned", "verdict"]
        sections.append(Section(title, columns, body, note, equal=True))
    return sections


def _kind(now: Verdict, was: Verdict | None) -> str:
    if now.correct is None:
        return "excluded"
    if now.correct:
        return "kept" if was is not None and was.correct else "won"
    if was is not None and was.correct:
        return "lost"
    return "wrong" if now.valid else "error"


def _verdict(verdict: Verdict) -> Any:
    if verdict.correct is None:
        return badge(f"gold: {verdict.gold_dialect}", None)
    if verdict.correct:
        return badge("right", True)
    return badge("wrong" if verdict.valid else str(verdict.error)[:60], False)


def _figure(name: str, value: float | None) -> str:
    if name == "held_out_loss":
        return "-" if value is None else f"{value:.4f}"
    return percent(value)


def _excluded(figures: Mapping[str, Any]) -> int:
    return sum(figures["excluded"].values())


def _by_dialect(figures: Mapping[str, Any]) -> str:
    parts = [f"{number} {name}" for name, number in figures["excluded"].items()]
    return ", ".join(parts) or "none here"


def _record(config: Config, facts: Mapping[str, Any]) -> dict[str, object]:
    kept = {key: value for key, value in facts.items() if value is not None}
    kept["dropped"] = {
        f"not needed (train_rows is {config.data.train_rows})" if "beyond" in reason else reason: n
        for reason, n in facts["dropped"].items()
        if n
    }
    for name, value in list(kept.items()):
        if isinstance(value, Mapping):
            kept[name] = ", ".join(f"{key} {number}" for key, number in value.items())
    return {**kept, **versions()}
