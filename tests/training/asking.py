"""What the tests of the Hub ask for, and how they read a refusal."""

import pytest

from training.common.config import ConfigError, Problem
from training.gemma3_vision import config as vision
from training.gemma4_text import config as text

GEMMA = "google/gemma-3-4b-it"
ROWS = "philschmid/amazon-product-descriptions-vlm"


def problem(caught: pytest.ExceptionInfo[ConfigError]) -> Problem:
    (only,) = caught.value.problems
    return only


def resolved(trainer: str, **sections) -> dict:
    run = {"output_dir": "x", "name": "shop", "device": "cpu"}
    resolve = {"vision": vision.resolve, "text": text.resolve}[trainer]
    return resolve({"run": run, **sections})
