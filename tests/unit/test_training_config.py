"""A trainer's configuration: every problem at once, before any library is loaded."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from training.common.config import ConfigError, Problem, merge, refuse, unknown_key
from training.common.keys import Bound, check, key_of, schema
from training.gemma4_text.config import accelerate_config, load, resolve


def problems(overrides: dict[str, Any]) -> dict[str, Problem]:
    with pytest.raises(ConfigError) as error:
        resolve(overrides)
    return {problem.key: problem for problem in error.value.problems}


def test_the_defaults_are_the_tutorials():
    resolved = resolve({})
    assert resolved["model"]["model_name_or_path"] == "google/gemma-4-31B-it"
    assert resolved["data"]["dataset_name"] == "philschmid/gretel-synthetic-text-to-sql"
    assert (resolved["data"]["train_rows"], resolved["data"]["held_out_rows"]) == (10000, 2500)
    sft, lora = resolved["sft"], resolved["lora"]
    assert (sft["max_length"], sft["num_train_epochs"], sft["learning_rate"]) == (1024, 3, 1e-5)
    assert (sft["per_device_train_batch_size"], sft["gradient_accumulation_steps"]) == (2, 32)
    assert (sft["save_steps"], sft["bf16"], sft["max_grad_norm"]) == (20, True, 0.3)
    assert sft["packing"]
    assert not sft["logging_nan_inf_filter"]  # else the guard never sees a NaN
    assert (lora["r"], lora["lora_alpha"], lora["lora_dropout"]) == (16, 32, 0.05)


def test_all_problems_are_told_at_once_with_the_closest_key():
    found = problems(
        {
            "sft": {"learning_rate": -1e-5, "lerning_rate": 1e-4, "num_train_epochs": "three"},
            "lora": {"r": 0, "bias": "some"},
            "loro": {},
            "data": {"held_out_by": "luck"},
        }
    )
    assert set(found) == {
        "trainer.sft.learning_rate",
        "trainer.sft.lerning_rate",
        "trainer.sft.num_train_epochs",
        "trainer.lora.r",
        "trainer.lora.bias",
        "trainer.loro",
        "trainer.data.held_out_by",
    }
    # The right one is given too: no command writes over it.
    twice = found["trainer.sft.lerning_rate"]
    assert "learning_rate, which is given too, stays" in twice.allowed
    assert twice.fix == "pulumi config rm --path '{key}'"
    assert "did you mean lora?" in found["trainer.loro"].allowed
    assert "question, schema" in found["trainer.data.held_out_by"].allowed


@pytest.mark.parametrize(
    ("overrides", "key", "reason"),
    [
        ({"fsdp": {"activation_checkpointing": True}}, "fsdp.activation_checkpointing", "empty"),
        ({"sft": {"fsdp_config": {}}}, "sft.fsdp_config", "section fsdp"),
        ({"model": {"device_map": "auto"}}, "model.device_map", "shard"),
        ({"sft": {"assistant_only_loss": True}}, "sft.assistant_only_loss", "no answers"),
        ({"sft": {"dataset_kwargs": {}}}, "sft.dataset_kwargs", "encoded"),
        ({"sft": {"completion_only_loss": False}}, "sft.completion_only_loss", "SQL only"),
        ({"sft": {"padding_free": True}}, "sft.padding_free", "packing"),
        ({"sft": {"load_best_model_at_end": True}}, "sft.load_best_model_at_end", "last step"),
        ({"sft": {"resume_from_checkpoint": "x"}}, "sft.resume_from_checkpoint", "newest"),
        ({"sft": {"fp16": True}}, "sft.fp16", "bf16"),
        ({"sft": {"save_strategy": "no"}}, "sft.save_strategy", "resumable"),
        ({"sft": {"save_total_limit": 0}}, "sft.save_total_limit", "at least 1"),
        ({"sft": {"learning_rate": 10}}, "sft.learning_rate", "below 1"),
        ({"sft": {"gradient_checkpointing": True}}, "sft.gradient_checkpointing", "old name"),
        ({"fsdp": {"cpu_ram_efficient_loading": True}}, "fsdp.cpu_ram_efficient_loading", "rank 0"),
        ({"lora": {"inference_mode": True}}, "lora.inference_mode", "training"),
        ({"sft": {"save_only_model": True}}, "sft.save_only_model", "optimizer"),
        ({"sft": {"ignore_data_skip": True}}, "sft.ignore_data_skip", "again"),
        ({"sft": {"enable_jit_checkpoint": True}}, "sft.enable_jit_checkpoint", "SIGTERM"),
        ({"sft": {"auto_find_batch_size": True}}, "sft.auto_find_batch_size", "other rows"),
        ({"sft": {"packing_strategy": "wrapped"}}, "sft.packing_strategy", "whole"),
        ({"sft": {"max_length": None}}, "sft.max_length", "packing"),
        ({"model": {"attn_implementation": "paged"}}, "model.attn_implementation", "next"),
        (
            {"model": {"attn_implementation": "flash_attention_2"}},
            "model.attn_implementation",
            "256",
        ),
        ({"sft": {"lr_scheduler_type": "constant"}}, "sft.lr_scheduler_type", "ignores"),
        ({"sft": {"max_steps": 1}}, "sft.max_steps", "a learning rate of 0"),
        ({"lora": {"modules_to_save": ["lm_head"]}}, "lora.ensure_weight_tying", "two copies"),
        ({"lora": {"use_dora": True}, "export": {"merged": True}}, "export.merged", "use_dora"),
        ({"lora": {"bias": "all"}, "export": {"merged": True}}, "export.merged", "lora.bias"),
        ({"lora": {"init_lora_weights": "pissa"}}, "lora.init_lora_weights", "the base"),
        ({"data": {"user_prompt": "{question}"}}, "data.user_prompt", "{schema}"),
        ({"data": {"user_prompt": "{schema}"}}, "data.user_prompt", "{question}"),
        ({"fsdp": {"transformer_layer_cls_to_wrap": 3}}, "fsdp.transformer_layer_cls_to_wrap", ""),
        (
            {"fsdp": {"transformer_layer_cls_to_wrap": "Gemma3DecoderLayer"}},
            "fsdp.transformer_layer_cls_to_wrap",
            "Gemma4TextDecoderLayer, the model's own",
        ),
    ],
)
def test_known_traps_are_refused_by_name(overrides: dict[str, Any], key: str, reason: str):
    found = problems(overrides)
    assert reason in found[f"trainer.{key}"].allowed


def test_numbers_may_come_as_text_or_as_whole_floats():
    resolved = resolve({"sft": {"learning_rate": "1e-4", "max_steps": "20"}, "lora": {"r": 8.0}})
    assert resolved["sft"]["learning_rate"] == 1e-4
    assert resolved["sft"]["max_steps"] == 20
    assert resolved["lora"]["r"] == 8


def test_overrides_merge_and_leave_the_arguments_alone():
    defaults = {"a": {"b": 1, "c": [1]}}
    assert merge(defaults, {"a": {"c": [2]}}) == {"a": {"b": 1, "c": [2]}}
    assert defaults == {"a": {"b": 1, "c": [1]}}


def test_a_section_whose_lines_are_all_comments_keeps_the_defaults():
    assert resolve({"sft": None, "lora": None}) == resolve({})


def test_a_commit_of_digits_is_set_as_text():
    with pytest.raises(ConfigError) as error:
        resolve({"model": {"model_revision": 1234567}})
    assert "set --type string --path 'trainer.model.model_revision' VALUE" in str(error.value)


def test_a_key_written_with_its_section_is_set_below_it():
    problem = unknown_key("trainer", "sft.max_steps", 20, ["sft", "lora"])
    assert "did you mean sft: max_steps?" in problem.allowed
    assert str(problem).endswith(
        "pulumi config rm --path 'trainer[\"sft.max_steps\"]' && "
        "pulumi config set --path 'trainer.sft.max_steps' 20"
    )


def test_a_resolved_configuration_survives_yaml(tmp_path: Path):
    resolved = resolve({"run": {"output_dir": "gs://b/runs/x", "device": "cpu"}})
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(resolved))
    config = load(path)
    assert config.run.output_dir == "gs://b/runs/x"
    assert config.sft == resolved["sft"]
    assert config.data.seed == 42


def test_a_run_without_an_output_folder_is_refused(tmp_path: Path):
    path = tmp_path / "run.yaml"
    path.write_text("sft: {max_steps: 3}\n")
    with pytest.raises(ConfigError, match=r"trainer\.run\.output_dir"):
        load(path)
    path.write_text("- not\n- a mapping\n")
    with pytest.raises(ConfigError, match="mapping of sections"):
        load(path)


@pytest.mark.parametrize(("nodes", "workers"), [(1, 2), (1, 8), (4, 8)])
def test_the_launcher_starts_one_process_a_gpu_under_fsdp2(nodes: int, workers: int):
    launcher = accelerate_config(nodes, workers, "cuda")
    assert launcher["num_machines"] == nodes
    assert launcher["num_processes"] == nodes * workers
    assert launcher["distributed_type"] == "FSDP"
    assert launcher["fsdp_config"]["fsdp_version"] == 2
    assert launcher["fsdp_config"]["fsdp_activation_checkpointing"] is False
    assert launcher["fsdp_config"]["fsdp_cpu_ram_efficient_loading"] is False
    assert launcher["mixed_precision"] == "no"  # accelerate's would be bfloat16 throughout
    assert not launcher["use_cpu"]
    alone = accelerate_config(1, 1, "cpu")
    assert (alone["distributed_type"], alone["use_cpu"]) == ("NO", True)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("state_dict_type", "SHARDED_STATE_DICT"),
        ("reshard_after_forward", False),
        ("offload_params", True),
    ],
)
def test_the_launcher_shards_as_the_section_says(key: str, value: object):
    default = accelerate_config(1, 2, "cuda")["fsdp_config"][f"fsdp_{key}"]
    changed = resolve({"fsdp": {key: value}})["fsdp"]
    given = accelerate_config(1, 2, "cuda", changed)["fsdp_config"][f"fsdp_{key}"]
    assert given == value != default


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rank_pattern", {"q_proj": 4}),
        ("alpha_pattern", {"q_proj": 4}),
        ("lora_bias", True),
        ("target_parameters", ["q_proj.weight"]),
        ("trainable_token_indices", [1]),
        ("layer_replication", [[0, 2], [1, 2]]),
    ],
)
def test_what_is_more_than_a_plain_adapter_is_not_merged(key: str, value: object):
    found = problems({"lora": {key: value}, "export": {"merged": True}})
    assert f"lora.{key}" in found["trainer.export.merged"].allowed
    resolve({"lora": {key: value}})


def test_a_problem_reads_as_key_value_allowed_and_fix():
    problem = Problem("sft.learning_rate", -1, "a number above 0", "set {key} 1e-5")
    text = str(problem.under("trainer").under("gemma:runs.x"))
    assert "gemma:runs.x.trainer.sft.learning_rate" in text
    assert "set gemma:runs.x.trainer.sft.learning_rate 1e-5" in text
    assert "2 problems" in str(ConfigError([problem, problem]))


@pytest.mark.parametrize(("name", "meant"), [("rank", "r"), ("lr", "learning_rate"), ("zzz", None)])
def test_the_name_of_other_tools_leads_to_ours(name: str, meant: str | None):
    known = ["alora_invocation_tokens", "learning_rate", "lora_alpha", "r"]
    text = str(unknown_key("lora", name, 16, known).under("trainer"))
    renamed = f"&& pulumi config set --path 'trainer.lora.{meant}' 16"
    assert (renamed in text) == (meant is not None)
    assert f"pulumi config rm --path 'trainer.lora.{name}'" in text


def test_a_refusal_leaves_its_mark_for_the_containers_wrapper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("GEMMA_CONFIG_ERROR_FILE", str(tmp_path / "config-error"))
    assert refuse(ConfigError([Problem("a", 1, "2")])) == 78
    assert (tmp_path / "config-error").exists()
    assert "allowed: 2" in capsys.readouterr().err


def test_rules_come_from_annotations():
    assert key_of(int | None).types == ("integer", "null")
    assert key_of(list[str]).types == ("list",)
    read, found = check("x", {"a": True}, {"a": key_of(int)})
    assert (read, len(found)) == ({}, 1)  # a boolean is no number, whatever Python says
    assert not Bound(above=0).holds(float("nan"))


def test_every_key_of_the_defaults_is_in_the_schemas():
    assert {"learning_rate", "packing", "activation_checkpointing"} <= set(schema("sft"))
    assert "ensure_weight_tying" in schema("lora")
    assert schema("quantization")["bnb_4bit_quant_type"].choices == ("fp4", "nf4")


def test_no_heavy_library_is_imported():
    code = (
        "import sys; from training.gemma4_text.config import resolve; resolve({}); "
        "heavy = {'torch', 'transformers', 'trl', 'peft', 'datasets', 'numpy'} & set(sys.modules); "
        "sys.exit(str(heavy) if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])
