"""Pushing an adapter to the Hugging Face Hub: refused early, done once at the end."""

from __future__ import annotations

from pathlib import Path

from training.common.config import ConfigError, Problem

KEY = "trainer.sft.hub_model_id"


def check_write(repository: str, *, private: bool = True) -> None:
    """Make sure before training that the token may write to `repository` (made if absent).

    Raises:
        ConfigError: no token, a read-only token, or somebody else's namespace.
    """
    from huggingface_hub import HfApi, errors

    try:
        HfApi().create_repo(repository, private=private, exist_ok=True)
    except errors.HfHubHTTPError as error:
        allowed = (
            "a repository that the token may write to: a token with write access "
            "(https://huggingface.co/settings/tokens) and a name in its own namespace"
        )
        fix = "pulumi config set --secret gemma:huggingFaceToken TOKEN"
        raise ConfigError([Problem(KEY, repository, allowed, fix)]) from error
    except (errors.LocalTokenNotFoundError, errors.HFValidationError) as error:
        raise ConfigError(
            [Problem(KEY, repository, f"owner/name and a token ({error})")]
        ) from error


def push(folder: Path, repository: str, message: str) -> str:
    """Upload a local folder as one commit; return its address."""
    from huggingface_hub import HfApi

    info = HfApi().upload_folder(folder_path=folder, repo_id=repository, commit_message=message)
    return str(info.commit_url)
