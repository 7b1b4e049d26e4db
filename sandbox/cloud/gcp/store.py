"""What the stand-in Google holds: one JSON file for each resource, written whole or not at all.

The files outlive the plugin: an engine killed between Google's creation and its own checkpoint
finds the resource there afterwards, exactly as with the real provider.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

Values = dict[str, Any]


@dataclass
class Record:
    """A resource as Google holds it."""

    type: str
    id: str
    urn: str
    inputs: Values
    state: Values
    notes: Values = field(default_factory=dict[str, Any])  # what no output shows


class Store:
    """The resources of one sandbox, under `folder`/resources, and project-wide facts beside them.

    Raises OSError where the folder cannot be written. Without a folder (an offline preview)
    nothing exists and nothing can be written.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def _path(self, type_: str, id_: str) -> Path:
        if self.folder is None:
            raise RuntimeError(
                "the stand-in gcp provider has no sandbox to keep resources in: "
                "GEMMA_SANDBOX_CLOUD is not set (only previews work without one)"
            )
        kind = type_.removeprefix("gcp:").replace("/", ".").replace(":", ".")
        return self.folder / "resources" / kind / (hashlib.sha256(id_.encode()).hexdigest()[:20])

    def get(self, type_: str, id_: str) -> Record | None:
        if self.folder is None:
            return None
        try:
            return Record(**json.loads(self._path(type_, id_).with_suffix(".json").read_bytes()))
        except FileNotFoundError:
            return None

    def put(self, record: Record) -> None:
        path = self._path(record.type, record.id).with_suffix(".json")
        write_atomically(path, json.dumps(asdict(record), indent=1, sort_keys=True))

    def remove(self, type_: str, id_: str) -> None:
        self._path(type_, id_).with_suffix(".json").unlink(missing_ok=True)

    def list(self, type_: str | None = None) -> Iterator[Record]:
        """All resources, or those of one type; a file removed meanwhile is skipped."""
        if self.folder is None:
            return
        kind = "*" if type_ is None else self._path(type_, "").parent.name
        for path in sorted((self.folder / "resources").glob(f"{kind}/*.json")):
            try:
                record = Record(**json.loads(path.read_bytes()))
            except FileNotFoundError:
                continue
            if type_ is None or record.type == type_:
                yield record

    def fact(self, name: str) -> Any:
        """A project-wide fact, such as the APIs that are enabled; None when never set."""
        if self.folder is None:
            return None
        try:
            return json.loads((self.folder / "facts" / f"{name}.json").read_bytes())
        except FileNotFoundError:
            return None

    def set_fact(self, name: str, value: Any) -> None:
        if self.folder is not None:
            write_atomically(self.folder / "facts" / f"{name}.json", json.dumps(value))


def write_atomically(path: Path, text: str) -> None:
    """Replaces a file in one step: after a SIGKILL it holds the old text or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}")
    temporary.write_text(text)
    temporary.replace(path)
