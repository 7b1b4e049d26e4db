"""Container images as the Cloud Build stand-in leaves them: a folder with its Dockerfile."""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from string import Template

_DIGEST = re.compile(r"@sha256:([0-9a-f]{64})$")


#: File beside an image's Dockerfile: the `--build-arg`s of its build, as JSON.
ARGUMENTS = ".build-arguments.json"


class ImageError(RuntimeError):
    """The image is not in any registry of the sandbox."""


# What a base image that is not at hand surely sets, so that `ENV PATH=/opt/venv/bin:$PATH` expands.
BASE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Image:
    """What a container takes from its image; `files` is what lies at `workdir`."""

    files: Path
    environment: dict[str, str] = field(default_factory=dict[str, str])
    workdir: str = "/"
    user: str = ""
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()


def resolve(images: Path, reference: str) -> Image:
    """The image of `NAME@sha256:DIGEST`; raises ImageError when it was never built here."""
    match = _DIGEST.search(reference)
    if match is None:
        raise ImageError(f'image "{reference}" has no sha256 digest; the sandbox builds, not pulls')
    folder = images / f"sha256-{match[1]}"
    if not (folder / "Dockerfile").exists():
        raise ImageError(f'failed to pull image "{reference}": not found')
    given = folder / ARGUMENTS
    arguments: dict[str, str] = json.loads(given.read_text()) if given.exists() else {}
    return parse((folder / "Dockerfile").read_text(), folder, arguments)


def parse(dockerfile: str, files: Path, given: Mapping[str, str] | None = None) -> Image:
    """The configuration that the last stage of a Dockerfile gives its image.

    `given` holds the build's `--build-arg`s, which count where an ARG asks for them.
    """
    stages: dict[str, Image] = {}
    stage = ""
    image = Image(files)
    arguments: dict[str, str] = {}
    for line in _logical_lines(dockerfile):
        word, _, rest = line.partition(" ")
        rest = rest.strip()
        if word.upper() not in ("CMD", "ENTRYPOINT", "RUN"):
            rest = Template(rest).safe_substitute({**arguments, **image.environment})
        match word.upper():
            case "ARG":
                name, _, value = rest.partition("=")
                arguments.setdefault(name, (given or {}).get(name, value.strip("\"'")))
            case "FROM":
                parts = [part for part in rest.split() if not part.startswith("--")]
                image = stages.get(parts[0], Image(files, {"PATH": BASE_PATH}))
                stage = parts[2] if len(parts) == 3 else ""
            case "ENV":
                image = replace(image, environment={**image.environment, **_pairs(rest)})
            case "WORKDIR":
                image = replace(image, workdir=posixpath.normpath(f"{image.workdir}/{rest}"))
            case "USER":
                image = replace(image, user=rest)
            case "ENTRYPOINT":
                image = replace(image, entrypoint=_words(rest), command=())
            case "CMD":
                image = replace(image, command=_words(rest))
            case _:
                pass
        stages[stage] = image
    return replace(image, workdir=posixpath.normpath(f"/{image.workdir.lstrip('/')}"))


def _logical_lines(text: str) -> list[str]:
    """Instructions, with continued lines joined and comments left out."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\[ \t]*\n", " ", "\n".join(lines))
    return [line.strip() for line in joined.splitlines() if line.strip()]


def _pairs(rest: str) -> dict[str, str]:
    words = shlex.split(rest)
    if words and "=" not in words[0]:  # the old form: ENV NAME value with spaces
        return {words[0]: " ".join(words[1:])}
    return dict(word.split("=", 1) for word in words if "=" in word)


def _words(rest: str) -> tuple[str, ...]:
    """The exec form, or the shell form through /bin/sh."""
    if rest.startswith("["):
        return tuple(json.loads(rest))
    return ("/bin/sh", "-c", rest)
