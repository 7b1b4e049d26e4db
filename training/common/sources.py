"""Models and data sets from the Hugging Face Hub, a bucket or a folder, by the same key."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Literal

from training.common.config import ConfigError, Problem
from training.common.storage import Folder

Kind = Literal["model", "dataset"]
KEYS = {
    "model": ("trainer.model.model_name_or_path", "trainer.model.model_revision"),
    "dataset": ("trainer.data.dataset_name", "trainer.data.dataset_revision"),
}
LOCAL = ("/", "./", "../", "~")
WEIGHTS = ("*.safetensors", "*.bin", "*.gguf", "*.pt", "*.pth")


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
        RuntimeError: the Hub or the bucket could not be reached.
    """
    from filelock import FileLock

    key, _ = KEYS[kind]
    if "://" in name:
        place = scratch() / "sources" / hashlib.sha256(name.encode()).hexdigest()[:16]
        place.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{place}.lock"):
            return _from_bucket(name, place, key, weights)
    if name.startswith(LOCAL) or Path(name).is_dir():
        folder = Path(name).expanduser()
        if not folder.is_dir():
            raise ConfigError([Problem(key, name, "a folder that exists")])
        return folder
    return _from_hub(name, revision, kind, weights=weights)


def check(name: str, revision: str, kind: Kind) -> None:
    """Raise what `fetch` would raise for a wrong name, revision or token, without the download."""
    key, _ = KEYS[kind]
    if "://" in name:
        if not Folder(name).list():
            raise ConfigError([Problem(key, name, "a folder of a bucket that holds objects")])
    elif name.startswith(LOCAL) or Path(name).is_dir():
        fetch(name, revision, kind)
    else:
        # Everything but the data itself: a few small files at most.
        _from_hub(name, revision, kind, ["*config.json", "README.md"])


def _from_bucket(uri: str, place: Path, key: str, weights: bool) -> Path:
    folder = Folder(uri)
    objects = folder.list()
    if not objects:
        raise ConfigError([Problem(key, uri, "a folder of a bucket that holds objects")])
    for name, size in objects.items():
        if not weights and any(Path(name).match(pattern) for pattern in WEIGHTS):
            continue
        target = place / name
        if not target.is_file() or target.stat().st_size != size:
            folder.download(name, target)
    return place


def _from_hub(
    name: str, revision: str, kind: Kind, only: list[str] | None = None, *, weights: bool = True
) -> Path:
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    from huggingface_hub import errors, snapshot_download

    key, revision_key = KEYS[kind]
    page = f"https://huggingface.co/{'datasets/' if kind == 'dataset' else ''}{name}"
    try:
        return Path(
            snapshot_download(
                name,
                repo_type=kind,
                revision=revision,
                allow_patterns=only,
                ignore_patterns=None if weights else list(WEIGHTS),
            )
        )
    except errors.GatedRepoError as error:
        allowed = f"a {kind} whose licence the token's account has accepted: open {page}"
        raise ConfigError([Problem(key, name, allowed, _TOKEN)]) from error
    except errors.RevisionNotFoundError as error:
        allowed = f"a branch, tag or commit listed at {page}/commits/main"
        raise ConfigError([Problem(revision_key, revision, allowed)]) from error
    except errors.RepositoryNotFoundError as error:
        allowed = f"a {kind} that the token may read ({page} answers 'not found' or 'unauthorised')"
        raise ConfigError([Problem(key, name, allowed, _TOKEN)]) from error
    except errors.HFValidationError as error:
        allowed = "a Hub id (owner/name), a gs:// folder or a folder that exists"
        raise ConfigError([Problem(key, name, allowed)]) from error
    except errors.HfHubHTTPError as error:
        if error.response is not None and error.response.status_code in (401, 403):
            allowed = "a token that the Hub accepts: https://huggingface.co/settings/tokens"
            raise ConfigError([Problem("gemma:huggingFaceToken", "…", allowed, _TOKEN)]) from error
        raise RuntimeError(f"the Hub failed to give {name}: {error}") from error
    except errors.LocalEntryNotFoundError as error:
        raise RuntimeError(
            f"the Hub cannot be reached and {name}@{revision} is not in the cache at "
            f"{os.environ.get('HF_HOME', '~/.cache/huggingface')}"
        ) from error


_TOKEN = "pulumi config set --secret gemma:huggingFaceToken TOKEN"
