"""What may be made of the adapter: the base in full precision with the adapter folded in."""

import shutil
from pathlib import Path
from typing import Any

from training.common.storage import Folder
from training.gemma3_vision.config import Config

# SentencePiece's own file, which transformers does not write: without it llama.cpp's converter
# takes Gemma's vocabulary for another kind.
TOKENIZER = "tokenizer.model"


def merge(config: Config, weights: Path, adapter: Path) -> Any:
    """The base in model.dtype, not quantised, with the adapter folded into its weights.

    The adapter was trained against the 4-bit base, so the merged model's numbers lie as near to
    the trained ones as the 4-bit weights lie to the full ones.
    """
    from peft import PeftModel

    from training.gemma3_vision import model

    base = model.load_base(config, weights, quantized=False)
    merged: Any = PeftModel.from_pretrained(base, adapter).merge_and_unload()
    head, embeddings = merged.get_output_embeddings(), merged.get_input_embeddings()
    # Saved untied, a tied model would come back with one of the two at random (transformers#45156).
    merged.config.tie_word_embeddings = head.weight is embeddings.weight
    return merged


def save_merged(config: Config, weights: Path, adapter: Path, local: Path, processor: Any) -> None:
    """Write the merged model and its processor, and copy them to the run's folder."""
    merge(config, weights, adapter).save_pretrained(local, max_shard_size="5GB")
    processor.save_pretrained(local)
    if (weights / TOKENIZER).is_file():
        shutil.copy(weights / TOKENIZER, local)
    Folder(config.run.output_dir).upload(local, "merged")
