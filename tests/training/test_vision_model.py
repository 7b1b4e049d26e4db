"""The tiny Gemma 3: what is in it, what is quantised and adapted, what a step costs."""

import shutil

import pytest
import torch
import transformers

from tests.training.vision_trainers import settings
from training.common.config import ConfigError
from training.gemma3_vision import data, model, throughput
from training.gemma3_vision.trainer import RowCollator
from training.samples import vision_model

pytestmark = pytest.mark.usefixtures("scratch")


TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def test_the_checkpoint_is_small_and_the_same_each_time(samples, tmp_path):
    again = vision_model.write(tmp_path / "again")
    for path in sorted((samples / "model").iterdir()):
        assert path.read_bytes() == (again / path.name).read_bytes(), path.name
    loaded = model.load_base(settings(samples, quantization={"load_in_4bit": False}), again)
    assert sum(p.numel() for p in loaded.parameters()) < 3_000_000
    assert loaded.lm_head.weight is loaded.model.language_model.embed_tokens.weight


def test_a_model_without_pictures_or_conversations_is_refused(samples, tmp_path):
    """As google/gemma-3-1b-it and google/gemma-3-4b-pt are: no retry makes them others."""
    for file in ("processor_config.json", "chat_template.jinja"):
        place = tmp_path / file
        shutil.copytree(samples / "model", place, ignore=shutil.ignore_patterns(file))
        with pytest.raises(ConfigError) as caught:
            model.load_processor(place, "google/gemma")
        (problem,) = caught.value.problems
        assert problem.key == "trainer.model.model_name_or_path"
        assert problem.value == "google/gemma"
        assert file in problem.allowed


@pytest.mark.parametrize("family", ["gemma3", "gemma4"])
def test_the_pattern_finds_the_language_model_of_the_real_models(samples, family):
    """Module names of the full-size classes, on the meta device."""
    from peft import get_peft_model
    from peft.tuners.tuners_utils import BaseTunerLayer

    if family == "gemma3":
        config = transformers.Gemma3Config(text_config={"num_hidden_layers": 34})
        kind = transformers.Gemma3ForConditionalGeneration
    else:
        config = transformers.Gemma4Config()
        kind = transformers.Gemma4ForConditionalGeneration
    with torch.device("meta"):
        full = kind(config)
        layers = config.get_text_config().num_hidden_layers
        tuned = get_peft_model(full, model.adapter_config(settings(samples)))
    adapted = [name for name, part in tuned.named_modules() if isinstance(part, BaseTunerLayer)]
    assert all(".language_model.layers." in name for name in adapted)
    kinds = {name.rsplit(".", 1)[1] for name in adapted}
    assert kinds == set(TARGETS)
    if family == "gemma3":
        assert len(adapted) == 7 * layers


@pytest.mark.parametrize("tower", [False, True])
def test_what_is_quantised(samples, tower):
    chosen = {"quantization": {"llm_int8_skip_modules": ["lm_head"]}} if tower else {}
    config = settings(samples, **chosen)
    base = model.load_base(config, samples / "model")
    kinds = {
        name: type(module).__name__
        for name, module in base.named_modules()
        if isinstance(module, torch.nn.Linear)
    }
    language = [k for name, k in kinds.items() if "language_model" in name]
    vision = [k for name, k in kinds.items() if "vision_tower" in name]
    assert set(language) == {"Linear4bit"}
    assert len(language) == 28
    assert set(vision) == {"Linear4bit" if tower else "Linear"}
    assert kinds["lm_head"] == "Linear"
    assert base.lm_head.weight is base.model.language_model.embed_tokens.weight


def test_flops_agree_with_those_that_torch_counts(samples, processor):
    """Forward and backward of the adapted model, counted by torch, without the adapter's own."""
    from peft import get_peft_model
    from torch.utils.flop_counter import FlopCounterMode

    config = settings(
        samples,
        quantization={"load_in_4bit": False},
        model={
            "model_name_or_path": str(samples / "model"),
            "dtype": "float32",
            "attn_implementation": "eager",
        },
        lora={"r": 1},
    )
    tuned = get_peft_model(model.load_base(config, samples / "model"), model.adapter_config(config))
    row = data.prepare(config.data, samples / "products").train[0]
    inputs = RowCollator(processor)([row])
    inputs.pop("rows")
    length, answers = inputs["input_ids"].shape[1], int((inputs["labels"] != -100).sum())
    with FlopCounterMode(display=False) as counter:
        tuned(**inputs).loss.backward()
    vocabulary = 4.0 * tuned.config.text_config.vocab_size * 128  # of one token, both ways
    # transformers' own loss multiplies the head with every token, TRL's with answers only.
    expected = throughput.step_flops(tuned.config, [length], answers, 1)
    expected += vocabulary * (length - answers)
    assert expected == pytest.approx(counter.get_total_flops(), rel=0.05)
