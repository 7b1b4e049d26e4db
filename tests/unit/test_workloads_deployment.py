"""Runs as Pulumi resources, declared against Pulumi's mocks."""

from __future__ import annotations

from typing import Any

import pulumi
import yaml

from infra.schema import Settings
from workloads import Surroundings, deploy, isolate, plan
from workloads.deployment import RAY_JOB_REPLACED_BY


class Engine(pulumi.runtime.Mocks):
    """Records what is registered."""

    def __init__(self) -> None:
        self.resources: dict[tuple[str, str], pulumi.runtime.MockResourceArgs] = {}

    def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        self.resources[args.typ, args.name] = args
        return f"{args.name}-id", dict(args.inputs)

    def call(self, args: pulumi.runtime.MockCallArgs) -> dict[str, Any]:
        return {}


RAY_JOB = "kubernetes:ray.io/v1:RayJob"
RAY_CLUSTER = "kubernetes:ray.io/v1:RayCluster"
JOB = "kubernetes:batch/v1:Job"
CONFIG = "kubernetes:core/v1:ConfigMap"
SERVICE = "kubernetes:core/v1:Service"


def up(runs: dict[str, Any], **keys: object) -> tuple[Engine, dict[str, Any]]:
    """What is registered for a stack with these runs, and the runs' summaries."""
    engine = Engine()
    pulumi.runtime.set_mocks(engine, project="gemma", stack="dev", preview=False)
    base = {"project": "my-project", "region": "r", "stack": "dev", "reservation": "r1"}
    settings = Settings.model_validate({**base, **keys, "runs": runs}, by_name=True)
    summaries: dict[str, Any] = {}

    async def program() -> None:
        around = Surroundings(
            image=pulumi.Output.from_input("host/trainer@sha256:1"),
            image_key="key",
            bucket=pulumi.Output.from_input("bucket"),
            project="my-project",
            token_secret="hugging-face-token",
        )
        isolate("gemma")
        found = deploy(plan(settings, "key"), around)
        resolved = await pulumi.Output.from_input(found).future()
        summaries.update(resolved or {})

    pulumi.runtime.test(program)()
    return engine, summaries


VISION = {"workload": "gemma3-vision", "nodes": 2}
TEXT = {"workload": "gemma4-text"}


def test_each_run_is_a_config_map_and_its_object():
    engine, summaries = up({"vision": VISION, "sql": TEXT})
    assert set(engine.resources) == {
        ("kubernetes:networking.k8s.io/v1:NetworkPolicy", "runs"),
        ("gemma:workloads:FineTuning", "vision"),
        ("gemma:workloads:FineTuning", "sql"),
        (CONFIG, "vision-config"),
        (CONFIG, "sql-config"),
        (RAY_JOB, "vision"),
        (JOB, "sql"),
    }
    name = summaries["sql"]["object"]
    assert engine.resources[JOB, "sql"].inputs["metadata"]["name"] == name
    assert name == f"sql-{summaries['sql']['id']}"


def test_config_map_holds_where_the_outputs_go():
    engine, summaries = up({"sql": TEXT})
    data = engine.resources[CONFIG, "sql-config"].inputs["data"]
    run = yaml.safe_load(data["run.yaml"])["run"]
    assert run["output_dir"] == summaries["sql"]["folder"]
    assert run["output_dir"] == f"gs://bucket/runs/gemma4-text/{summaries['sql']['id']}"
    assert run["image"] == "host/trainer@sha256:1"
    assert yaml.safe_load(data["accelerate.yaml"])["num_processes"] == 8
    assert engine.resources[CONFIG, "sql-config"].inputs["immutable"] is True


