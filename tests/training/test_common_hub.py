"""The Hub's refusals, each in its own words, and its cache: huggingface_hub's own client against a
stand-in of the Hub's API."""

import pytest

from tests.training.asking import GEMMA, ROWS, problem
from tests.training.hub import SHA, Token
from training.common.config import ConfigError
from training.common.hub import check, download
from training.common.hub_errors import UnreachableError


def test_a_good_repository_passes_with_two_requests_and_is_downloaded(hub, tmp_path, monkeypatch):
    hub.use(monkeypatch, tmp_path, "hf_reader")
    check(GEMMA, "main", "model")
    asked = [request.split(" ")[0] for request in hub.requests if GEMMA in request]
    assert asked == ["GET", "HEAD"]
    light = download(GEMMA, "main", "model", weights=False)
    assert {path.name for path in light.iterdir()} == {"README.md", "config.json"}
    whole = download(GEMMA, "main", "model")
    assert (whole / "model.safetensors").read_bytes() == b"w" * 1000
    assert whole.name == SHA  # what the run's record calls the commit
    check(ROWS, SHA, "dataset")


# What was given, and what the message must name: the page to open and the command to type.
REFUSALS = {
    "gated, no token": (
        {"name": GEMMA, "token": None},
        ("licence", f"open https://huggingface.co/{GEMMA},", "settings/tokens"),
        "pulumi config set --secret gemma:huggingFaceToken TOKEN",
    ),
    "gated, the licence was never clicked": (
        {"name": GEMMA, "token": "hf_late"},
        ("licence", f"open https://huggingface.co/{GEMMA} as joe"),
        "pulumi config set --path 'gemma:runs.{run}.attempt' 2",
    ),
    "a fine-grained token that opens no gates": (
        {"name": GEMMA, "token": "hf_narrow"},
        ("settings/tokens", "enable access to public gated repositories"),
        "attempt",
    ),
    "a token that the Hub does not know": (
        {"name": GEMMA, "token": "hf_revoked"},
        ("wrong, expired or revoked", "https://huggingface.co/settings/tokens"),
        "gcloud secrets versions add SECRET --data-file=-",
    ),
    "no such revision": (
        {"name": GEMMA, "token": "hf_reader", "revision": "v9"},
        (f"https://huggingface.co/{GEMMA}/commits/main",),
        "pulumi config set --path '{key}' VALUE",
    ),
    "no such repository": (
        {"name": "google/gemma-3-4b-lt", "token": "hf_reader"},
        ("exists", "https://huggingface.co/models?search=gemma-3-4b-lt"),
        "pulumi config set --path '{key}' VALUE",
    ),
    "private or absent, no token": (
        {"name": "jane/secret", "token": None},
        ("absent or private", "no token is set", "https://huggingface.co/settings/tokens"),
        "pulumi config set --secret gemma:huggingFaceToken TOKEN",
    ),
    "not a Hub id": (
        {"name": "google gemma", "token": None},
        ("owner/name", "gs://"),
        "pulumi config set --path '{key}' VALUE",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_each_refusal_has_its_own_words(case, hub, tmp_path, monkeypatch):
    given, words, command = REFUSALS[case]
    hub.tokens["hf_late"] = Token("joe")
    hub.use(monkeypatch, tmp_path, given["token"])
    for ask in (check, download):  # before the workers start, and in them
        with pytest.raises(ConfigError) as caught:
            ask(given["name"], given.get("revision", "main"), "model")
        found = problem(caught)
        for word in words:
            assert word in found.allowed
        assert command in found.fix
    key = {"no such revision": "trainer.model.model_revision"}.get(
        case, "gemma:huggingFaceToken" if "not know" in case else "trainer.model.model_name_or_path"
    )
    assert found.key == key


def test_all_refusals_differ(hub, tmp_path, monkeypatch):
    hub.tokens["hf_late"] = Token("joe")
    seen = set()
    for given, *_ in REFUSALS.values():
        with monkeypatch.context() as patch:
            hub.use(patch, tmp_path, given["token"])
            with pytest.raises(ConfigError) as caught:
                check(given["name"], given.get("revision", "main"), "model")
            seen.add((problem(caught).allowed, problem(caught).fix))
    assert len(seen) == len(REFUSALS)


def test_without_the_hub_a_warm_cache_works_and_a_cold_one_says_so(hub, tmp_path, monkeypatch):
    hub.use(monkeypatch, tmp_path / "warm", "hf_reader")
    download(GEMMA, "main", "model")
    hub.__exit__()  # from here on nobody answers
    check(GEMMA, "main", "model")
    assert (download(GEMMA, "main", "model") / "model.safetensors").is_file()
    hub.use(monkeypatch, tmp_path / "cold", "hf_reader")
    for ask in (check, download):
        with pytest.raises(UnreachableError, match=r"cannot be reached.*cold.*Cloud NAT"):
            ask(GEMMA, "main", "model")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for ask in (check, download):
        with pytest.raises(ConfigError, match=r"HF_HUB_OFFLINE is set.*cold") as caught:
            ask(GEMMA, "main", "model")
        assert "gs://BUCKET/FOLDER" in problem(caught).fix


def test_half_a_cache_is_no_cache(hub, tmp_path, monkeypatch):
    hub.use(monkeypatch, tmp_path, "hf_reader")
    whole = download(GEMMA, "main", "model")
    (whole / "model.safetensors").unlink()
    hub.__exit__()
    with pytest.raises(UnreachableError, match="not complete in the cache"):
        check(GEMMA, "main", "model")
