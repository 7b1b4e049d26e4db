"""The vision trainer's configuration, checked as `pulumi preview` checks it: without torch."""

import subprocess
import sys

import pytest
import yaml

from training.common.config import ConfigError
from training.gemma3_vision import config


def problems(overrides):
    with pytest.raises(ConfigError) as caught:
        config.resolve(overrides)
    return {problem.key: problem for problem in caught.value.problems}


def test_defaults_are_the_tutorials():
    found = config.resolve({})
    assert found["model"]["model_name_or_path"] == "google/gemma-3-4b-it"
    assert found["data"]["dataset_name"] == "philschmid/amazon-product-descriptions-vlm"
    sft = found["sft"]
    assert (sft["num_train_epochs"], sft["per_device_train_batch_size"]) == (3, 1)
    assert (sft["gradient_accumulation_steps"], sft["learning_rate"]) == (4, 2e-4)
    assert (sft["warmup_steps"], sft["max_grad_norm"], sft["max_length"]) == (0.03, 0.3, None)
    lora = found["lora"]
    assert (lora["r"], lora["lora_alpha"], lora["lora_dropout"]) == (16, 16, 0.05)
    quantization = found["quantization"]
    assert quantization["bnb_4bit_quant_type"] == "nf4"
    assert quantization["load_in_4bit"] is True
    assert quantization["bnb_4bit_use_double_quant"] is True


def test_resolved_survives_yaml_and_resolving_again():
    once = config.resolve({"sft": {"learning_rate": 1e-3}})
    again = config.resolve(yaml.safe_load(yaml.safe_dump(once)))
    assert again == once


def test_all_problems_come_at_once_each_with_its_key():
    found = problems(
        {
            "sft": {"learning_rte": 1e-4, "learning_rate": -1, "max_grad_norm": "much"},
            "lora": {"r": 0},
            "quantization": {"bnb_4bit_quant_type": "nf5"},
            "data": {"bad_rows": "ignore"},
            "modle": {},
        }
    )
    assert set(found) == {
        "trainer.sft.learning_rte",
        "trainer.sft.learning_rate",
        "trainer.sft.max_grad_norm",
        "trainer.lora.r",
        "trainer.quantization.bnb_4bit_quant_type",
        "trainer.data.bad_rows",
        "trainer.modle",
    }
    assert "learning_rate" in found["trainer.sft.learning_rte"].allowed
    assert "model" in found["trainer.modle"].allowed


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        ({"sft": {"max_length": 512}}, "trainer.sft.max_length"),
        ({"sft": {"packing": True}}, "trainer.sft.packing"),
        ({"sft": {"fsdp": "full_shard"}}, "trainer.sft.fsdp"),
        ({"sft": {"output_dir": "/x"}}, "trainer.sft.output_dir"),
        ({"sft": {"lr_scheduler_type": "constant"}}, "trainer.sft.lr_scheduler_type"),
        ({"sft": {"max_steps": 1}}, "trainer.sft.max_steps"),
        ({"lora": {"init_lora_weights": "pissa"}}, "trainer.lora.init_lora_weights"),
        ({"sft": {"fp16": True}}, "trainer.sft.fp16"),
        ({"sft": {"save_strategy": "no"}}, "trainer.sft.save_strategy"),
        ({"lora": {"target_modules": "all-linear"}}, "trainer.lora.target_modules"),
        ({"lora": {"target_modules": ["q_proj", "lm_head"]}}, "trainer.lora.target_modules"),
        ({"lora": {"target_modules": r".*(q_proj|lm_head)"}}, "trainer.lora.target_modules"),
        ({"lora": {"target_modules": "*.q_proj"}}, "trainer.lora.target_modules"),
        ({"lora": {"bias": "all"}}, "trainer.lora.bias"),
        ({"sft": {"train_sampling_strategy": "sequential"}}, "trainer.sft.train_sampling_strategy"),
        (
            {"model": {"attn_implementation": "flash_attention_2"}},
            "trainer.model.attn_implementation",
        ),
        ({"sft": {"hub_revision": "v2"}}, "trainer.sft.hub_revision"),
        ({"lora": {"modules_to_save": ["lm_head"]}}, "trainer.lora.ensure_weight_tying"),
        ({"quantization": {"load_in_8bit": True}}, "trainer.quantization.load_in_8bit"),
        ({"model": {"device_map": "auto"}}, "trainer.model.device_map"),
        ({"data": {"user_prompt": "Describe {product}"}}, "trainer.data.user_prompt"),
        ({"data": {"user_prompt": "{product} {category} {"}}, "trainer.data.user_prompt"),
        ({"data": {"user_prompt": "{product:d} {category}"}}, "trainer.data.user_prompt"),
        ({"data": {"user_prompt": "{product!x} {category}"}}, "trainer.data.user_prompt"),
        ({"data": {"held_out_fraction": 0}}, "trainer.data.held_out_fraction"),
        ({"ray": {"max_failures": -2}}, "trainer.ray.max_failures"),
        ({"evaluation": {"min_words": 200}}, "trainer.evaluation.min_words"),
        ({"run": {"device": "tpu", "output_dir": "x"}}, "trainer.run.device"),
        ({"run": {}}, "trainer.run.output_dir"),
    ],
)
def test_what_cannot_work_is_refused(overrides, key):
    assert list(problems(overrides)) == [key]


def test_tied_weights_may_be_trained_together():
    lora = {"modules_to_save": ["lm_head", "embed_tokens"], "ensure_weight_tying": True}
    assert config.resolve({"lora": lora})["lora"]["modules_to_save"] == lora["modules_to_save"]


def test_importing_it_brings_nothing_heavy():
    code = (
        "import sys, training.gemma3_vision.config as c; c.resolve({});"
        "print([m for m in ('torch','transformers','trl','peft','ray','datasets','PIL','numpy')"
        " if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
