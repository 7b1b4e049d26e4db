"""The symptoms in docs/troubleshooting.md are texts that the program really prints."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
#: Said by Pulumi, Google, Ray or Kubernetes: not ours to keep.
OTHERS = {
    "pulumi: command not found",
    "current node timed out during startup",
    "PULUMI_ACCESS_TOKEN must be set for login",
    "no stack named 'dev' found",
    "passphrase must be set",
    "incorrect passphrase",
    "could not find default credentials",
    "Google Compute Engine does not have enough resources",
    "the stack is currently locked by 1 lock(s)",
    "failed to load checkpoint: EOF",
    "interrupted while creating",
    "already exists",
    "Kubernetes cluster is unreachable",
}
PLACEHOLDER = re.compile(r"\b(?:N|X|Y|NAME|FOLDER|STATE|KINDS)\b|…|'…'")


def symptoms() -> Iterator[str]:
    """Texts in code style inside the bold headings."""
    for heading in re.findall(r"^\*\*(.+?)\*\*", PAGE, re.M):
        for text in re.findall(r"`([^`]+)`", heading):
            if " " in text and not text.startswith("make "):
                yield text


@functools.cache
def printed() -> str:
    """All string literals of the product and its tools; f-strings by their fixed parts."""
    return "\n".join(literals())


def literals() -> Iterator[str]:
    for folder in ("infra", "workloads", "training", "sandbox", "tools", "review"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.value


@pytest.mark.parametrize("symptom", sorted(set(symptoms()) - OTHERS))
def test_symptom_is_a_text_of_ours(symptom: str) -> None:
    parts = [part.strip(" :()'") for part in PLACEHOLDER.split(symptom)]
    assert [part for part in parts if len(part) > 3 and part not in printed()] == []


def test_texts_of_others_are_still_on_the_page() -> None:
    assert set(symptoms()) >= OTHERS
