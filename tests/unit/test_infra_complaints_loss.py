"""Public complaints about what is replaced or deleted, or cannot be.

One test each, named after its symptom. The bugs are those of the providers and of the tutorials;
the program is written so that they cannot happen. What needs the engine is in tests/engine.
"""

from __future__ import annotations

import sys

import pytest

from infra.guard import StackIsLockedError, _Provider

CLUSTER = "container/cluster:Cluster"
IN_CLUSTER = "kubernetes:"


def test_second_up_replaces_the_autopilot_cluster(declare):
    # pulumi-gcp#2247, #1170; terraform-provider-google#26839
    for stack in ("dev", "prod", "sandbox"):
        inputs = declare(stack).one(CLUSTER).inputs
        for filled_in_by_google in (
            "nodeConfig",
            "nodePools",
            "nodePoolDefaults",
            "dnsConfig",
            "monitoringConfig",
            "loggingConfig",
            "workloadIdentityConfig",
            "description",
            "initialNodeCount",
            "clusterIpv4Cidr",
            "datapathProvider",
        ):
            assert filled_in_by_google not in inputs, stack


def test_destroy_is_blocked_by_deletion_protection_nobody_asked_for(declare):
    # pulumi-gcp#1394: the provider's own default is true
    assert declare("dev").one(CLUSTER).inputs["deletionProtection"] is False
    assert declare("prod").one(CLUSTER).inputs["deletionProtection"] is True


def test_production_is_destroyed_by_mistake(declare):
    protected = {r.urn for r in declare("prod").resources if r.request.protect}
    assert protected == {
        "gcp:container/cluster:Cluster::cluster",
        "gcp:storage/bucket:Bucket::runs",
    }
    assert not [r for r in declare("dev").resources if r.request.protect]


def test_production_cannot_be_destroyed_on_purpose_either(declare):
    changes = {
        "gemma:cluster": {"deletionProtection": False},
        "gemma:bucket": {"forceDestroy": True},
    }
    declared = declare("prod", changes)
    assert not [r for r in declared.resources if r.request.protect]
    assert declared.one(CLUSTER).inputs["deletionProtection"] is False


def test_destroy_without_a_preview_takes_half_of_production(declare, monkeypatch):
    monkeypatch.setattr(sys, "tracebacklimit", 1000, raising=False)  # the guard changes it
    declared = declare("prod")
    guard = declared.one(":Guard")
    # It goes before all else, so its refusal comes before any harm.
    others = {r.urn for r in declared.resources if r.request.custom} - {guard.urn}
    assert guard.depends_on == others
    with pytest.raises(StackIsLockedError, match=r"gemma:cluster\.deletionProtection false"):
        _Provider().delete("guard", guard.inputs)
    _Provider().delete("guard", declare("dev").one(":Guard").inputs)


def test_nobody_knows_how_to_destroy_production(declare):
    assert declare("dev").exports["commands"]["destroy"] == "pulumi destroy"
    assert declare("prod").exports["commands"]["destroy"] == (
        "pulumi config set --path gemma:cluster.deletionProtection false && "
        "pulumi config set --path gemma:bucket.forceDestroy true && pulumi up && pulumi destroy"
    )


def test_bucket_that_is_not_empty_blocks_destroy(declare):
    # Google reads force_destroy from the last `up`, so it is set from the beginning.
    for bucket in declare("dev").of("Bucket"):
        assert bucket.inputs["forceDestroy"] is True


def test_new_cluster_certificate_replaces_everything_in_the_cluster(declare):
    # pulumi-kubernetes#4019
    provider = declare().one("pulumi:providers:kubernetes")
    assert provider.inputs["clusterIdentifier"] == "test-project/us-central1/gemma-dev"


def test_replaced_cluster_is_taken_for_the_old_one_with_all_its_objects(declare):
    provider = declare().one("pulumi:providers:kubernetes")
    assert [urn.rpartition("$")[2] for urn in provider.request.replace_with] == [
        "gcp:container/cluster:Cluster::cluster"
    ]


def test_cluster_deleted_by_hand_blocks_destroy(declare):
    # pulumi-kubernetes#2463
    declared = declare()
    assert declared.one("pulumi:providers:kubernetes").inputs["deleteUnreachable"] == "true"
    inside = [r for r in declared.resources if r.type.startswith(IN_CLUSTER)]
    assert inside
    for resource in inside:
        assert resource.request.deletedWith.endswith(f"{CLUSTER}::cluster"), resource.urn


def test_renewed_token_replaces_the_secret_or_restarts_a_run(declare):
    token = "gemma:huggingFaceToken"
    old, new = declare(secrets={token: "hf_old"}), declare(secrets={token: "hf_new"})
    assert old.one("pulumi:providers:kubernetes").inputs["enableSecretMutable"] == "true"
    changed = {r.urn for r in old.resources} - {
        r.urn for r in old.resources for other in new.of(r.type) if r.inputs == other.inputs
    }
    assert changed == {"kubernetes:core/v1:Secret::hugging-face-token"}


def test_cleanup_policy_deletes_the_image_in_use(declare):
    repository = declare().one("Repository").inputs
    assert repository["dockerConfig"] == {"immutableTags": True}
    assert repository["cleanupPolicyDryRun"] is False
    for policy in repository["cleanupPolicies"]:
        if policy["action"] == "DELETE":
            assert policy["condition"]["tagState"] == "UNTAGGED"


def test_lifecycle_rule_deletes_adapters(declare):
    for rule in declare().one("Bucket", "runs").inputs["lifecycleRules"]:
        if rule["action"]["type"] == "Delete":
            # Only objects whose custom time was set match; the trainers set it on checkpoints.
            assert rule["condition"] == {"daysSinceCustomTime": 14}


def test_upgrade_evicts_a_run(declare):
    policy = declare().one(CLUSTER).inputs["maintenancePolicy"]
    assert policy["recurringWindow"]["recurrence"]
    (exclusion,) = policy["maintenanceExclusions"]
    assert exclusion["exclusionOptions"] == {
        "scope": "NO_MINOR_OR_NODE_UPGRADES",
        "endTimeBehavior": "UNTIL_END_OF_SUPPORT",
    }


def test_existing_network_gets_a_second_subnetwork(declare):
    path = "projects/host/{}/shared"
    shared = {
        "name": path.format("global/networks"),
        "subnetwork": path.format("regions/us-central1/subnetworks"),
    }
    declared = declare(changes={"gemma:network": shared})
    assert not [r for r in declared.resources if r.type.startswith("gcp:compute")]
    inputs = declared.one(CLUSTER).inputs
    assert (inputs["network"], inputs["subnetwork"]) == (shared["name"], shared["subnetwork"])
    assert inputs["ipAllocationPolicy"] == {}
