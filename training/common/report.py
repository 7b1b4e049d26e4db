"""A run's page: one HTML file without outside parts, to be read in a browser or a bucket's viewer.

Both trainers' pages say `training`, `held-out`, `untuned` and `tuned`, and shares in percent.
"""

from __future__ import annotations

import base64
import html
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

Point = tuple[float, float]
COLOURS = ("#2563eb", "#d97706", "#059669", "#9333ea")
TEMPLATE = Path(__file__).parent / "report.html"


@dataclass(frozen=True)
class Raw:
    """HTML that is put into a cell as it is."""

    html: str


@dataclass(frozen=True)
class Headline:
    """A number to be seen first: label, value, and a note in small print."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Section:
    """A table with a title: columns, and rows of cells (text is escaped, `Raw` is not).

    `equal` gives all columns the same width, and stacks the cells on a narrow screen.
    """

    title: str
    columns: Sequence[str]
    rows: Iterable[Sequence[str | Raw]]
    note: str = ""
    equal: bool = False


def page(
    title: str,
    subtitle: str,
    *,
    settings: Mapping[str, object],
    notice: str = "",
    headlines: Sequence[Headline],
    curves: Mapping[str, Sequence[Point]],
    sections: Sequence[Section],
    facts: Mapping[str, object],
) -> str:
    """The page as HTML text.

    Args:
        title: name of the run.
        subtitle: one line under it.
        settings: key and value pairs at the top.
        notice: a warning above all numbers.
        headlines: shown as tiles.
        curves: (step, value) points by name, drawn into one chart.
        sections: tables.
        facts: key and value pairs at the foot. What is empty is left out, here and in `settings`.
    """
    tiles = "".join(
        f'<div class="tile"><div class="label">{text(h.label)}</div>'
        f'<div class="value">{text(h.value)}</div><div class="note">{text(h.note)}</div></div>'
        for h in headlines
    )
    parts = {
        "title": text(title),
        "subtitle": text(subtitle),
        "tiles": tiles,
        "chart": chart(curves),
        "sections": "".join(_section(section) for section in sections),
        "notice": f'<p class="warning">{text(notice)}</p>' if notice else "",
        "settings": _pairs(settings),
        "facts": _pairs(facts),
    }
    # In one go: rows may hold text in double braces.
    template = TEMPLATE.read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found.group(1)], template)


def settings(config: Any, train_rows: int, held_out_rows: int) -> dict[str, object]:
    """What both trainers' pages say at the top, from a trainer's checked configuration."""
    run, sft, lora = config.run, config.sft, config.lora
    limited = sft.get("max_steps", -1) > 0
    return {
        "run": run.id,
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "model": config.model.model_name_or_path,
        "data set": config.data.dataset_name,
        "rows": f"{train_rows} training, {held_out_rows} held-out",
        "learning rate": f"{sft['learning_rate']:g}, {sft.get('lr_scheduler_type', 'linear')}",
        "LoRA": f"rank {lora['r']}, alpha {lora.get('lora_alpha')}",
        "epochs": None if limited else sft.get("num_train_epochs"),
        "max_steps": sft["max_steps"] if limited else None,
        "machines": f"{run.nodes} with {run.workers_per_node} workers each, {run.device}",
        "output folder": run.output_dir,
        "image": run.image,
    }


def tiny(parameters: int) -> str:
    """The notice for a model too small to learn the task; empty for every real Gemma."""
    if parameters >= 50e6:
        return ""
    return (
        f"A model of {parameters / 1e6:.1f} million parameters: this page shows that the path "
        "works, not what Gemma learns."
    )


def percent(value: float | None) -> str:
    """A share as `41.5 %`, or a dash."""
    return "-" if value is None else f"{100 * value:.1f} %"


def text(value: str) -> str:
    """`value` with HTML's own characters escaped."""
    return html.escape(value)


def code(value: str) -> Raw:
    """A cell that shows program text, lines kept."""
    return Raw(f"<pre>{text(value)}</pre>")


def badge(label: str, good: bool | None) -> Raw:
    """A cell with a verdict: green, red, or grey where `good` is None."""
    kind = {True: "good", False: "bad", None: "plain"}[good]
    return Raw(f'<span class="badge {kind}">{text(label)}</span>')


