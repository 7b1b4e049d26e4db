"""`python -m tools`: bring the pinned tools, and say how each came."""

from __future__ import annotations

import argparse
import signal
import sys
import time

from tools import bin_dir, catalog, places
from tools.install import ToolsError, ensure
from tools.progress import Progress, duration
from tools.recipe import Tool

WAYS = {"path": "on PATH", "download": "downloaded", "build": "built"}


def table(tools: tuple[Tool, ...]) -> str:
    """One line a tool: name, version, way, source."""
    base = places.root()
    rows: list[tuple[str, str, str, str]] = []
    for tool in tools:
        way = places.way_of(base, tool)
        kind = WAYS.get(str(way.get("way")), "put there")
        rows.append((tool.name, tool.version, kind, str(way.get("source", ""))))
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    return "\n".join(
        "  " + "  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[3]])
        for row in rows
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"sets ({', '.join(catalog.SETS)}) or tools ({', '.join(catalog.BY_NAME)}); "
        "default: demo",
    )
    parser.add_argument("--path", action="store_true", help="print the folder for PATH and stop")
    options = parser.parse_args(arguments)
    if options.path:
        print(bin_dir())
        return 0
    try:
        tools = catalog.select(tuple(options.names))
    except ValueError as error:
        parser.error(str(error))
    # An end by `kill` must end the compilers too, as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    progress = Progress()
    base, start = places.root(), time.monotonic()
    if all(places.installed(base, tool) for tool in tools):
        ensure(tools, progress)
        progress.say(f"{len(tools)} tools are there: {bin_dir()}")
        return 0
    try:
        ensure(tools, progress)
    except ToolsError as error:
        progress.say(str(error))
        return 1
    except KeyboardInterrupt:
        progress.say("stopped; what was compiled is kept in Go's cache")
        return 130
    progress.say(f"done in {duration(time.monotonic() - start)}: {bin_dir()}")
    print(table(tools), file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
