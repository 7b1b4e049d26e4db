"""What `docker build` would refuse in a Dockerfile and its context."""

from __future__ import annotations

import fnmatch
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

INSTRUCTIONS = re.compile(
    "FROM|RUN|CMD|LABEL|EXPOSE|ENV|ADD|COPY|ENTRYPOINT|VOLUME|USER|WORKDIR|ARG|ONBUILD|STOPSIGNAL"
    "|HEALTHCHECK|SHELL"
)


class DockerfileError(Exception):
    """The build fails at `line`; the message is what the builder prints."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"line {line}: {message}")
        self.line = line


@dataclass
class Step:
    """One instruction: its first line in the file, its name and what follows."""

    line: int
    instruction: str
    rest: str

    def __str__(self) -> str:
        return f"{self.instruction} {self.rest}".strip()


@dataclass
class _Scope:
    stages: set[str] = field(default_factory=set[str])
    arguments: dict[str, str] = field(default_factory=dict[str, str])


def parse(text: str) -> list[Step]:
    """The instructions. Raises DockerfileError for one that no builder knows."""
    steps: list[Step] = []
    pending, start, heredoc = "", 0, ""
    for number, raw in enumerate(text.splitlines(), 1):
        if heredoc:
            heredoc = "" if raw.strip() == heredoc else heredoc
            continue
        stripped = raw.strip()
        if not stripped or stripped.startswith("#"):
            continue
        start = start or number
        if stripped.endswith("\\"):
            pending += stripped[:-1] + " "
            continue
        word, _, rest = (pending + stripped).partition(" ")
        if not INSTRUCTIONS.fullmatch(word.upper()):
            raise DockerfileError(start, f"dockerfile parse error: unknown instruction: {word}")
        steps.append(Step(start, word.upper(), " ".join(rest.split())))
        if found := re.search(r"<<-?['\"]?(\w+)['\"]?", rest):
            heredoc = found[1]
        pending, start = "", 0
    if not any(step.instruction == "FROM" for step in steps):
        raise DockerfileError(start or 1, "no build stage: a Dockerfile needs a FROM")
    if pending:
        raise DockerfileError(start, "dockerfile parse error: the line is not finished")
    return steps


def check(steps: list[Step], context: Path) -> None:
    """Raises DockerfileError at the first step that cannot work with this context."""
    scope = _Scope()
    ignored = _ignored(context)
    began = False
    for step in steps:
        if step.instruction == "ARG":
            name, _, value = step.rest.partition("=")
            scope.arguments[name.strip()] = value.strip("\"'")
        elif step.instruction == "FROM":
            began = True
            _from(step, scope)
        elif not began:
            raise DockerfileError(step.line, "no build stage in current context")
        elif step.instruction in ("COPY", "ADD"):
            _copy(step, scope, context, ignored)


def _from(step: Step, scope: _Scope) -> None:
    words = [word for word in step.rest.split() if not word.startswith("--")]
    image = re.sub(r"\$\{?(\w+)\}?", lambda m: scope.arguments.get(m[1], ""), words[0])
    if not image:
        raise DockerfileError(
            step.line, f"base name ({words[0]}) should not be blank: failed to parse stage"
        )
    if len(words) == 3:
        scope.stages.add(words[2])


def _copy(step: Step, scope: _Scope, context: Path, ignored: list[str]) -> None:
    words = shlex.split(step.rest)
    flags = [word for word in words if word.startswith("--")]
    paths = [word for word in words if not word.startswith("--")]
    stage = next((f.removeprefix("--from=") for f in flags if f.startswith("--from=")), None)
    if stage is not None:
        if stage not in scope.stages and not stage.isdigit() and not re.search(r"[/:.]", stage):
            raise DockerfileError(step.line, f"{step}: stage {stage} does not exist")
        return
    if len(paths) < 2:
        raise DockerfileError(step.line, f"{step.instruction} requires two arguments")
    for source in paths[:-1]:
        if source.startswith(("http://", "https://", "<<")):
            continue
        found = list(context.glob(source.strip("/") or "*"))
        names = [str(path.relative_to(context)) for path in found]
        if not any(not _is_ignored(name, ignored) for name in names):
            raise DockerfileError(
                step.line,
                f"{step}: failed to compute cache key: failed to calculate checksum of ref: "
                f'"/{source.lstrip("/")}": not found',
            )


def _ignored(context: Path) -> list[str]:
    try:
        lines = (context / ".dockerignore").read_text().splitlines()
    except FileNotFoundError:
        return []
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def _is_ignored(name: str, patterns: list[str]) -> bool:
    """Docker's rule: the last pattern that matches the path or a parent of it decides."""
    result = False
    for pattern in patterns:
        negated = pattern.startswith("!")
        plain = pattern.lstrip("!").strip("/").removeprefix("**/")
        parts = name.split("/")
        heads = ["/".join(parts[: i + 1]) for i in range(len(parts))]
        if any(fnmatch.fnmatch(head, plain) for head in heads):
            result = not negated
    return result