def picture(png: bytes, alt: str = "", width: int = 128) -> Raw:
    """A cell with a PNG picture, put into the page itself."""
    data = base64.b64encode(png).decode()
    return Raw(f'<img width="{width}" alt="{text(alt)}" src="data:image/png;base64,{data}">')


def chart(curves: Mapping[str, Sequence[Point]], width: int = 860, height: int = 300) -> str:
    """An SVG line chart; points that are not finite are left out.

    One y axis serves all curves, from the lowest to the highest value; the x axis holds steps.
    """
    drawn = {
        name: [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]
        for name, points in curves.items()
    }
    drawn = {name: points for name, points in drawn.items() if points}
    if not drawn:
        return '<p class="note">no points were logged</p>'
    xs = [x for points in drawn.values() for x, _ in points]
    ys = [y for points in drawn.values() for _, y in points]
    left, right, top, bottom = 56, width - 16, 16, height - 36
    low_x, high_x = min(xs), max(*xs, min(xs) + 1)
    ticks_y = ticks(min(ys), max(ys))
    low_y, high_y = min(ticks_y[0], *ys), max(ticks_y[-1], *ys)

    def at(x: float, y: float) -> tuple[float, float]:
        px = left + (x - low_x) / (high_x - low_x) * (right - left)
        py = bottom - (y - low_y) / (high_y - low_y) * (bottom - top)
        return round(px, 1), round(py, 1)

    parts = [f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="loss over steps">']
    for tick in ticks_y:
        _, y = at(low_x, tick)
        parts.append(f'<line class="grid" x1="{left}" y1="{y}" x2="{right}" y2="{y}"/>')
        parts.append(f'<text x="{left - 8}" y="{y + 4}" text-anchor="end">{tick:g}</text>')
    parts.append(f'<text x="{right}" y="{height - 2}" text-anchor="end">step</text>')
    for tick in ticks(low_x, high_x):
        if low_x <= tick <= high_x and float(tick).is_integer():
            x, _ = at(tick, low_y)
            parts.append(f'<text x="{x}" y="{bottom + 20}" text-anchor="middle">{tick:g}</text>')
    parts.append(f'<line class="axis" x1="{left}" y1="{bottom}" x2="{right}" y2="{bottom}"/>')
    for (name, points), colour in zip(drawn.items(), _colours(), strict=False):
        path = " ".join(f"{x},{y}" for x, y in (at(*point) for point in points))
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{path}"/>')
        if len(points) <= 60:
            for x, y in points:
                px, py = at(x, y)
                tip = f"<title>{text(name)} {y:.4g} at step {x:g}</title>"
                parts.append(f'<circle cx="{px}" cy="{py}" r="3" fill="{colour}">{tip}</circle>')
    parts.append("</svg>")
    keys = "".join(
        f'<span class="key"><i style="background:{colour}"></i>{text(name)}</span>'
        for name, colour in zip(drawn, _colours(), strict=False)
    )
    return "".join(parts) + f'<div class="keys">{keys}</div>'


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers that span `low` to `high`."""
    if high - low < 1e-12:
        high = low + max(abs(low) * 0.1, 1e-3)
    raw = (high - low) / about
    unit = 10 ** math.floor(math.log10(raw))
    step = next(unit * m for m in (1, 2, 2.5, 5, 10) if unit * m >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(n * step, 12) for n in range(first, last + 1)]


def _section(section: Section) -> str:
    head = "".join(f"<th>{text(column)}</th>" for column in section.columns)
    body = "".join(
        "<tr>"
        + "".join(
            f'<td data-column="{text(column)}">'
            f"{cell.html if isinstance(cell, Raw) else text(cell)}</td>"
            for column, cell in zip(section.columns, row, strict=True)
        )
        + "</tr>"
        for row in section.rows
    )
    note = f'<p class="note">{text(section.note)}</p>' if section.note else ""
    kind = " class='equal'" if section.equal else ""
    return (
        f"<section><h2>{text(section.title)}</h2>{note}<div class='scroll'>"
        f"<table{kind}>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></section>"
    )


def _pairs(values: Mapping[str, object]) -> str:
    return "".join(
        f"<tr><th>{text(str(key))}</th><td>{text(str(value))}</td></tr>"
        for key, value in values.items()
        if value not in (None, "", {}, [])
    )


def _colours() -> Iterable[str]:
    while True:
        yield from COLOURS
