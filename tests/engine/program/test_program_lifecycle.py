"""A deployed stack: unchanged by a second `up`, and changed in one run only by its settings."""

from __future__ import annotations

from typing import Any


def names(stack: Any, kind: str) -> set[str]:
    return {found["metadata"]["name"] for found in stack.sandbox.objects(kind, "-n", "gemma")}


def test_second_up_changes_nothing(deployed: Any) -> None:
    deployed.up("--expect-no-changes")


def test_a_changed_learning_rate_replaces_that_run_alone(deployed: Any) -> None:
    jobs, rays, maps = (names(deployed, kind) for kind in ("job", "rayjob", "configmap"))
    deployed.configure({"runs.vision.trainer.sft.learning_rate": 3.0e-5})
    deployed.up()
    assert deployed.last_changes().get("replace", 0) == 2
    assert names(deployed, "job") == jobs
    (new,), (old,) = names(deployed, "rayjob"), rays
    assert new.startswith("vision-")
    assert new != old
    assert names(deployed, "configmap") == maps - {old} | {new}
    deployed.configure()
    deployed.up()
    assert names(deployed, "rayjob") == rays
