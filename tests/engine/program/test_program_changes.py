"""What each setting does to a deployed stack, as the engine sees it: the exact operations.

A new setting gets a line here. None may replace the cluster or the bucket of results unless its
line says so.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

OTHER_IMAGE = "us-docker.pkg.dev/other/images/trainer@sha256:" + "a" * 64
VISION = {"RayJob vision": "replace", "ConfigMap vision-config": "replace"}
TEXT = {"Job text-to-sql": "replace", "ConfigMap text-to-sql-config": "replace"}
ALERTS = {f"AlertPolicy {name}" for name in ("gpus-idle", "run-failed", "run-stalled")}
LABELLED = {"Repository registry", "Cluster cluster", "Bucket runs", "Bucket builds", *ALERTS}


class Case(NamedTuple):
    """A change of the settings and all that it does."""

    what: str
    settings: dict[str, Any]
    expected: dict[str, str]


CASES = [
    Case("labels", {"labels.team": "other"}, dict.fromkeys(LABELLED, "update")),
    Case("vision learning rate", {"runs.vision.trainer.sft.learning_rate": 1e-5}, VISION),
    Case("text learning rate", {"runs.text-to-sql.trainer.sft.learning_rate": 3e-5}, TEXT),
    Case("more machines for Ray", {"runs.vision.nodes": 4}, VISION),
    Case(
        "a second machine for the Job",
        {"runs.text-to-sql.nodes": 2},
        {**TEXT, "Service text-to-sql": "create"},
    ),
    Case("another attempt", {"runs.text-to-sql.attempt": 2}, TEXT),
    Case(
        "a run switched off",
        {"runs.vision.enabled": False},
        dict.fromkeys(VISION, "delete"),
    ),
    Case(
        "one run more",
        {"runs.second": {"workload": "gemma4-text"}},
        {"Job second": "create", "ConfigMap second-config": "create"},
    ),
    Case(
        "another reservation",
        {"reservation": "projects/other-project/reservations/other"},
        {"RayJob vision": "replace", "Job text-to-sql": "replace"},
    ),
    Case(
        "Spot",
        {"capacity": "spot", "reservation": None},
        {"RayJob vision": "replace", "Job text-to-sql": "replace"},
    ),
    Case(
        "an image by digest",
        {"image.uri": OTHER_IMAGE},
        {
            **VISION,
            **TEXT,
            "Build trainer": "delete",
            "Service cloudbuild.googleapis.com": "delete",
        },
    ),
    Case("release channel", {"cluster.releaseChannel": "RAPID"}, {"Cluster cluster": "update"}),
    Case(
        "protection",
        {"cluster.deletionProtection": True},
        {"Cluster cluster": "update", "Guard guard": "update"},
    ),
    Case("checkpoint days", {"bucket.checkpointDays": 30}, {"Bucket runs": "update"}),
    Case(
        "a bucket that is kept",
        {"bucket.forceDestroy": False},
        {"Bucket runs": "update", "Guard guard": "update"},
    ),
    Case("no dashboard", {"dashboard": False}, {"Dashboard dashboard": "delete"}),
    Case("no alerts", {"alerts.enabled": False}, dict.fromkeys(ALERTS, "delete")),
    Case("stalled later", {"alerts.stalledMinutes": 60}, {"AlertPolicy run-stalled": "update"}),
    Case(
        "somebody is told",
        {"alerts.emails": ["a@example.com"]},
        {**dict.fromkeys(ALERTS, "update"), "NotificationChannel email-0": "create"},
    ),
    Case(
        "public nodes",
        {"network.privateNodes": False},
        {"Cluster cluster": "update", "Router network": "delete", "RouterNat network": "delete"},
    ),
]


def verdicts(stack: Any, settings: dict[str, Any]) -> dict[str, str]:
    """All operations of a change, by kind and name."""
    found = stack.preview(settings)
    assert found.errors == ()
    return {f"{c.type.split(':')[-1]} {c.name}": c.verdict for c in found.changes}


@pytest.mark.parametrize("case", CASES, ids=[case.what for case in CASES])
def test_a_setting_changes_exactly_this(deployed: Any, case: Case) -> None:
    assert verdicts(deployed, case.settings) == case.expected


def test_a_renewed_token_disturbs_no_run(deployed: Any) -> None:
    key = "gemma:huggingFaceToken"
    renewed = {key: deployed.encrypted(key, "hf_ARenewedToken")}
    assert verdicts(deployed, renewed) == {"Secret hugging-face-token": "update"}


def test_another_region_replaces_what_lies_in_it(deployed: Any) -> None:
    found = verdicts(deployed, {"gcp:region": "europe-west4"})
    for name in ("Cluster cluster", "Bucket runs", "Repository registry", "Subnetwork network"):
        assert found[name] == "replace"
    for name in ("RayJob vision", "Job text-to-sql"):
        assert found[name] == "replace"
    untouched = ("Network ", "Account", "Service ", "IAMMember nodes-")
    assert [name for name in found if name.startswith(untouched)] == []
