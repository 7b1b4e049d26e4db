"""`make demo-real` with HUB_MODEL, against a stand-in of the Hub's API."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.folder import REPOSITORY
from tests.training.hub import Hub, Repository
from training.samples import text_model

NAME = "google/gemma-3-270m"


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    folder = text_model.write(tmp_path_factory.mktemp("hub") / "model", hidden=64, layers=2)
    # The weights before instruction tuning come without a chat template.
    files = {f.name: f.read_bytes() for f in folder.iterdir() if f.suffix != ".jinja"}
    with Hub() as server:
        server.repositories[f"models/{NAME}"] = Repository(files, gated=True, accepted={"jane"})
        yield server


def real(hub: Hub, cache: Path, *arguments: str, **given: str) -> subprocess.CompletedProcess[str]:
    removed = ("HF_TOKEN", "HF_HUB_OFFLINE")
    environment = {name: value for name, value in os.environ.items() if name not in removed}
    return subprocess.run(
        [sys.executable, "-m", "sandbox.real", *arguments],
        env={**environment, **hub.environment(cache), "ACCEPT_GEMMA_TERMS": "yes", **given},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("name", "token", "said"),
    [
        (NAME, "", f"open https://huggingface.co/{NAME}, accept"),
        (NAME, "hf_none", "wrong, expired or revoked"),
        ("google/gemma-3-270", "hf_reader", "search=gemma-3-270"),
    ],
)
def test_what_the_hub_refuses_is_said_before_anything_starts(
    hub: Hub, tmp_path: Path, name: str, token: str, said: str
):
    done = real(hub, tmp_path, "terms", HUB_MODEL=name, **({"HF_TOKEN": token} if token else {}))
    assert done.returncode == 1
    assert said in done.stderr
    assert f"HUB_MODEL={name} ACCEPT_GEMMA_TERMS=yes make demo-real" in done.stderr
    assert "Traceback" not in done.stderr
    assert token not in done.stderr or not token


def test_a_hub_that_does_not_answer_is_named(hub: Hub, tmp_path: Path):
    done = real(hub, tmp_path, "terms", HUB_MODEL=NAME, HF_ENDPOINT="http://127.0.0.1:9")
    assert done.returncode == 1
    assert "http://127.0.0.1:9) cannot be reached" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_hubs_weights_are_trained_with_a_chat_template(hub: Hub, tmp_path: Path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    given = {"HUB_MODEL": NAME, "HF_TOKEN": "hf_reader"}
    assert real(hub, tmp_path / "cache", "terms", **given).returncode == 0
    done = real(hub, tmp_path / "cache", str(tmp_path / "out"), **given)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "out" / "models" / "gemma-3-270m"
    weights = (folder / "model.safetensors").read_bytes()
    assert weights == hub.repositories[f"models/{NAME}"].files["model.safetensors"]
    AutoModelForCausalLM.from_pretrained(folder)
    question = [{"role": "user", "content": "How many?"}]
    asked = AutoTokenizer.from_pretrained(folder).apply_chat_template(question, tokenize=False)
    assert "How many?" in asked
