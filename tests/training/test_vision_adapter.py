"""What a vision run leaves: the adapter as a fresh process loads it, and the merged model."""

import copy
import json
import shutil

import pytest
import torch
import transformers
from peft import PeftModel
from safetensors.torch import load_file, save_file

from training.gemma3_vision import evaluate, export, model, verify

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
        assert verify.main(request) == 1


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
