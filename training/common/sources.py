"""Models and data sets from the Hugging Face Hub, a bucket or a folder, by the same key."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path

from training.common import hub
from training.common.config import ConfigError, Problem
from training.common.hub import WEIGHTS
from training.common.hub_errors import KEYS, Kind
from training.common.storage import Folder

LOCAL = ("/", "./", "../", "~")


def scratch() -> Path:
    """The folder for what may be lost with the pod: GEMMA_SCRATCH, or the system's own."""
    return Path(os.environ.get("GEMMA_SCRATCH") or tempfile.gettempdir())


def fetch(name: str, revision: str, kind: Kind, *, weights: bool = True) -> Path:
    """A local folder with the model or the data set.

    Args:
        name: a Hub id (`google/gemma-4-31B-it`), a gs:// folder or a local folder.
        revision: branch, tag or commit on the Hub; unused for folders.
        kind: `model` or `dataset`.
        weights: False leaves the weights out (config, tokenizer and templates only).

    Raises:
        ConfigError: what a retry cannot mend: no such folder, repository or revision, a licence
            not accepted, a token that the Hub refuses. The text names the page to open.
        UnreachableError: the Hub could not be reached.
    """
    from filelock import FileLock

    key, _ = KEYS[kind]
    if "://" in name:
        place = scratch() / "sources" / hashlib.sha256(name.encode()).hexdigest()[:16]
        place.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{place}.lock"):
            return _from_bucket(name, place, key, weights)
    if _is_folder(name):
        folder = Path(name).expanduser()
        if not folder.is_dir():
            raise ConfigError([Problem(key, name, "a folder that exists")])
        return folder
    return hub.download(name, revision, kind, weights=weights)


def check(name: str, revision: str, kind: Kind) -> None:
    """Raise what `fetch` would raise for a wrong name, revision or token, without the download."""
    key, _ = KEYS[kind]
    if "://" in name:
        if not Folder(name).list():
            raise ConfigError([Problem(key, name, "a folder of a bucket that holds objects")])
    elif _is_folder(name):
        fetch(name, revision, kind)
    else:
        hub.check(name, revision, kind)


def commit(name: str, revision: str, kind: Kind) -> str | None:
    """The commit that a revision on the Hub stands for now; None for a folder.

    Raises:
        ConfigError, UnreachableError: as `fetch`.
    """
    local = "://" in name or _is_folder(name)
    return None if local else hub.commit(name, revision, kind)


def _is_folder(name: str) -> bool:
    return name.startswith(LOCAL) or Path(name).is_dir()


def _from_bucket(uri: str, place: Path, key: str, weights: bool) -> Path:
    """Bring `place` to what the bucket holds now: a pod of a shared cluster outlives a run."""
    folder = Folder(uri)
    objects = folder.versions()
    if not objects:
        raise ConfigError([Problem(key, uri, "a folder of a bucket that holds objects")])
    known, record = Folder(place.parent), f"{place.name}.json"
    here: dict[str, str] = json.loads(known.read(record)) if known.exists(record) else {}
    for name in here.keys() - objects.keys():
        (place / name).unlink(missing_ok=True)
    here = {name: version for name, version in here.items() if name in objects}
    for name, version in objects.items():
        if not weights and any(Path(name).match(pattern) for pattern in WEIGHTS):
            continue
        if here.get(name) != version or not (place / name).is_file():
            folder.download(name, place / name)
            here[name] = version
            known.write(record, json.dumps(here))
    return place
