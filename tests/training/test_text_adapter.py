"""What a run leaves for others: the adapter, the one for vLLM, and the counts in its metrics."""

import json
from pathlib import Path

from tests.training.text_runs import LENGTH, ROWS, Run


def test_the_adapter_is_whole_and_on_the_language_model_only(sharded: Run, text_samples: Path):
    from transformers import AutoModelForCausalLM

    saved = sharded.adapter()
    base = AutoModelForCausalLM.from_pretrained(text_samples / "model")
    ends = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    linears = {
        name: module
        for name, module in base.named_modules()
        if "language_model" in name and name.endswith(ends)
    }
    wanted = {
        f"base_model.model.{name}.lora_{side}.weight": shape
        for name, module in linears.items()
        for side, shape in (
            ("A", (16, module.in_features)),
            ("B", (module.out_features, 16)),
        )
    }
    assert {name: tuple(tensor.shape) for name, tensor in saved.items()} == wanted
    moved = [name for name, tensor in saved.items() if "lora_B" in name and tensor.abs().max() > 0]
    assert len(moved) == len(wanted) / 2  # lora_B starts at zero


# Where vLLM has the linear layers of Gemma 4's language model, and which of a checkpoint's layers
# it joins in each: Gemma4ForConditionalGeneration in vllm/model_executor/models/gemma4_mm.py and
# gemma4.py. An adapter under any other name is loaded and changes nothing (vllm#34186, #41754).
VLLM_PREFIX = {"model.language_model.": "language_model.model."}
VLLM_LAYERS = {
    "self_attn.qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "self_attn.o_proj": ("o_proj",),
    "mlp.gate_up_proj": ("gate_proj", "up_proj"),
    "mlp.down_proj": ("down_proj",),
}


def test_vllm_finds_a_layer_for_every_tensor_of_the_adapter(sharded: Run):
    from safetensors.torch import load_file

    served = {
        f"language_model.model.layers.{index}.{joined.rsplit('.', 1)[0]}.{part}"
        for index in range(2)
        for joined, parts in VLLM_LAYERS.items()
        for part in parts
    }
    (old, new), *_ = VLLM_PREFIX.items()
    folder = sharded.folder / "adapter-vllm"
    tensors = load_file(folder / "adapter_model.safetensors")
    found: set[str] = set()
    for name in tensors:
        path, side, kind = name.removeprefix("base_model.model.").rsplit(".", 2)
        assert (side, kind) in (("lora_A", "weight"), ("lora_B", "weight"))
        assert path.startswith(old)
        found.add(path.replace(old, new, 1))
    assert found == served
    # The second layer is global and has no v_proj: its keys serve as values. vLLM gives it one, a
    # copy of k_proj's weight (load_weights in gemma4.py): k_proj's adapter is needed there too.
    saved = sharded.adapter()
    ours = "base_model.model.model.language_model.layers.1.self_attn.{}_proj.lora_{}.weight"
    added = {ours.format("v", side): ours.format("k", side) for side in "AB"}
    assert tensors.keys() - saved.keys() == added.keys()
    assert all(bool((tensors[new] == saved[old]).all()) for new, old in added.items())
    assert all(bool((tensors[name] == tensor).all()) for name, tensor in saved.items())
    settings = json.loads((folder / "adapter_config.json").read_text())
    refused = {
        "bias": "none",
        "use_dora": False,
        "modules_to_save": None,
    }  # vllm/lora/peft_helper.py
    assert {key: settings[key] for key in refused} == refused


def test_tokens_are_counted_as_the_data_has_them(sharded: Run, text_samples: Path):
    from transformers import AutoTokenizer

    from training.gemma4_text import tokens
    from training.gemma4_text.config import DataConfig, resolve
    from training.gemma4_text.rows import read_rows
    from training.gemma4_text.split import make_split

    settings = DataConfig(
        **{
            **resolve({})["data"],
            "dataset_name": str(text_samples / "data"),
            "train_rows": ROWS,
            "held_out_rows": 8,
        }
    )
    tokenizer = AutoTokenizer.from_pretrained(text_samples / "model")
    split = make_split(read_rows(text_samples / "data", settings), settings)
    rows = tokens.tokenise(tokenizer, split.train, settings, LENGTH)
    counted = tokens.counts(rows)
    lines = [line for line in sharded.lines() if "loss" in line]
    assert lines[-1]["epoch"] == 1
    assert sum(line["tokens"] for line in lines) == counted["tokens"]
    assert sum(line["trained_tokens"] for line in lines) == counted["trained_tokens"]
    assert sum(line["padding"] for line in lines) == 0
