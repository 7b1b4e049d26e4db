"""The Hub's refusals, said before anything starts, and pushes: huggingface_hub's own client against
a stand-in of the Hub's API."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.training.hub import SHA, Hub, Repository, Token
from training.common import card
from training.common.config import ConfigError, Problem
from training.common.hub import check, check_write, download, push
from training.common.hub_errors import UnreachableError
from training.common.preflight import REPORTERS, check_reporters, preflight
from training.gemma3_vision import config as vision
from training.gemma4_text import config as text
from workloads.reasons import in_log

GEMMA = "google/gemma-3-4b-it"
ROWS = "philschmid/amazon-product-descriptions-vlm"


@pytest.fixture
def hub() -> Iterator[Hub]:
    files = {"README.md": b"# card", "config.json": b"{}", "model.safetensors": b"w" * 1000}
    with Hub() as server:
        server.repositories[f"models/{GEMMA}"] = Repository(files, gated=True, accepted={"jane"})
        server.repositories[f"datasets/{ROWS}"] = Repository({"train.parquet": b"rows"})
        server.repositories["models/jane/secret"] = Repository(files, private=True, owner="jane")
        yield server


def problem(caught: pytest.ExceptionInfo[ConfigError]) -> Problem:
    (only,) = caught.value.problems
    return only


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
        "pulumi config set --secret gemma:huggingFaceToken TOKEN",
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


@pytest.mark.parametrize(
    "case",
    [
        (None, "jane/adapter", "make one at https://huggingface.co/settings/tokens"),
        ("hf_revoked", "jane/adapter", "wrong, expired or revoked"),
        ("hf_reader", "jane/adapter", "may write to it"),
        ("hf_reader", "jane/secret", "may write to it"),  # it exists, and may be read
        ("hf_writer", "google/adapter", "jane/NAME"),
        ("hf_writer", GEMMA, "jane/NAME"),
        ("hf_writer", "jane/a/b", "owner/name"),
    ],
)
def test_a_push_that_would_fail_is_refused_before(case, hub, tmp_path, monkeypatch):
    token, repository, words = case
    hub.use(monkeypatch, tmp_path, token)
    before = set(hub.repositories)
    with pytest.raises(ConfigError) as caught:
        check_write(repository)
    assert words in problem(caught).allowed
    assert set(hub.repositories) == before


def test_a_public_repository_gets_nothing_that_is_meant_to_be_private(hub, tmp_path, monkeypatch):
    hub.repositories["models/jane/open"] = Repository(owner="jane")
    hub.use(monkeypatch, tmp_path, "hf_writer")
    with pytest.raises(ConfigError, match="public already") as caught:
        check_write("jane/open")
    assert problem(caught).key == "trainer.sft.hub_private_repo"
    check_write("jane/open", private=False)


@pytest.mark.parametrize("base", [GEMMA, "gs://bucket/models/gemma", "/scratch/models/gemma"])
def test_an_adapter_is_pushed_to_a_private_repository(base, hub, tmp_path, monkeypatch):
    hub.use(monkeypatch, tmp_path / "cache", "hf_writer")
    check_write("jane/adapter")
    check_write("jane/adapter")  # as a run does that starts again
    folder = tmp_path / "adapter"
    folder.mkdir()
    (folder / "adapter_model.safetensors").write_bytes(b"lora" * 1000)
    (folder / "adapter_config.json").write_text("{}")
    config = vision.typed(resolved("vision", model={"model_name_or_path": base}))
    figures = {"base": {"chrf": 1.5}, "tuned": {"chrf": 42.5}}
    card.write(folder, config, "image-text-to-text", (900, 100), figures)
    assert push(folder, "jane/adapter", "Adapter of run 1") == f"{hub.address}/jane/adapter"
    made = hub.repositories["models/jane/adapter"]
    assert made.private
    assert made.commits == ["Adapter of run 1"]
    assert made.files["adapter_model.safetensors"] == b"lora" * 1000
    _, head, body = made.files["README.md"].decode().split("---\n", 2)
    metadata = yaml.safe_load(head)
    assert metadata.get("base_model") == (GEMMA if base == GEMMA else None)
    assert metadata["datasets"] == [ROWS]
    assert metadata["pipeline_tag"] == "image-text-to-text"
    assert "| chrf | 1.5 | 42.5 |" in body
    assert "| rows | 900 training, 100 held-out |" in body
    assert f'from_pretrained("{base}")' in body


def test_the_text_trainer_pushes_what_it_has_saved(hub, tmp_path, monkeypatch):
    import torch
    from safetensors.torch import save_file

    from training.gemma4_text.finish import publish

    class Tokenizer:
        def save_pretrained(self, folder):
            (folder / "tokenizer.json").write_text("{}")

    hub.use(monkeypatch, tmp_path / "cache", "hf_writer")
    check_write("jane/sql")
    (tmp_path / "adapter").mkdir()
    save_file({"lora": torch.ones(2)}, tmp_path / "adapter" / "adapter_model.safetensors")
    (tmp_path / "adapter" / "README.md").write_text("---\nbase_model: /a/b/c\n---\nPEFT's form")
    asked = resolved("text")
    asked["run"] |= {"output_dir": str(tmp_path / "run"), "id": "1"}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(asked))
    config = text.load(tmp_path / "run.yaml")
    page = publish(config, Tokenizer(), tmp_path, "jane/sql", local=tmp_path, rows=(9, 1))
    assert page == f"{hub.address}/jane/sql"
    made = hub.repositories["models/jane/sql"]
    assert made.files.keys() == {"README.md", "tokenizer.json", "adapter_model.safetensors"}
    assert {path.name for path in (tmp_path / "run" / "adapter").iterdir()} == made.files.keys()


def resolved(trainer: str, **sections) -> dict:
    run = {"output_dir": "x", "name": "shop", "device": "cpu"}
    resolve = {"vision": vision.resolve, "text": text.resolve}[trainer]
    return resolve({"run": run, **sections})


def test_preflight_tells_everything_at_once_in_the_stacks_own_keys(hub, tmp_path, monkeypatch):
    hub.use(monkeypatch, tmp_path, "hf_reader")
    asked = resolved(
        "vision",
        model={"model_revision": "v9"},
        data={"dataset_name": "philschmid/none"},
        sft={"hub_model_id": "jane/adapter", "report_to": ["tensorboard", "wandb", "tensorbord"]},
    )
    with pytest.raises(ConfigError) as caught:
        preflight(vision.typed(asked))
    found = {p.key.removeprefix("gemma:runs.shop.trainer."): p for p in caught.value.problems}
    assert [*found] == [
        *("model.model_revision", "data.dataset_name", "sft.report_to", "sft.hub_model_id")
    ]
    assert "'gemma:runs.shop.trainer.model.model_revision' VALUE" in str(caught.value)
    assert "'gemma:runs.shop.attempt' 2" in str(caught.value)


def test_a_wrong_token_is_told_once(hub, tmp_path, monkeypatch):
    hub.use(monkeypatch, tmp_path, "hf_revoked")
    with pytest.raises(ConfigError) as caught:
        preflight(vision.typed(resolved("vision", sft={"hub_model_id": "jane/adapter"})))
    assert problem(caught).key == "gemma:huggingFaceToken"


def test_reporters_are_those_of_transformers_and_absent_ones_are_named():
    from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

    assert REPORTERS.keys() == INTEGRATION_TO_CALLBACK.keys()
    check_reporters("none")
    check_reporters(["tensorboard"])
    check_reporters(None)
    with pytest.raises(ConfigError, match="make lock"):
        check_reporters("mlflow")
    with pytest.raises(ConfigError, match=r"tensorboard\?"):
        check_reporters("tensorbord")


@pytest.mark.parametrize("trainer", ["gemma3_vision", "gemma4_text"])
def test_check_ends_before_any_worker_starts(trainer, hub, tmp_path):
    """The real command line: 78 and the licence's page, or 0, without torch or Ray."""
    kind = {"gemma3_vision": "vision", "gemma4_text": "text"}[trainer]
    asked = resolved(kind, model={"model_name_or_path": GEMMA}, data={"dataset_name": ROWS})
    asked["run"] |= {"output_dir": str(tmp_path / "run")}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(asked))
    command = [sys.executable, "-X", "importtime", "-m", f"training.{trainer}.train"]
    command += ["--config", str(tmp_path / "run.yaml"), "--check"]
    for accepted, code in (((), 78), ({"jane"}, 0)):
        hub.repositories[f"models/{GEMMA}"].accepted = set(accepted)
        done = subprocess.run(
            command,
            env={**os.environ, **hub.environment(tmp_path, "hf_reader")},
            cwd=Path(__file__).parents[2],
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == code, done.stderr[-2000:]
        assert (f"open https://huggingface.co/{GEMMA} as jane" in done.stderr) == (code == 78)
        assert ("licence" in (in_log(done.stderr) or "")) == (
            code == 78
        )  # as `make status` reads it
        for heavy in ("torch", "ray", "transformers"):
            assert f"| {heavy}\n" not in done.stderr
