"""Public complaints about what comes too early, too late or too old.

One test each, named after its symptom. The bugs are those of the providers and of the tutorials;
the program is written so that they cannot happen. What needs the engine is in tests/engine.
"""

from __future__ import annotations

import pytest

CLUSTER = "container/cluster:Cluster"


def test_nodes_start_before_their_account_may_pull_or_log(declare):
    declared = declare()
    bindings = {r.urn for r in declared.resources if r.name.startswith("nodes-")}
    assert len(bindings) == 6
    assert bindings <= declared.one(CLUSTER).depends_on


def test_build_starts_before_its_account_may_push(declare):
    declared = declare()
    bindings = {r.urn for r in declared.resources if r.name.startswith("build-")}
    assert len(bindings) == 3
    assert bindings <= declared.one("dynamic/image:Build").depends_on


def test_bucket_is_emptied_while_a_pod_still_writes_to_it(declare):
    # so destroy, which goes the other way round, ends the cluster first
    assert "gcp:storage/bucket:Bucket::runs" in declare().one(CLUSTER).depends_on


def test_ray_job_is_refused_because_its_kind_arrives_later(declare):
    # pulumi-kubernetes#3176
    declared = declare()
    kinds = declared.one(":Kinds")
    assert kinds.inputs["kinds"] == ["rayclusters.ray.io", "rayjobs.ray.io"]
    assert kinds.urn in declared.one("RayJob").depends_on


def test_workload_identity_pool_does_not_exist_before_the_first_cluster(declare):
    binding = declare().one("serviceaccount/iAMMember:IAMMember")
    assert binding.inputs["member"] == ("serviceAccount:test-project.svc.id.goog[gemma/trainer]")
    assert f"gcp:{CLUSTER}::cluster" in binding.depends_on


def test_pods_ask_for_a_token_before_they_may_have_one(declare):
    # the tutorial sleeps for IAM instead
    declared = declare()
    trainer = {r.urn for r in declared.resources if r.name.startswith("trainer-runs-")}
    assert len(trainer) == 2
    for job in (declared.one("RayJob"), declared.one("batch/v1:Job")):
        assert trainer | {"gcp:serviceaccount/iAMMember:IAMMember::workload-identity"} <= (
            job.depends_on
        )


def test_cluster_is_too_old_for_its_accelerator(declare):
    version = declare().one(CLUSTER).inputs["minMasterVersion"]
    assert version == "1.32.2-gke.1422000"


@pytest.mark.parametrize(
    ("workload", "kind", "seconds"),
    [("gemma4-text", "Job", 3 * 3600), ("gemma3-vision", "RayJob", 3 * 3 * 3600)],
)
def test_up_gives_up_waiting_before_the_run_does(declare, workload, kind, seconds):
    run = {"workload": workload, "wait": True, "retries": 2, "pendingHours": 1, "maxHours": 2}
    waiting = declare(changes={"gemma:runs": {"only": run}}).one(f":{kind}")
    assert waiting.request.customTimeouts.create == f"{seconds}s"
