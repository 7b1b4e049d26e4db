"""What a vision run leaves: the adapter as a fresh process loads it, and the merged model."""

import copy
import json
import math
import shutil
import subprocess

import pytest
import torch
import transformers
from peft import PeftModel
from safetensors.torch import load_file, save_file

from tests.training.vision_trainers import settings
from training.gemma3_vision import data, evaluate, export, model, outcome, verify
from training.gemma3_vision.failures import Hopeless

pytestmark = pytest.mark.usefixtures("scratch")


def test_a_reloaded_adapter_is_told_from_another(make_trainer, samples, processor, tmp_path):
    trainer, split, config = make_trainer()
    trainer.train()
    tuned = trainer.accelerator.unwrap_model(trainer.model, keep_fp32_wrapper=False)
    tuned.save_pretrained(tmp_path / "run" / "adapter")
    processor.save_pretrained(tmp_path / "run" / "adapter")
    expected = evaluate.probe(tuned, processor, split.held_out, config)
    request = tmp_path / "request.json"
    sections = copy.deepcopy(vars(config))
    asked = {
        name: value if isinstance(value, dict) else vars(value) for name, value in sections.items()
    }
    request.write_text(json.dumps({"config": asked, "expected": expected}))
    assert verify.main(request) == 0
    for scale in (0.0, 1.5):  # does nothing; is another one
        with torch.no_grad():
            for name, parameter in tuned.named_parameters():
                if "lora_B" in name:
                    parameter.mul_(scale) if scale else parameter.zero_()
        tuned.save_pretrained(tmp_path / "run" / "adapter")
        assert verify.main(request) == 78


NUMBERS = {"tuned_loss": 1.0, "base_loss": 2.0, "text": "A mug."}


@pytest.mark.parametrize(
    ("trainer", "fresh", "problems"),
    [
        ({}, {}, 0),
        ({"tuned_loss": 1.00001}, {}, 0),
        ({"tuned_loss": 1.001}, {}, 1),
        ({}, {"base_loss": 2.001}, 1),  # another base
        ({}, {"text": "A cup."}, 1),
        ({}, {"tuned_loss": math.nan}, 1),
        ({"tuned_loss": math.nan}, {"tuned_loss": math.nan}, 1),
        ({"base_loss": math.nan}, {"base_loss": math.nan}, 1),
        ({"tuned_loss": math.inf}, {"tuned_loss": math.inf}, 1),
        ({"tuned_loss": 2.0}, {"tuned_loss": 2.0}, 1),
    ],
)
def test_what_the_reloaded_adapter_must_say(trainer, fresh, problems):
    assert len(verify.compare(NUMBERS | trainer, NUMBERS | fresh, "cpu")) == problems


@pytest.mark.parametrize(
    ("code", "kind"), [(78, Hopeless), (1, RuntimeError), (-9, RuntimeError), (0, RuntimeError)]
)
def test_a_verification_that_was_killed_is_tried_again(tmp_path, monkeypatch, code, kind):
    """Of its own exit codes 78 alone speaks of the adapter; 0 without a word was none."""
    done = subprocess.CompletedProcess([], code, stdout="", stderr="Traceback")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    with pytest.raises(kind) as caught:
        outcome.verify({}, evaluate.Measured({}, [], None, {}), tmp_path)
    assert type(caught.value) is kind


def test_the_push_is_the_last_and_no_merge_that_fails_is_pushed(tmp_path, samples, monkeypatch):
    """Once it is on the Hub, others use it."""
    sft = {"hub_model_id": "jane/shop"}
    config = settings(samples, tmp_path / "run", sft=sft, export={"merged": True})
    (tmp_path / "adapter").mkdir()
    split = data.Split([1, 2, 3], [4], "", [], 0)
    measured = evaluate.Measured({"tuned": {"chrf": 1.0}}, ["a"], None, {})
    pushed = []
    monkeypatch.setattr("training.common.hub.push", lambda *given: pushed.append(given))

    def hand_over(merge):
        monkeypatch.setattr(export, "save_merged", merge)
        arguments = config, samples / "model", tmp_path, None
        outcome.hand_over(*arguments, split=split, measured=measured)

    def breaks(*_):
        assert json.loads((tmp_path / "run" / "evaluation.json").read_text()) == measured.summary
        raise OSError("No space left on device")

    with pytest.raises(OSError, match="space"):
        hand_over(breaks)
    assert not pushed
    hand_over(lambda *_: None)
    assert [repository for _, repository, _ in pushed] == ["jane/shop"]


def test_a_model_merged_in_bf16_says_what_base_and_adapter_say(
    make_trainer, samples, processor, tmp_path
):
    """In the default dtype; tests/training/test_vision_run.py does the same in fp32, exactly."""
    trainer, split, config = make_trainer()
    trainer.train()
    tuned = trainer.accelerator.unwrap_model(trainer.model, keep_fp32_wrapper=False)
    tuned.save_pretrained(tmp_path / "adapter")
    weights = tmp_path / "weights"
    shutil.copytree(samples / "model", weights)
    (weights / "tokenizer.model").write_bytes(b"pieces")
    file = weights / "model.safetensors"
    tower, real = "vision_tower.", "vision_tower.vision_model."  # as in the files on the Hub
    tensors = {name.replace(tower, real): tensor for name, tensor in load_file(file).items()}
    save_file(tensors, file, metadata={"format": "pt"})
    export.save_merged(config, weights, tmp_path / "adapter", tmp_path / "merged", processor)
    assert (tmp_path / "run" / "merged" / "tokenizer.model").read_bytes() == b"pieces"
    saved = load_file(tmp_path / "run" / "merged" / "model.safetensors")
    assert saved.keys() == tensors.keys()  # llama.cpp's converter knows no others
    merged = transformers.AutoModelForImageTextToText.from_pretrained(tmp_path / "run" / "merged")
    assert merged.dtype == torch.bfloat16
    assert merged.config.tie_word_embeddings
    assert merged.lm_head.weight is merged.get_input_embeddings().weight
    assert not hasattr(merged.config, "quantization_config")
    base = model.load_base(config, weights, quantized=False)
    rows = [split.held_out[i] for i in range(4)]
    untuned = evaluate.held_out_loss(base, processor, rows, 1)
    expected = evaluate.held_out_loss(
        PeftModel.from_pretrained(base, tmp_path / "adapter"), processor, rows, 1
    )
    found = evaluate.held_out_loss(merged, processor, rows, 1)
    assert found == pytest.approx(expected, abs=0.02)
    assert abs(found - untuned) > 0.2