def test_objects_keep_their_kubernetes_spelling():
    engine, _ = up({"vision": VISION, "sql": TEXT})
    pod = engine.resources[JOB, "sql"].inputs["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert container["image"] == "host/trainer@sha256:1"
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "8"
    assert pod["nodeSelector"]["cloud.google.com/reservation-name"] == "r1"
    assert pod["terminationGracePeriodSeconds"] == 600
    spec = engine.resources[RAY_JOB, "vision"].inputs["spec"]
    workers = spec["rayClusterSpec"]["workerGroupSpecs"][0]
    assert (workers["minReplicas"], workers["maxReplicas"]) == (2, 2)
    assert spec["shutdownAfterJobFinishes"] is True
    assert "ttlSecondsAfterFinished" not in spec
    assert "ttlSecondsAfterFinished" not in engine.resources[JOB, "sql"].inputs["spec"]


def test_a_changed_learning_rate_changes_that_run_only():
    before, _ = up({"vision": VISION, "sql": TEXT})
    changed = {**TEXT, "trainer": {"sft": {"learning_rate": 2e-5}}}
    after, _ = up({"vision": VISION, "sql": changed})
    moved = {
        key
        for key in before.resources
        if before.resources[key].inputs != after.resources[key].inputs
    }
    assert moved == {(CONFIG, "sql-config"), (JOB, "sql")}


def test_nothing_is_awaited_unless_asked():
    runs = {"a": VISION, "b": TEXT, "c": {**VISION, "wait": True}, "d": {**TEXT, "wait": True}}
    engine, _ = up(runs)
    awaited = {
        name: {
            key.removeprefix("pulumi.com/"): value
            for key, value in args.inputs["metadata"]["annotations"].items()
            if key in ("pulumi.com/skipAwait", "pulumi.com/waitFor")
        }
        for (kind, name), args in engine.resources.items()
        if kind in (RAY_JOB, JOB)
    }
    assert awaited == {
        "a": {"skipAwait": "true"},
        "b": {"waitFor": "jsonpath={.metadata.uid}"},  # its end is awaited on a replacement
        "c": {"waitFor": "jsonpath={.status.jobStatus}=SUCCEEDED"},
        "d": {},  # the engine's own wait for a Job
    }


def test_several_machines_get_a_headless_service():
    engine, summaries = up({"sql": {**TEXT, "nodes": 2}})
    service = engine.resources[SERVICE, "sql"].inputs["spec"]
    spec = engine.resources[JOB, "sql"].inputs["spec"]
    assert service["clusterIP"] == "None"
    assert service["selector"] == {"gemma.run/id": summaries["sql"]["id"]}
    assert spec["template"]["spec"]["subdomain"] == summaries["sql"]["object"]
    assert (spec["completionMode"], spec["parallelism"]) == ("Indexed", 2)


def test_runs_share_one_cluster_and_bring_their_configs():
    shared = {**VISION, "cluster": "lab"}
    engine, _ = up({"a": shared, "b": {**shared, "trainer": {"sft": {"learning_rate": 1e-4}}}})
    cluster = engine.resources[RAY_CLUSTER, "cluster-lab"].inputs["metadata"]["name"]
    for name in ("a", "b"):
        spec = engine.resources[RAY_JOB, name].inputs["spec"]
        assert spec["clusterSelector"] == {"ray.io/cluster": cluster}
        assert "rayClusterSpec" not in spec
        assert "backoffLimit" not in spec  # KubeRay 1.6 refuses it here
        assert "GEMMA_CONFIG" in spec["runtimeEnvYAML"]
    specs = [engine.resources[RAY_JOB, name].inputs["spec"] for name in ("a", "b")]
    assert specs[0]["runtimeEnvYAML"] != specs[1]["runtimeEnvYAML"]


def test_fields_that_replace_a_ray_job_exist():
    engine, _ = up({"vision": VISION})
    spec = engine.resources[RAY_JOB, "vision"].inputs["spec"]
    own_cluster = {path.removeprefix("spec.") for path in RAY_JOB_REPLACED_BY} - {
        "clusterSelector",
        "runtimeEnvYAML",
    }
    assert own_cluster <= set(spec)


def test_logs_link_names_the_run():
    _, summaries = up({"sql": TEXT})
    assert summaries["sql"]["id"] in summaries["sql"]["logs"]
    assert summaries["sql"]["logs"].endswith("?project=my-project")
