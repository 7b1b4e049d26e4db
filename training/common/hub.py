"""The Hugging Face Hub: models and data sets from it, adapters to it.

What it refuses is found before a run starts, by `check` and `check_write`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from training.common.config import ConfigError, Problem
from training.common.hub_errors import (
    ANOTHER,
    NEW_TOKEN,
    TOKENS,
    Kind,
    UnreachableError,
    account,
    explained,
    wrong_token,
)

WEIGHTS = ("*.safetensors", "*.bin", "*.gguf", "*.pt", "*.pth")
OPEN_TO_ALL = ("README.md", ".gitattributes")  # of a gated repository


def check(name: str, revision: str, kind: Kind) -> None:
    """Make sure that `download` will be allowed to; two requests, nothing is downloaded.

    Raises:
        ConfigError: the Hub refuses, or HF_HUB_OFFLINE is set and the cache is incomplete.
        UnreachableError: the Hub does not answer and the cache is incomplete.
    """
    from httpx2 import TransportError  # the client's own HTTP library
    from huggingface_hub import HfApi, errors, get_hf_file_metadata, hf_hub_url

    with explained(name, revision, kind):
        try:
            info: Any = HfApi().repo_info(name, repo_type=kind, revision=revision, timeout=30)
            files = [file.rfilename for file in info.siblings or []]
            closed = [file for file in files if file not in OPEN_TO_ALL]
            if closed:  # who has not accepted a licence may see all but the files
                address = hf_hub_url(name, closed[0], repo_type=kind, revision=info.sha)
                get_hf_file_metadata(address, timeout=30)
        except (TransportError, errors.OfflineModeIsEnabled):
            download(name, revision, kind, offline=True)


def commit(name: str, revision: str, kind: Kind) -> str:
    """The commit that a branch or tag stands for: the Hub's word, or the cache's without it.

    Raises:
        ConfigError, UnreachableError: as `check`.
    """
    from httpx2 import TransportError
    from huggingface_hub import HfApi, errors

    with explained(name, revision, kind):
        try:
            info = HfApi().repo_info(name, repo_type=kind, revision=revision, timeout=30)
        except (TransportError, errors.OfflineModeIsEnabled):
            # The cache names a folder by its commit.
            return download(name, revision, kind, weights=False, offline=True).name
    return str(info.sha)


def download(
    name: str, revision: str, kind: Kind, *, weights: bool = True, offline: bool = False
) -> Path:
    """The cache's folder with the repository's files at `revision`.

    Args:
        name: owner/name.
        revision: branch, tag or commit.
        kind: `model` or `dataset`.
        weights: False leaves the weights out.
        offline: look at the cache alone.

    Raises:
        ConfigError, UnreachableError: as `check`.
    """
    from huggingface_hub import snapshot_download

    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    with explained(name, revision, kind):
        return Path(
            snapshot_download(
                name,
                repo_type=kind,
                revision=revision,
                ignore_patterns=None if weights else list(WEIGHTS),
                local_files_only=offline,
            )
        )


def check_write(repository: str, *, private: bool = True) -> None:
    """Make sure before training that the token may write to `repository`, which is made if absent.

    Raises:
        ConfigError: no token, a token that may not write there, or a repository that is public
            while `private` is asked for.
        UnreachableError: the Hub does not answer.
    """
    from httpx2 import TransportError
    from huggingface_hub import HfApi, errors, get_token

    def refuse(key: str, value: object, allowed: str, fix: str) -> ConfigError:
        return ConfigError([Problem(f"trainer.sft.{key}", value, allowed, fix)])

    if get_token() is None:
        allowed = f"a repository, and a token that may write to it: make one at {TOKENS}"
        raise refuse("hub_model_id", repository, allowed, NEW_TOKEN)
    api = HfApi()
    try:
        # `exist_ok` also lets a token through that may only read what is there: so ask for more.
        api.create_repo(repository, private=private, exist_ok=True)
        api.auth_check(repository, write=True)
        public = not api.repo_info(repository).private
    except errors.HFValidationError as error:
        allowed = "owner/name, of letters, digits, `-`, `_` and `.`"
        raise refuse("hub_model_id", repository, allowed, ANOTHER) from error
    except errors.HfHubHTTPError as error:
        if problem := wrong_token(error):
            raise ConfigError([problem]) from error
        if error.response.status_code not in (403, 404):
            raise UnreachableError(f"the Hub failed to answer for {repository}: {error}") from error
        allowed = (
            f"a repository of the token's account ({account()}/NAME), and a token that may write "
            f"to it: open {TOKENS}"
        )
        raise refuse("hub_model_id", repository, allowed, NEW_TOKEN) from error
    except TransportError as error:
        raise UnreachableError(f"the Hub ({api.endpoint}) cannot be reached: {error}") from error
    if public and private:
        allowed = (
            "false, since the repository is public already; or make it private at "
            f"https://huggingface.co/{repository}/settings"
        )
        raise refuse("hub_private_repo", True, allowed, ANOTHER.replace("VALUE", "false"))


def push(folder: Path, repository: str, message: str) -> str:
    """Upload a local folder as one commit; return the repository's page.

    Args:
        folder: with the adapter and its card.
        repository: as `check_write` has seen it.
        message: of the commit.
    """
    from huggingface_hub import HfApi

    api = HfApi()
    api.upload_folder(folder_path=folder, repo_id=repository, commit_message=message)
    return f"{api.endpoint}/{repository}"
