"""From nothing to a deployed stack, through a change of one run, and back to nothing."""

from __future__ import annotations

from typing import Any

import pytest

CONFIG_MAP = "kubernetes:core/v1:ConfigMap"
RUNS = [("vision", "kubernetes:ray.io/v1:RayJob"), ("text-to-sql", "kubernetes:batch/v1:Job")]


def test_second_up_changes_nothing(deployed: Any) -> None:
    deployed.up("--expect-no-changes")


@pytest.mark.parametrize(("run", "job"), RUNS)
def test_a_changed_learning_rate_replaces_that_run_alone(deployed: Any, run: str, job: str) -> None:
    before = deployed.resources()
    deployed.configure({f"runs.{run}.trainer.sft.learning_rate": 3.0e-5})
    deployed.up()
    after = deployed.resources()
    changed = {urn for urn in before.keys() | after.keys() if before.get(urn) != after.get(urn)}
    assert {urn.split("::")[2].split("$")[-1] for urn in changed} == {
        job,
        "kubernetes:core/v1:ConfigMap",
    }
    assert len(changed) == 2
    deployed.configure()
    deployed.up()
