"""A Gemma 4 checkpoint at random, small enough to train on a CPU in a minute.

    python -m training.samples.text_model OUT

Of the 31B model's shape in all that a trainer meets: Gemma 4's own classes with a vision tower
beside the language model, local and global layers of different head sizes, keys that serve as
values in the global ones, a tied and soft-capped head, Gemma's special tokens and TRL's copy of
the chat template. The weights are drawn with a fixed seed and never trained.
"""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from training.samples import text_to_sql, tokens

TURN_END = "<turn|>"
SPECIAL = (
    *("<|turn>", TURN_END, "<|channel>", "<channel|>", "<|think|>", '<|"|>'),
    *("<|tool>", "<tool|>", "<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>"),
    *("<|image>", "<|image|>", "<image|>", "<|audio>", "<|audio|>", "<audio|>", "<|video|>"),
)
MEDIA = {"boi": "<|image>", "eoi": "<image|>", "image": "<|image|>", "video": "<|video|>"}
VOCABULARY = 1536  # tokens at most; 280 of them are bytes and control tokens
WEIGHT_STD = 0.08  # at Gemma's 0.02 a net this narrow passes on almost nothing of its input


def corpus() -> list[str]:
    """The prompt's own words and every text of the sample rows."""
    defaults = Path(__file__).parent.parent / "gemma4_text" / "config.yaml"
    data = yaml.safe_load(defaults.read_text(encoding="utf-8"))["data"]
    texts = [f"{data['system_prompt']}\n{data['user_prompt']}", "system\nuser\nmodel\n"] * 8
    return texts + ["\n".join(row.values()) for row in text_to_sql.rows()]


def config(vocabulary: Any, hidden: int = 128, layers: int = 4) -> Any:
    """A `Gemma4Config` of the 31B model's shape.

    Args:
        vocabulary: the tokenizer.
        hidden: width of the language model, a multiple of 32.
        layers: of the language model; every second one is global.
    """
    from transformers import Gemma4Config

    def token(name: str) -> int:
        return int(vocabulary.convert_tokens_to_ids(name))

    text = {
        "vocab_size": -(-len(vocabulary) // 64) * 64,
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": hidden // 4,
        "global_head_dim": hidden // 2,
        "num_global_key_value_heads": 1,
        "attention_k_eq_v": True,
        "hidden_size_per_layer_input": 0,
        "sliding_window": 128,
        "layer_types": ["sliding_attention", "full_attention"] * (layers // 2),
        "final_logit_softcapping": 30.0,
        "use_bidirectional_attention": "vision",
        "max_position_embeddings": 4096,
        "initializer_range": WEIGHT_STD,
        "bos_token_id": vocabulary.bos_token_id,
        "eos_token_id": vocabulary.eos_token_id,
        "pad_token_id": vocabulary.pad_token_id,
    }
    vision = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "patch_size": 8,
        "position_embedding_size": 64,
        "pooling_kernel_size": 2,
    }
    media: dict[str, Any] = {f"{name}_token_id": token(MEDIA[name]) for name in MEDIA}
    return Gemma4Config(
        text_config=text,
        vision_config=vision,
        audio_config=None,
        initializer_range=WEIGHT_STD,
        **media,
        audio_token_id=token("<|audio|>"),
        boa_token_id=token("<|audio>"),
        eoa_token_index=token("<audio|>"),
        dtype="bfloat16",
    )


def write(folder: Path, seed: int = 0, hidden: int = 128, layers: int = 4) -> Path:
    """Write a checkpoint that `AutoModelForCausalLM` and `AutoTokenizer` load; return it."""
    import torch
    from transformers import AutoModelForCausalLM, GenerationConfig

    vocabulary = tokens.learn(corpus(), SPECIAL, VOCABULARY)
    vocabulary.chat_template = (files("trl") / "chat_templates" / "gemma4.jinja").read_text("utf-8")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config(vocabulary, hidden, layers))
    model.generation_config = GenerationConfig(
        bos_token_id=vocabulary.bos_token_id,
        eos_token_id=[vocabulary.eos_token_id, vocabulary.convert_tokens_to_ids(TURN_END)],
        pad_token_id=vocabulary.pad_token_id,
    )
    model.to(torch.bfloat16).save_pretrained(folder)
    vocabulary.save_pretrained(folder)
    return folder


if __name__ == "__main__":
    print(write(Path(sys.argv[1])))
