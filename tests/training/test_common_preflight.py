"""All that a run will need from the Hub is asked before any worker starts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.training.asking import GEMMA, ROWS, problem, resolved
from training.common.config import ConfigError
from training.common.preflight import REPORTERS, check_reporters, preflight
from training.gemma3_vision import config as vision
from workloads.reasons import in_log


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
    if kind == "text":
        asked["data"] |= {"train_rows": 10, "held_out_rows": 2}
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


def test_check_counts_the_rows_before_any_weights_are_fetched(hub, tmp_path, monkeypatch, capsys):
    from training.gemma4_text.train import main

    asked = resolved("text", model={"model_name_or_path": GEMMA}, data={"dataset_name": ROWS})
    asked["data"] |= {"train_rows": 11, "held_out_rows": 2}  # of twelve
    asked["run"] |= {"output_dir": str(tmp_path / "run")}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(asked))
    hub.use(monkeypatch, tmp_path / "cache", "hf_reader")
    monkeypatch.setattr("sys.argv", ["train", "--config", str(tmp_path / "run.yaml"), "--check"])
    assert main() == 78
    said = capsys.readouterr().err
    assert "trainer.data.train_rows" in said
    assert "with 2 held out, at most 10 (12 usable rows)" in said
    assert not [one for one in hub.requests if one.startswith("GET") and "safetensors" in one]
