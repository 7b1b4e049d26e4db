"""The work of a training step, in the model's own terms, for the share of the GPUs' peak in use.

A LoRA step is not 6 N for N parameters: a frozen weight has no gradient of its own. In FLOPs,
  a frozen linear layer   2 forward + 2 backward for each weight and token
  an adapter's layers     2 forward + 4 backward, the same way
  the head                2 forward + 2 backward, for trained tokens only
  scores and values       4 forward + 8 backward for each channel of the heads and each pair of a
                          token and one that it attends to
Recomputed activations, padding and the embedding look-up do not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from training.gemma4_text.model import decoder_layers


@dataclass(frozen=True)
class Work:
    """What one step costs, as a function of its documents.

    Attributes:
        token: FLOPs of a token, attention left out.
        trained: FLOPs of a trained token on top of that.
        attention: channels of the heads and sliding window (None: all tokens) of each layer.
    """

    token: float
    trained: float
    attention: tuple[tuple[int, int | None], ...]

    @classmethod
    def of(cls, model: Any) -> Work:
        """The work of a model with or without an adapter, sharded or not."""
        _, layers = decoder_layers(model)
        stack = layers[0].rsplit(".", 1)[0] + "."
        frozen = adapter = 0
        for name, module in model.named_modules():
            if name.startswith(stack) and isinstance(module, nn.Linear):
                weights = module.in_features * module.out_features
                if "lora_" in name:
                    adapter += weights
                else:
                    frozen += weights
        head = model.get_output_embeddings()
        attention: list[tuple[int, int | None]] = []
        for layer in layers:
            inside = model.get_submodule(layer).self_attn
            attention.append(
                (inside.o_proj.in_features, getattr(inside, "sliding_window", None) or None)
            )
        return cls(
            token=4.0 * frozen + 6.0 * adapter,
            trained=4.0 * head.in_features * head.out_features,
            attention=tuple(attention),
        )

    def step(self, lengths: Sequence[int], trained: int) -> float:
        """FLOPs of the forward and backward pass over documents of these lengths in tokens."""
        total = self.token * sum(lengths) + self.trained * trained
        for channels, window in self.attention:
            total += 12.0 * channels * sum(pairs(length, window) for length in lengths)
        return total


def pairs(length: int, window: int | None) -> int:
    """Pairs of a token and one that it attends to: itself, and those before it in the window."""
    near = min(length, window or length)
    return near * (near + 1) // 2 + (length - near) * near
