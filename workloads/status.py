"""Shows how each run is doing: `python -m workloads.status [--watch] [--json]`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import textwrap
import time
from collections.abc import Sequence
from datetime import UTC, datetime

from workloads.client import NAMESPACE, Cluster, UnreachableError
from workloads.overview import RunStatus, overview

HEADINGS = ("RUN", "ID", "KIND", "PHASE", "AGE", "MACHINES")


def table(runs: Sequence[RunStatus], now: datetime) -> str:
    """The runs as text: a line each, below it progress, reason, deadline and results."""
    if not runs:
        return "No runs. Add one to gemma:runs and `pulumi up`."
    rows = [_cells(run, now) for run in runs]
    widths = [max(map(len, column)) for column in zip(HEADINGS, *rows, strict=True)]
    lines = [_line(HEADINGS, widths)]
    for run, cells in zip(runs, rows, strict=True):
        lines.append(_line(cells, widths))
        if run.progress:
            lines.append(f"    {run.progress}")
        if run.why:
            lines += textwrap.wrap(
                run.why, 100, initial_indent="    why: ", subsequent_indent="         "
            )
        if run.gives_up and not run.ended:
            left = (run.gives_up - now).total_seconds()
            lines.append(f"    deadline in {duration(max(left, 0))}")
        if run.folder:
            lines.append(f"    results: {run.folder}")
    return "\n".join(lines)


def _cells(run: RunStatus, now: datetime) -> tuple[str, ...]:
    nodes, pods = run.machines
    machines = f"{len(nodes)}/{pods}" + (f" {', '.join(dict.fromkeys(nodes))}" if nodes else "")
    age = duration((now - run.since).total_seconds()) if run.since else "-"
    return run.name, run.id, run.kind, run.phase, age, "-" if run.ended else machines


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
    return "  ".join(padded).rstrip()


def duration(seconds: float) -> str:
    """Seconds in the two largest units, as kubectl writes them: 3m10s, 5h2m, 4d1h."""
    left = int(seconds)
    units = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
    for index, (unit, size) in enumerate(units):
        if left >= size:
            whole, rest = divmod(left, size)
            if index + 1 == len(units) or not (below := rest // units[index + 1][1]):
                return f"{whole}{unit}"
            return f"{whole}{unit}{below}{units[index + 1][0]}"
    return "0s"


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 unless the cluster cannot be asked."""
    parser = argparse.ArgumentParser(prog="python -m workloads.status", description=__doc__)
    parser.add_argument("--namespace", default=NAMESPACE)
    parser.add_argument("--stack", help="whose cluster; else KUBECONFIG's or the selected stack's")
    parser.add_argument("--watch", action="store_true", help="show it again every 5 seconds")
    parser.add_argument("--json", action="store_true", help="as JSON, for programs")
    options = parser.parse_args(arguments)
    try:
        cluster = Cluster(options.namespace, options.stack)
        while True:
            runs = overview(cluster.snapshot(), cluster.tail)
            if options.json:
                print(json.dumps([dataclasses.asdict(run) for run in runs], default=str))
            else:
                print(table(runs, datetime.now(UTC)), flush=True)
            if not options.watch:
                return 0
            time.sleep(5)
            print()
    except UnreachableError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
