"""Why a run is replaced: by the setting that was changed, not by the dozen names that follow."""

from __future__ import annotations

from typing import Any

import yaml

from review import causes
from review.digest import Change

JOB, MAP = "kubernetes:batch/v1:Job", "kubernetes:core/v1:ConfigMap"


def run(identity: str, rate: float = 1e-4, nodes: int = 1, image: str = "a@sha256:1") -> Any:
    """Inputs of a run's Job and ConfigMap."""
    meta = {"name": f"text-{identity}", "labels": {"gemma.run/id": identity}}
    folder = f"gs://b/runs/gemma4-text/{identity}"
    config = {
        "sft": {"learning_rate": rate, "seed": 1},
        "run": {"id": identity, "output_dir": folder, "nodes": nodes},
    }
    job = {"metadata": meta, "spec": {"parallelism": nodes, "image": image, "volume": meta["name"]}}
    return job, {"metadata": meta, "data": {"run.yaml": yaml.safe_dump(config)}}


def changes(old: Any, new: Any) -> list[Change]:
    return [
        Change("replace", f"urn:pulumi:dev::gemma::{kind}::text", a, b, ("metadata.name",), ())
        for kind, a, b in zip((JOB, MAP), old, new, strict=True)
    ]


def test_a_learning_rate_is_the_cause() -> None:
    found = changes(run("aaaaaaaaaa"), run("bbbbbbbbbb", rate=2e-4))
    assert causes.causes(found[0], found) == ["sft.learning_rate"]


def test_the_other_runs_changes_are_not() -> None:
    found = changes(run("aaaaaaaaaa"), run("bbbbbbbbbb", rate=2e-4))
    others = changes(run("cccccccccc"), run("dddddddddd", nodes=2))
    assert causes.causes(found[0], [*found, *others]) == ["sft.learning_rate"]


def test_machines_are_the_cause() -> None:
    found = changes(run("aaaaaaaaaa"), run("bbbbbbbbbb", nodes=2))
    assert causes.causes(found[0], found) == ["run.nodes"]
    assert causes.paths(found[0]) == ["spec.parallelism"]


def test_a_new_image_is_named_by_its_property() -> None:
    found = changes(run("aaaaaaaaaa"), run("bbbbbbbbbb", image="a@sha256:2"))
    assert causes.causes(found[0], found) == ["spec.image"]


def test_a_new_attempt_shows_the_names_that_change() -> None:
    found = changes(run("aaaaaaaaaa"), run("bbbbbbbbbb"))
    assert causes.causes(found[0], found) == []
    assert causes.paths(found[0])[0] == "metadata.name"


def test_what_forces_the_replacement_comes_first() -> None:
    cluster = Change(
        "replace",
        "urn:pulumi:dev::gemma::gcp:container/cluster:Cluster::gke",
        {"addons": {"a": 1}, "network": "a"},
        {"addons": {"a": 2}, "network": "b"},
        ("network",),
        (),
    )
    assert causes.paths(cluster) == ["network", "addons.a"]
    assert causes.causes(cluster, [cluster]) == ["network"]
