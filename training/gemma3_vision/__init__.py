"""Gemma 3 vision: product picture and name in, description out, by QLoRA on Ray Train."""
