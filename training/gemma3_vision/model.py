"""The quantised model, its processor and its adapter."""

from pathlib import Path
from typing import Any

from training.common.config import ConfigError, Problem
from training.gemma3_vision.config import Config

PROCESSORS = ("preprocessor_config.json", "processor_config.json")  # as saved before, and by, 5.x


def load_base(config: Config, folder: Path, *, quantized: bool = True) -> Any:
    """The base model on this worker's device, quantised as configured.

    Args:
        config: the run's configuration.
        folder: local folder with the weights.
        quantized: False loads them in model.dtype, for merging.
    """
    import torch
    from transformers import AutoModelForImageTextToText, BitsAndBytesConfig

    wanted = config.quantization
    bits = wanted.get("load_in_4bit") or wanted.get("load_in_8bit")
    quantization = BitsAndBytesConfig(**wanted) if quantized and bits else None
    device = {"": "cpu"} if config.run.device == "cpu" else {"": torch.cuda.current_device()}
    base = AutoModelForImageTextToText.from_pretrained(
        folder,
        dtype=getattr(torch, config.model.dtype),
        attn_implementation=config.model.attn_implementation,
        quantization_config=quantization,
        device_map=device,  # the whole model on each worker's own device, never `auto`
    )
    module: Any
    for module in base.modules():
        # Where the CPU has AVX512-BF16, bitsandbytes 0.50 repacks a layer's weights at the first
        # evaluation, for a product that has no gradient: training would go on and learn little.
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False
    return base


def load_processor(folder: Path, name: str = "") -> Any:
    """Tokenizer, image processor and chat template.

    Args:
        folder: of the model or of an adapter.
        name: the model's, for the error's text.

    Raises:
        ConfigError: the model reads no pictures, or was not made for conversations.
    """
    from transformers import AutoProcessor

    def wrong(allowed: str) -> ConfigError:
        key = "trainer.model.model_name_or_path"
        return ConfigError([Problem(key, name or str(folder), allowed)])

    if not any((folder / kept).is_file() for kept in PROCESSORS):
        raise wrong(
            f"a Gemma that reads pictures, as gemma-3-4b-it: it has {' or '.join(PROCESSORS)}"
        )
    processor = AutoProcessor.from_pretrained(folder)
    if not processor.chat_template:
        allowed = "a model with a chat template, as instruction-tuned ones have (`-it`)"
        raise wrong(f"{allowed}; a folder gets one by a file chat_template.jinja")
    return processor


def adapter_config(config: Config) -> Any:
    """PEFT's LoraConfig from the section `lora`."""
    from peft import LoraConfig

    values: dict[str, Any] = {**config.lora, "task_type": "CAUSAL_LM"}
    return LoraConfig(**values)


def keep_full_precision(model: Any) -> None:
    """Bring the trained weights back to fp32, which PEFT gave them and TRL takes away.

    TRL casts the adapter of a quantised model to bf16, where an update below 1/256 of a weight is
    lost; they are under 1 % of the weights, and autocast still multiplies in bf16.
    """
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()
