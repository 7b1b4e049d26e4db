"""A Gemma 3 vision checkpoint at random, small enough to train on a CPU in a minute.

    python -m training.samples.vision_model OUT

Everything a trainer touches is of Gemma 3's own classes: config, SigLIP tower, projector, tied
head, tokenizer with Gemma's special tokens, TRL's copy of the chat template, image processor. 0.8
million parameters, 16 tokens a picture. The weights are drawn with a fixed seed and never trained.
"""

import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from training.samples import products
from training.samples.tokens import learn

TURNS = ("<start_of_turn>", "<end_of_turn>")
IMAGE = {
    "boi_token": "<start_of_image>",
    "eoi_token": "<end_of_image>",
    "image_token": "<image_soft_token>",
}
VOCABULARY = 768  # tokens at most; bytes and control tokens are 268 of them
IMAGE_SIZE, PATCH, IMAGE_TOKENS = 64, 8, 16  # pixels, pixels, tokens (4 x 4, pooled from 8 x 8)
WEIGHT_STD = 0.08  # at Gemma's 0.02 a net this narrow passes on almost nothing of its input


def corpus() -> list[str]:
    """Every text of the sample products and the trainer's own prompt."""
    defaults = Path(__file__).parent.parent / "gemma3_vision" / "config.yaml"
    data = yaml.safe_load(defaults.read_text(encoding="utf-8"))["data"]
    texts = [f"{data['system_prompt']}\n{data['user_prompt']}", "user\nmodel\n"] * 4
    for row in products.rows(views=1):
        texts += [f"{row['Product Name']}\n{row['Category']}\n{row['description']}"]
    return texts


def config(tokens: Any) -> Any:
    """A `Gemma3Config` of Gemma's shape: local and global layers, shared keys, tied embeddings."""
    from transformers import Gemma3Config

    text = {
        "vocab_size": -(-len(tokens) // 64) * 64,
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "query_pre_attn_scalar": 32,
        "sliding_window": 128,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "max_position_embeddings": 2048,
        "initializer_range": WEIGHT_STD,
    }
    vision = {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "image_size": IMAGE_SIZE,
        "patch_size": PATCH,
        "vision_use_head": False,
    }
    return Gemma3Config(
        text_config=text,
        vision_config=vision,
        mm_tokens_per_image=IMAGE_TOKENS,
        boi_token_index=tokens.boi_token_id,
        eoi_token_index=tokens.eoi_token_id,
        image_token_index=tokens.image_token_id,
        initializer_range=WEIGHT_STD,
        dtype="bfloat16",
    )


def write(folder: Path, seed: int = 0) -> Path:
    """Write a checkpoint that `AutoModelForImageTextToText` and `AutoProcessor` load; return it."""
    import torch
    from transformers import (
        Gemma3ForConditionalGeneration,
        Gemma3ImageProcessor,
        Gemma3Processor,
        GenerationConfig,
    )

    tokens = learn(corpus(), (*TURNS, *IMAGE.values()), VOCABULARY, IMAGE)
    settings = config(tokens)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Gemma3ForConditionalGeneration(settings)
        # Zero at construction in transformers, which would hide every picture from the model.
        torch.nn.init.normal_(
            model.model.multi_modal_projector.mm_input_projection_weight, std=WEIGHT_STD
        )
    model.generation_config = GenerationConfig(
        bos_token_id=tokens.bos_token_id,
        eos_token_id=[tokens.eos_token_id, tokens.convert_tokens_to_ids("<end_of_turn>")],
        pad_token_id=tokens.pad_token_id,
    )
    model.bfloat16().save_pretrained(folder)
    side = {"height": IMAGE_SIZE, "width": IMAGE_SIZE}
    template = (files("trl") / "chat_templates" / "gemma3.jinja").read_text(encoding="utf-8")
    Gemma3Processor(
        Gemma3ImageProcessor(size=side),
        tokens,
        chat_template=template,
        image_seq_length=IMAGE_TOKENS,
    ).save_pretrained(folder)
    return folder


if __name__ == "__main__":
    print(write(Path(sys.argv[1])))
