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
from training.gemma4_text import config as text


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
