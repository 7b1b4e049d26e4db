"""What the device at hand can do, and how much of its memory was used."""

from __future__ import annotations

import os
import resource

from training.common.config import ConfigError, Problem

# Dense bf16 tensor-core FLOP/s, NVIDIA's data sheets; a 4-bit weight is multiplied in bf16.
PEAK = {"B200": 2.25e15, "H200": 989e12, "H100": 989e12, "A100": 312e12, "L4": 121e12}


def check(device: str) -> None:
    """Fail at once where the GPU that the run asks for is not seen: it never falls back to the CPU.

    Raises:
        RuntimeError: device is cuda and torch sees no GPU; another machine may have its driver.
        ConfigError: one that computes no bfloat16, as all of its kind.
    """
    import torch

    if device != "cuda":
        return
    if not torch.cuda.is_available():
        raise RuntimeError(f"run.device is cuda and torch sees no GPU: {os.uname().nodename}")
    if not torch.cuda.is_bf16_supported(including_emulation=False):
        allowed = f"a GPU with bfloat16; {torch.cuda.get_device_name()} has none"
        raise ConfigError([Problem("trainer.run.device", device, allowed)])


def peak_flops() -> float | None:
    """Peak FLOP/s of this process's GPU, None where it is unknown."""
    import torch

    if not torch.cuda.is_available():
        return None
    name = torch.cuda.get_device_name()
    return next((value for key, value in PEAK.items() if key in name), None)


def memory_gib() -> float:
    """Highest use so far: the GPU's allocated memory, or this process's resident memory."""
    import torch

    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 2**30
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # Linux counts in KiB
