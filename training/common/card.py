"""The adapter's README.md: what it was trained on and with, and how to load it.

PEFT's own is a form to fill in that names the folder in which this pod found the base; the Hub
refuses a card whose base_model is a folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import yaml

from training.common.report import settings

Task = Literal["image-text-to-text", "text-generation"]
CLASSES = {
    "image-text-to-text": "AutoModelForImageTextToText",
    "text-generation": "AutoModelForCausalLM",
}


def write(
    folder: Path,
    config: Any,
    task: Task,
    rows: tuple[int, int],
    figures: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Write README.md into the adapter's folder.

    Args:
        folder: local folder of the adapter.
        config: the trainer's checked configuration.
        task: the Hub's name of what the model does.
        rows: numbers of training and of held-out rows.
        figures: of `tuned` and, if it was evaluated, `base`; None before the evaluation.
    """
    base, data = config.model.model_name_or_path, config.data.dataset_name
    head: dict[str, object] = {"library_name": "peft", "pipeline_tag": task, "tags": ["lora"]}
    head |= {"base_model": base} if is_id(base) else {}
    head |= {"datasets": [data]} if is_id(data) else {}
    facts = {k: v for k, v in settings(config, *rows).items() if v is not None and k != "date"}
    table = "\n".join(f"| {key} | {value} |" for key, value in facts.items())
    text = f"""\
---
{yaml.safe_dump(head, sort_keys=False)}---
# {config.run.name}

A LoRA adapter for {base}, trained on {data}.

| | |
|---|---|
{table}
{_evaluation(figures or {})}
## Load it

```python
from peft import PeftModel
from transformers import {CLASSES[task]}

base = {CLASSES[task]}.from_pretrained("{base}")
model = PeftModel.from_pretrained(base, "PATH OR ID OF THIS ADAPTER")
```

Prompt it as it was trained: the prompts are in the run's config.yaml.
"""
    (folder / "README.md").write_text(text, encoding="utf-8")


def is_id(name: str) -> bool:
    """Whether a name is a repository on the Hub, not a folder or a bucket's."""
    return name.count("/") == 1 and not name.startswith(("/", ".", "~"))


def _evaluation(figures: Mapping[str, Mapping[str, Any]]) -> str:
    tuned, base = figures.get("tuned", {}), figures.get("base", {})
    shown = [name for name, value in tuned.items() if isinstance(value, int | float)]
    rows = "".join(f"| {name} | {base.get(name, '-')} | {tuned[name]} |\n" for name in shown)
    head = "\n## Held-out rows\n\n| | untuned | tuned |\n|---|---|---|\n"
    return f"{head}{rows}" if rows else ""
