"""A Gemma tokenizer with a small vocabulary, learned from given texts."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

FIRST = ("<pad>", "<eos>", "<bos>", "<unk>", "<mask>")  # at Gemma's own positions, 0 to 4


def learn(
    texts: Iterable[str], special: Sequence[str], size: int, extra: dict[str, str] | None = None
) -> Any:
    """A `GemmaTokenizer` (BPE with byte fallback) whose merges come from `texts`.

    Args:
        texts: what the merges are learned from.
        special: control tokens besides FIRST; never cut, skipped when decoding.
        size: of the vocabulary at most; bytes and control tokens count too.
        extra: names that the tokenizer gets as attributes, such as `image_token`.
    """
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
    from transformers import GemmaTokenizer

    control = [*FIRST, *special]
    fixed = [*control, *(f"<0x{byte:02X}>" for byte in range(256)), "\n", "\n\n"]
    learner = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    learner.normalizer = normalizers.Replace(" ", "▁")
    # No merge crosses a word, a line, a digit or a sign: `(price` stays two tokens, as in Gemma.
    learner.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split("▁", behavior="merged_with_next"),
            pre_tokenizers.Split(Regex(r"[^\p{L}▁]"), behavior="isolated"),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=fixed, show_progress=False, min_frequency=2
    )
    learner.train_from_iterator(texts, trainer)
    with tempfile.TemporaryDirectory() as folder:
        learner.model.save(folder)
        vocabulary = json.loads(Path(folder, "vocab.json").read_text(encoding="utf-8"))
        lines = Path(folder, "merges.txt").read_text(encoding="utf-8").splitlines()
    merges: Any = [tuple(line.split(" ")) for line in lines if not line.startswith("#version")]
    merges.insert(0, ("\n", "\n"))  # as in Gemma's own vocabulary
    tokens = GemmaTokenizer(vocab=vocabulary, merges=merges, extra_special_tokens=extra or {})
    tokens.add_tokens(control, special_tokens=True)
    return tokens
