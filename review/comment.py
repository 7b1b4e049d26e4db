"""Writes a `Preview` as the Markdown of one comment. Same preview, same text: no time, no order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from review import causes, values
from review.digest import Change, Preview, Verdict

LONGEST = 65_000  #: characters; GitHub refuses comments above 65,536
MOST_ROWS = 60  #: of the table; all that is left out stands in the full diff
MOST_PATHS = 4
COUNTS: tuple[tuple[Verdict, str], ...] = (
    ("create", "create"),
    ("update", "update"),
    ("replace", "replace"),
    ("delete", "delete"),
)
SIGNS: dict[Verdict, str] = {"create": "+", "update": "#", "replace": "!", "delete": "-"}
CONSEQUENCES: dict[tuple[str, Verdict], str] = {
    ("cluster", "replace"): "every run on it stops, and all that is in it is made anew",
    ("cluster", "delete"): "every run on it stops, and all that is in it is gone",
    ("bucket", "replace"): "adapters, checkpoints and reports in it go with the old bucket",
    ("bucket", "delete"): "adapters, checkpoints and reports in it are gone",
    ("run", "replace"): "it stops where it is and trains from the start, into a new folder",
    ("run", "delete"): "it stops where it is; its folder in the bucket stays",
    ("repository", "replace"): "its images are gone, and a run that is going cannot pull again",
    ("repository", "delete"): "its images are gone, and a run that is going cannot pull again",
    ("account", "replace"): "what acts as it stops, and rights granted to it by hand are lost",
    ("account", "delete"): "what acts as it stops, and rights granted to it by hand are lost",
    ("cluster", "update"): "it is protected no longer, so that a later mistake can take it",
    ("bucket", "update"): "it is protected no longer, so that a later mistake can take it",
}


def marker(stack: str) -> str:
    """First line of a comment: the workflow finds the comment to update by it."""
    return f"<!-- preview of {stack} -->"


def render(preview: Preview, stack: str, base: str) -> str:
    """Markdown for the change from `base` to the working tree.

    Args:
        preview: what the engine said.
        stack: name of the stack.
        base: how the reader knows the base, for example `origin/main (1a2b3c4)`.
    """
    if preview.errors:
        return _page(
            stack,
            f"### Preview of `{stack}` stops",
            "Nothing would be deployed. The program says:",
            _fence("\n\n".join(preview.errors), ""),
        )
    if not preview.changes:
        return _page(
            stack,
            f"### Preview of `{stack}`: no change",
            f"{_stay(preview)} at {base}.",
        )
    text = _page(
        stack,
        f"### Preview of `{stack}`: {_counts(preview)}",
        _warning(preview.changes),
        _demands(preview),
        _compared(preview, base),
        _table(preview.changes),
    )
    return f"{text}\n{_details(preview.changes, LONGEST - len(text))}\n"


def _page(stack: str, *parts: str) -> str:
    return "\n\n".join([marker(stack), *filter(None, parts)]) + "\n"


def _compared(preview: Preview, base: str) -> str:
    if preview.base_error:
        return (
            f"The program at {base} cannot be deployed, so all of it is shown as new. It says:\n\n"
            f"{_fence(preview.base_error, '')}"
        )
    return f"Compared with {base}; {_stay(preview)}."


def _stay(preview: Preview) -> str:
    return "1 resource stays as it is" if preview.same == 1 else f"{preview.same} stay as they are"


def _counts(preview: Preview) -> str:
    return ", ".join(
        f"{count} {word}{'' if count == 1 else 's'}"
        for verdict, word in COUNTS
        for count in [preview.count(verdict)]
    )


def _warning(changes: Sequence[Change]) -> str:
    rows = [
        f"> - **{change.verdict}s the {change.kind}** {code(change.name)}: "
        f"{CONSEQUENCES[change.kind, change.verdict]}{_because(change, changes)}"
        for change in changes
        if change.critical and change.kind
    ]
    return "\n".join(["> [!WARNING]", *rows]) if rows else ""


def _demands(preview: Preview) -> str:
    rows = [f"- {code(name)}: {text}" for name, text in preview.demands]
    if not rows:
        return "No run is enabled: it takes no machine, and trains nothing."
    return "\n".join(["Machines that each run takes while it goes:\n", *rows])


def _because(change: Change, changes: Sequence[Change]) -> str:
    found = causes.causes(change, changes) if change.verdict == "replace" else []
    return f" (because of {_paths(found)})" if found else ""


def _paths(paths: Iterable[str]) -> str:
    shown = list(paths)
    more = len(shown) - MOST_PATHS
    text = ", ".join(code(path) for path in shown[:MOST_PATHS])
    return f"{text} and {more} more" if more > 0 else text


def _table(changes: Sequence[Change]) -> str:
    head = ["| | resource | type | what changes |", "|---|---|---|---|"]
    more = len(changes) - MOST_ROWS
    tail = [f"| … | {more} more | | |"] if more > 0 else []
    return "\n".join([*head, *map(_row, changes[:MOST_ROWS]), *tail])


def _row(change: Change) -> str:
    cells = _strong(change), code(change.name), code(change.type), _paths(causes.paths(change))
    return f"| {' | '.join(cells)} |"


def _strong(change: Change) -> str:
    return f"**{change.verdict}**" if change.critical else change.verdict


def code(text: str) -> str:
    """Inline code that neither ends early, nor breaks a table, nor notifies anybody."""
    return "`" + text.replace("`", "'").replace("|", "¦").replace("\n", " ") + "`"


def _details(changes: Iterable[Change], budget: int) -> str:
    blocks, size, left_out = list[str](), 300, 0  # 300: the tags and the note around the blocks
    for change in changes:
        block = diff(change)
        size += len(block) + 1
        if size > budget:
            left_out += 1
        else:
            blocks.append(block)
    body = _fence("\n".join(blocks), "diff")
    note = f"\n\nToo long for a comment: {left_out} more are left out here." if left_out else ""
    return f"<details><summary>Full diff</summary>\n\n{body}{note}\n\n</details>"


def diff(change: Change) -> str:
    """The change of one resource as lines of a diff, with a heading."""
    heading = f"{SIGNS[change.verdict]} {change.verdict} {change.type} {change.name}"
    found = values.differences(change.old, change.new)
    return "\n".join([heading, *(line for item in found for line in values.lines(item))])


def _fence(text: str, language: str) -> str:
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"
