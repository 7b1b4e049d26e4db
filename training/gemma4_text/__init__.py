"""Gemma 4 text-to-SQL: LoRA under FSDP2, started by `accelerate launch`."""
