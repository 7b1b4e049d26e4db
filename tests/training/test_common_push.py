"""An adapter is pushed, or refused before anything starts: huggingface_hub's own client against a
stand-in of the Hub's API."""

import pytest
import yaml

from tests.training.asking import GEMMA, ROWS, problem, resolved
from tests.training.hub import Repository
from training.common import card
from training.common.config import ConfigError
from training.common.hub import check_write, push
from training.gemma3_vision import config as vision


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


def test_the_text_trainer_pushes_what_it_has_evaluated(hub, launch, tmp_path, monkeypatch):
    for name, value in hub.environment(tmp_path, "hf_writer").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    run = launch("pushed", 1, sft={"hub_model_id": "jane/sql", "max_steps": 2})
    assert run.code == 0, run.said[-4000:]
    assert run.result()["hub_page"] == f"{hub.address}/jane/sql"
    made = hub.repositories["models/jane/sql"]
    assert made.private
    saved = {path.name: path.read_bytes() for path in (run.folder / "adapter").iterdir()}
    assert made.files == saved
    assert "## Held-out rows" in saved["README.md"].decode()
    assert "training_args.bin" not in saved  # a pickle
