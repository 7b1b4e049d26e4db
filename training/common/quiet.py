"""Lines of libraries that say nothing about a run: each left out by itself, with its cause."""

from __future__ import annotations

import logging


def libraries() -> None:
    """Call before the libraries are imported."""
    # On every machine whose CPU knows bfloat16, GPUs or not, bitsandbytes 0.50 asks for a package
    # of CPU kernels and warns that it is missing. Only 4-bit layers on a CPU would use it.
    logging.getLogger("bitsandbytes.backends.cpu.ops").addFilter(
        lambda record: "gemm_4bit_forward" not in record.getMessage()
    )
