"""Samples and real tokens a second, memory, and the share of the GPU's peak that is used.

Model FLOPs of a LoRA step (not 6 N: frozen weights have no gradient of their own):
  a frozen linear layer of the language model   2 forward + 2 backward for each weight and token
  the head, on answer tokens only               the same
  attention (scores and values)                 forward + twice that backward
  the frozen vision tower and the projector     forward only
Recomputed activations do not count. Padding does not count.
"""

import time
from collections.abc import Mapping
from typing import Any

from training.common.device import memory_gib, peak_flops


def step_flops(config: Any, lengths: list[int], answers: int, pictures: int) -> float:
    """FLOPs of the forward and backward pass of one batch.

    Args:
        config: the model's configuration (`Gemma3Config`).
        lengths: real tokens of each row, picture tokens included.
        answers: label tokens over all rows.
        pictures: pictures over all rows.
    """
    text = config.get_text_config()
    width, heads = text.hidden_size, text.num_attention_heads * text.head_dim
    shared = text.num_key_value_heads * text.head_dim
    layer = width * (2 * heads + 2 * shared) + 3 * width * text.intermediate_size
    tokens = sum(lengths)
    total = 4.0 * layer * text.num_hidden_layers * tokens  # 2 forward, 2 backward
    total += 4.0 * width * text.vocab_size * answers
    for kind in text.layer_types:
        window = text.sliding_window if kind == "sliding_attention" else None
        seen = sum(n * min(n, window or n) for n in lengths)
        total += 3 * 4.0 * heads * seen
    vision = getattr(config, "vision_config", None)
    if vision is not None and hasattr(vision, "patch_size") and pictures:
        patches = (vision.image_size // vision.patch_size) ** 2
        inner = vision.hidden_size
        block = 4 * inner * inner + 2 * inner * vision.intermediate_size
        tower = 2.0 * block * vision.num_hidden_layers * patches
        tower += 4.0 * inner * patches * patches * vision.num_hidden_layers
        tower += 2.0 * vision.num_channels * vision.patch_size**2 * inner * patches
        tower += 2.0 * inner * width * getattr(config, "mm_tokens_per_image", 256)
        total += tower * pictures
    return total


class Throughput:
    """Counts what this worker trains on between two logs.

    Args:
        config: the model's configuration.
    """

    def __init__(self, config: Any) -> None:
        self.config = config
        self.peak = peak_flops()
        self._since = time.monotonic()
        self._shapes: list[tuple[Any, Any, int]] = []

    def count(self, inputs: Mapping[str, Any]) -> None:
        """Note one batch; nothing is read from the GPU until `read`."""
        pictures = len(inputs["pixel_values"]) if "pixel_values" in inputs else 0
        lengths = inputs["attention_mask"].sum(dim=1)
        answers = (inputs["labels"] != -100).sum()
        self._shapes.append((lengths, answers, pictures))

    def leave_out(self, seconds: float) -> None:
        """Time in which nothing was trained: an evaluation."""
        self._since += seconds

    def read(self, world: int) -> dict[str, float]:
        """Numbers since the last call, for all workers (each does the same amount of work)."""
        seconds = max(time.monotonic() - self._since, 1e-9)
        flops, samples = 0.0, 0
        for lengths, answers, pictures in self._shapes:
            flops += step_flops(self.config, lengths.tolist(), int(answers), pictures)
            samples += len(lengths)
        self._shapes.clear()
        self._since = time.monotonic()
        found = {
            "samples_per_second": round(samples * world / seconds, 3),
            "model_tflops_per_worker": round(flops / seconds / 1e12, 6),
            "memory_gib": round(memory_gib(), 3),
        }
        if self.peak:
            found["mfu"] = round(flops / seconds / self.peak, 4)
        return found
