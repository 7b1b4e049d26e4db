"""A wrong configuration stops the preview with all that is wrong, and nothing is created."""

from __future__ import annotations

from typing import Any

#: What is wrong, the change that makes it so, and the key that the message must name.
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "unknown key": ({"acelerator": "cpu"}, "gemma:acelerator"),
    "unknown key of a run": ({"runs.vision.node": 2}, "gemma:runs.vision.node"),
    "unknown trainer key": (
        {"runs.vision.trainer.sft.learning_rat": 1e-4},
        "gemma:runs.vision.trainer.sft.learning_rat",
    ),
    "malformed reservation": ({"reservation": "projects/p/reservations/"}, "gemma:reservation"),
    "unknown accelerator": ({"accelerator": "nvidia-b300"}, "gemma:accelerator"),
    "negative learning rate": (
        {"runs.text-to-sql.trainer.sft.learning_rate": -1e-4},
        "gemma:runs.text-to-sql.trainer.sft.learning_rate",
    ),
    "no machines": ({"runs.text-to-sql.nodes": 0}, "gemma:runs.text-to-sql.nodes"),
    "no workers": ({"runs.vision.workersPerNode": 0}, "gemma:runs.vision.workersPerNode"),
}


def test_b200_without_a_reservation_stops_the_preview(idle: Any) -> None:
    found = idle.preview({"reservation": None})
    assert len(found.errors) == 1
    assert "gemma:reservation" in found.errors[0]
    assert found.changes == ()


def test_all_mistakes_come_in_one_message(idle: Any) -> None:
    together = {k: v for changes, _ in BAD.values() for k, v in changes.items()}
    found = idle.preview(together)
    assert len(found.errors) == 1
    missing = [key for _, key in BAD.values() if key not in found.errors[0]]
    assert missing == []
    # Each says how to mend it.
    assert found.errors[0].count("pulumi config ") >= len(BAD)
    assert found.changes == ()


def test_up_creates_nothing_from_a_wrong_configuration(idle: Any) -> None:
    before = idle.sandbox.cloud_state()
    idle.configure({"accelerator": "nvidia-b300"})
    assert idle.up(check=False).returncode != 0
    idle.configure()
    assert idle.resources() == {}
    assert idle.sandbox.cloud_state() == before
