"""The Hugging Face token is seen nowhere in plain text, and renewing it disturbs no run."""

from __future__ import annotations

import base64
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FORMS = ("plain", "base64")


@pytest.fixture(scope="module")
def traces(deployed: Any) -> dict[str, bytes]:
    """All that a deployment leaves behind for others to read, by where it is found."""
    sandbox = deployed.sandbox
    preview = deployed.pulumi("preview", "--diff", "--stack", deployed.name)
    found = {
        "stack export": deployed.pulumi("stack", "export", "--stack", deployed.name).stdout,
        "stack output": deployed.pulumi("stack", "output", "--stack", deployed.name).stdout,
        "up": deployed.up().stdout,
        "preview": preview.stdout + preview.stderr,
        "settings": deployed.file.read_text(),
        "objects": sandbox.kubectl(
            "get", "configmap,job,rayjob,raycluster,pod,service,serviceaccount", "-A", "-o", "yaml"
        ),
    }
    texts = {name: text.encode() for name, text in found.items()}
    for folder in (sandbox.folder.pulumi_state, sandbox.folder.logs, sandbox.folder.cloud):
        texts.update(files(folder))
    texts.update(files(sandbox.folder.images))
    return texts


def files(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Regular files below a folder; archives by what is in them."""
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.is_symlink():
            continue
        try:
            data = path.read_bytes()
        except FileNotFoundError:  # the stand-in cloud replaces files as it goes on
            continue
        yield str(path), data
        if data[:2] == b"\x1f\x8b":
            with tarfile.open(fileobj=io.BytesIO(data)) as archive:
                for member in archive.getmembers():
                    content = archive.extractfile(member)
                    if content:
                        yield f"{path}!{member.name}", content.read()


@pytest.mark.parametrize("form", FORMS)
def test_token_is_nowhere(traces: dict[str, bytes], token: str, form: str) -> None:
    text = token.encode() if form == "plain" else base64.b64encode(token.encode())
    assert [name for name, data in traces.items() if text in data] == []


def test_the_search_would_find_it(traces: dict[str, bytes], deployed: Any, token: str) -> None:
    """The places searched are those that hold the deployment: what is no secret is found there."""
    region = deployed.base["gcp:region"].encode()
    places = {name.split("/")[-1] for name, data in traces.items() if region in data}
    assert {"stack export", "objects", f"{deployed.name}.json"} <= places
    secret = deployed.sandbox.objects("secret", "hugging-face-token", "-n", "gemma")[0]
    assert base64.b64decode(secret["data"]["token"]).decode() == token


def test_pods_read_the_token_by_reference(deployed: Any) -> None:
    for kind in ("job", "rayjob"):
        (found,) = deployed.sandbox.objects(kind, "-n", "gemma")
        entries = [item for item in walk(found["spec"]) if item.get("name") == "HF_TOKEN"]
        assert entries
        for entry in entries:
            assert entry["valueFrom"]["secretKeyRef"]["name"] == "hugging-face-token"
            assert "value" not in entry


def walk(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for item in value.values():
            yield from walk(item)
    elif isinstance(value, list):
        for item in value:
            yield from walk(item)
