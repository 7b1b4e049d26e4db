"""The committed key tables against the installed libraries."""

import json
from pathlib import Path

from training.common.schema import generate


def test_the_schemas_are_those_of_the_installed_versions():
    folder = Path(generate.__file__).parent
    for name, content in generate.schemas().items():
        kept = json.loads((folder / f"{name}.json").read_text())
        assert kept == json.loads(generate.written(content)), (
            "run `python -m training.common.schema.generate`"
        )


def test_trl_accepts_every_key_of_the_text_defaults(tmp_path: Path):
    from peft import LoraConfig
    from trl.trainer.sft_config import SFTConfig

    from training.gemma4_text.config import resolve

    resolved = resolve({})
    SFTConfig(output_dir=str(tmp_path), use_cpu=True, **{**resolved["sft"], "bf16": False})
    LoraConfig(**resolved["lora"])
