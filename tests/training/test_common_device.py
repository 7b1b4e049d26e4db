"""A run that asks for a GPU never trains on a CPU in its place."""

import pytest
import torch

from training.common import device
from training.common.config import ConfigError
from training.gemma3_vision.failures import Hopeless, named


def test_a_machine_without_its_gpu_is_left_for_another(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    device.check("cpu")
    said = r"run\.device is cuda and torch sees no GPU"
    with pytest.raises(RuntimeError, match=said) as caught, named():
        device.check("cuda")
    assert not isinstance(caught.value, Hopeless)  # so both trainers are tried again


def test_a_gpu_that_cannot_compute_in_bfloat16_is_refused_for_good(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Tesla T4")
    with pytest.raises(ConfigError, match="Tesla T4 has none"):
        device.check("cuda")
