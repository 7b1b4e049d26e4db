"""What the Hub's client raises, as what to open and what to type.

The Hub answers the same 401 for a repository that is absent, private or gated, and its client turns
a 403 into "check your internet connection": here each has its own words and its own remedy. In a
problem's fix, `{run}` stands for the run's name (see `preflight`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from training.common.config import ConfigError, Problem

Kind = Literal["model", "dataset"]
KEYS = {
    "model": ("trainer.model.model_name_or_path", "trainer.model.model_revision"),
    "dataset": ("trainer.data.dataset_name", "trainer.data.dataset_revision"),
}
TOKENS = "https://huggingface.co/settings/tokens"
# A run that ended stays ended when only the Secret or the account changed: its id is the same.
AGAIN = "pulumi config set --path 'gemma:runs.{run}.attempt' 2 && pulumi up"
# A pod does not know which of the two settings its token came from.
NEW_TOKEN = (
    f"pulumi config set --secret gemma:huggingFaceToken TOKEN && {AGAIN}; where "
    "gemma:huggingFaceSecret names a secret, begin with: "
    "gcloud secrets versions add SECRET --data-file=-"
)
ANOTHER = "pulumi config set --path '{key}' VALUE && pulumi up"


class UnreachableError(RuntimeError):
    """The Hub does not answer and the cache lacks what is needed; a retry may mend it."""


@contextmanager
def explained(name: str, revision: str, kind: Kind) -> Iterator[None]:
    """Turn the client's errors about a model or data set into ConfigError or UnreachableError."""
    from httpx2 import TransportError  # of the client's own HTTP library
    from huggingface_hub import errors

    try:
        yield
    except errors.HFValidationError as error:
        allowed = "a Hub id (owner/name), a gs:// folder or a folder that exists"
        raise ConfigError([Problem(KEYS[kind][0], name, allowed, ANOTHER)]) from error
    except (errors.HfHubHTTPError, errors.LocalEntryNotFoundError) as error:
        # The client hides a refusal behind the cache miss that followed it.
        cause = error.__cause__ if isinstance(error, errors.LocalEntryNotFoundError) else error
        if not isinstance(cause, errors.HfHubHTTPError):
            raise _unreachable(name, revision, kind) from error
        problem = _refusal(cause, name, revision, kind)
        if problem is None:
            raise UnreachableError(f"the Hub failed to give {name}: {cause}") from error
        raise ConfigError([problem]) from error
    except TransportError as error:
        raise _unreachable(name, revision, kind) from error


def wrong_token(error: Any) -> Problem | None:
    """The problem, where an error of the client says that the Hub does not know the token."""
    from huggingface_hub import get_token

    if error.response.status_code != 401 or get_token() is None:
        return None
    allowed = f"a token that the Hub knows; this one is wrong, expired or revoked: open {TOKENS}"
    return Problem("gemma:huggingFaceToken", "…", allowed, NEW_TOKEN)


def account() -> str:
    """Whose token it is, as far as the Hub tells."""
    from huggingface_hub import HfApi, errors

    try:
        return str(HfApi().whoami()["name"])
    except (errors.HfHubHTTPError, errors.LocalTokenNotFoundError, KeyError):
        return "unknown"


def _refusal(  # noqa: PLR0911 - one answer for each of the Hub's
    error: Any, name: str, revision: str, kind: Kind
) -> Problem | None:
    """What is to be changed, or None where the Hub itself failed."""
    from huggingface_hub import errors, get_token

    key, revision_key = KEYS[kind]
    page = f"https://huggingface.co/{'datasets/' if kind == 'dataset' else ''}{name}"
    anonymous = get_token() is None
    if isinstance(error, errors.RevisionNotFoundError):
        allowed = f"a branch, tag or commit listed at {page}/commits/main"
        return Problem(revision_key, revision, allowed, ANOTHER)
    if isinstance(error, errors.GatedRepoError):
        allowed = f"a {kind} whose licence the token's account has accepted: open {page}"
        if anonymous:
            allowed += f", accept, then make a token at {TOKENS} (none is set)"
            return Problem(key, name, allowed, NEW_TOKEN)
        return Problem(key, name, f"{allowed} as {account()}", AGAIN)
    if anonymous and error.response.status_code in (401, 404):
        allowed = f"a public {kind}; {page} is absent or private, and no token is set: {TOKENS}"
        return Problem(key, name, allowed, NEW_TOKEN)
    if isinstance(error, errors.RepositoryNotFoundError):
        search = f"https://huggingface.co/{kind}s?search={name.rpartition('/')[2]}"
        allowed = f"a {kind} that exists and that {account()} may read: open {search}"
        return Problem(key, name, allowed, ANOTHER)
    if error.response.status_code == 403:
        told = error.response.headers.get("X-Error-Message", "no reason given")
        allowed = f"a {kind} that the token may read: change its permissions at {TOKENS} ({told})"
        return Problem(key, name, allowed, AGAIN)
    return wrong_token(error)


def _unreachable(name: str, revision: str, kind: Kind) -> Exception:
    from huggingface_hub import constants

    missing = f"{name}@{revision} is not complete in the cache at {constants.HF_HUB_CACHE}"
    if not constants.is_offline_mode():
        return UnreachableError(
            f"the Hub ({constants.ENDPOINT}) cannot be reached and {missing}. Check the way out "
            "of the pod: the network's Cloud NAT, a network policy, HTTPS_PROXY"
        )
    allowed = (
        f"a {kind} in the cache, since HF_HUB_OFFLINE is set ({missing}): unset it, or copy the "
        "files to a bucket and name that folder"
    )
    fix = ANOTHER.replace("VALUE", "gs://BUCKET/FOLDER")
    return ConfigError([Problem(KEYS[kind][0], name, allowed, fix)])
