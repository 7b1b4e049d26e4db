"""A run goes on with the commits that it started with, wherever the Hub's branches are by then."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.training.asking import GEMMA, ROWS, resolved
from tests.training.hub import SHA, Hub
from training.common.config import ConfigError
from training.common.pins import PINS, pins, told
from training.gemma3_vision import config as vision

NEWER = "b" * 40


def configured(folder: Path, **sections: dict) -> vision.Config:
    asked = {"model": {"model_name_or_path": GEMMA}, "data": {"dataset_name": ROWS}}
    config = vision.typed(resolved("vision", **(asked | sections)))
    return replace(config, run=replace(config.run, output_dir=str(folder)))


def move(hub: Hub) -> None:
    for repository in hub.repositories.values():
        repository.sha, repository.revisions = NEWER, ("main", SHA, NEWER)


def test_a_branch_that_moved_changes_no_run_that_has_started(hub, tmp_path, monkeypatch):
    hub.use(monkeypatch, tmp_path / "cache", "hf_reader")
    first = pins(configured(tmp_path / "run"))
    assert first == {"model": {"model_revision": SHA}, "data": {"dataset_revision": SHA}}
    move(hub)
    asked = len(hub.requests)
    assert pins(configured(tmp_path / "run")) == first
    assert len(hub.requests) == asked  # a restarted rank asks nobody
    assert pins(configured(tmp_path / "other"))["model"] == {"model_revision": NEWER}


def test_what_is_no_repository_has_no_commit(hub, tmp_path, monkeypatch):
    hub.use(monkeypatch, tmp_path / "cache")
    given = {"model": {"model_name_or_path": "gs://bucket/model"}}
    given |= {"data": {"dataset_name": str(tmp_path)}}
    config = configured(tmp_path / "run", **given)
    assert pins(config) == {}
    assert told(config) == {"model_revision": None, "dataset_revision": None}
    assert not (tmp_path / "run").exists()
    assert hub.requests == []


def test_without_the_hub_the_cache_knows_the_commit(hub, tmp_path, monkeypatch):
    from training.common.hub import commit, download

    hub.use(monkeypatch, tmp_path / "cache", "hf_reader")
    download(GEMMA, "main", "model")
    hub.__exit__()
    assert commit(GEMMA, "main", "model") == SHA
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ConfigError):
        commit(GEMMA, "v2", "model")


def test_the_check_before_the_ranks_settles_both_trainers_commits(hub, tmp_path, monkeypatch):
    from training.gemma3_vision import train as vision_train
    from training.gemma4_text import train as text_train

    hub.use(monkeypatch, tmp_path / "cache", "hf_reader")
    for name in ("vision", "text"):
        rows = {"text": {"train_rows": 10, "held_out_rows": 2}}.get(name, {})
        data = {"dataset_name": ROWS, **rows}
        asked = resolved(name, model={"model_name_or_path": GEMMA}, data=data)
        asked["run"]["output_dir"] = str(tmp_path / name)
        (tmp_path / f"{name}.yaml").write_text(json.dumps(asked))
        arguments = ["train", "--config", str(tmp_path / f"{name}.yaml"), "--check"]
        monkeypatch.setattr("sys.argv", arguments)
        assert {"vision": vision_train, "text": text_train}[name].main() == 0
        written = json.loads((tmp_path / name / PINS).read_text())
        assert written["data"] == {"dataset_revision": SHA}
    move(hub)
    from training.gemma4_text.config import load

    config = text_train.pinned(load(tmp_path / "text.yaml"))
    assert told(config) == {"model_revision": SHA, "dataset_revision": SHA}
