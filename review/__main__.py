"""`python -m review [BASE] [--stack dev] [--out FILE]`: the comment for the working tree's change.

Without BASE, the change from nothing: a preview of the stack with no cloud account.
Exit status: 0 when the preview succeeds, 1 when it stops (the comment then says why), 2 when BASE
or the tools are missing.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from review import comment, engine, program


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line and returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m review", description=__doc__)
    parser.add_argument(
        "base", nargs="?", help="git reference to compare with, for example origin/main"
    )
    parser.add_argument("--stack", default="dev", help="stack whose settings are used (dev)")
    parser.add_argument(
        "--full", action="store_true", help="print the full diff to a terminal as well"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=os.environ.get("OUT") or None,
        help="file for the Markdown, besides stdout ($OUT)",
    )
    options = parser.parse_args(arguments)
    repository = Path(__file__).resolve().parent.parent
    commit, base = None, "nothing deployed"
    try:
        program.check_settings(repository, options.stack)
    except program.NoSettings as error:
        print(error, file=sys.stderr)
        return 2
    if options.base:
        try:
            commit = program.fork_point(repository, options.base)
        except program.NoSuchBase as error:
            print(error, file=sys.stderr)
            return 2
        base = f"{comment.code(options.base)} ({commit[:10]})"
    text, failed = review(repository, commit, options.stack, base)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text)
    if sys.stdout.isatty() and not options.full:
        text = f"{text.partition('<details>')[0].rstrip()}\n\nThe full diff: --full (FULL=1)\n"
    print(text, end="")
    return 1 if failed else 0


def review(repository: Path, commit: str | None, stack: str, base: str) -> tuple[str, bool]:
    """The comment, and whether the working tree's preview stops."""
    from sandbox import Sandbox  # starts servers: not for `--help` or a mistyped reference

    with (
        tempfile.TemporaryDirectory(prefix="review-") as work,
        Sandbox(Path(work) / "sandbox", run_pods=False) as sandbox,
    ):
        found = engine.compare(sandbox, repository, commit, stack, Path(work))
    return comment.render(found, stack, base), bool(found.errors)


if __name__ == "__main__":
    sys.exit(main())
