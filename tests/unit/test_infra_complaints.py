"""One test per public complaint about this kind of stack, named after its symptom.

The bugs are those of the providers and of the tutorials; the program is written so that they cannot
happen. What needs the engine is in tests/engine.
"""

from __future__ import annotations

import json
import sys

import pytest

from infra.guard import StackIsLockedError, _Provider
from tests.unit.program import ROOT, Secret

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


def test_nodes_of_autopilot_run_as_the_default_account(declare):
    defaults = declare().one(CLUSTER).inputs["clusterAutoscaling"]["autoProvisioningDefaults"]
    assert defaults == {"serviceAccount": "gemma-dev-nodes@test-project.iam.gserviceaccount.com"}


def test_nodes_start_before_their_account_may_pull_or_log(declare):
    declared = declare()
    bindings = {r.urn for r in declared.resources if r.name.startswith("nodes-")}
    assert len(bindings) == 6
    assert bindings <= declared.one(CLUSTER).depends_on


def test_build_runs_as_the_default_account_that_lost_its_rights(declare):
    build = declare().one("dynamic/image:Build")
    assert build.inputs["service_account"].startswith("gemma-dev-build@")


def test_nodes_cannot_pull_the_image(declare):
    granted = declare().one("RepositoryIamMember", "nodes-artifactregistry.reader").inputs
    assert (
        granted["member"] == "serviceAccount:gemma-dev-nodes@test-project.iam.gserviceaccount.com"
    )


def test_bucket_that_is_not_empty_blocks_destroy(declare):
    # Google reads force_destroy from the last `up`, so it is set from the beginning.
    for bucket in declare("dev").of("Bucket"):
        assert bucket.inputs["forceDestroy"] is True


def test_build_starts_before_its_account_may_push(declare):
    declared = declare()
    bindings = {r.urn for r in declared.resources if r.name.startswith("build-")}
    assert len(bindings) == 3
    assert bindings <= declared.one("dynamic/image:Build").depends_on


@pytest.mark.parametrize(
    ("control_plane", "server", "trusts_the_cluster"),
    [("dns", "https://gke-1.goog", False), ("ip", "https://203.0.113.1", True)],
)
def test_kubeconfig_has_no_credentials_that_work(
    declare, control_plane, server, trusts_the_cluster
):
    # pulumi-kubernetes#3369
    provider = declare(changes={"gemma:cluster": {"controlPlane": control_plane}}).one(
        "pulumi:providers:kubernetes"
    )
    config = json.loads(provider.inputs["kubeconfig"].value)
    assert config["users"][0]["user"]["exec"]["command"] == "gke-gcloud-auth-plugin"
    assert config["clusters"][0]["cluster"]["server"] == server
    assert ("certificate-authority-data" in config["clusters"][0]["cluster"]) == trusts_the_cluster


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


def test_renewed_token_replaces_the_secret_or_restarts_a_run(declare):
    token = "gemma:huggingFaceToken"
    old, new = declare(secrets={token: "hf_old"}), declare(secrets={token: "hf_new"})
    assert old.one("pulumi:providers:kubernetes").inputs["enableSecretMutable"] == "true"
    changed = {r.urn for r in old.resources} - {
        r.urn for r in old.resources for other in new.of(r.type) if r.inputs == other.inputs
    }
    assert changed == {"kubernetes:core/v1:Secret::hugging-face-token"}


def test_token_is_readable_in_the_state(declare):
    # pulumi-kubernetes#1118
    for resource in declare(secrets={"gemma:huggingFaceToken": "hf_readable"}).resources:
        assert "hf_readable" not in json.dumps(resource.inputs, default=lambda secret: "hidden"), (
            resource.urn
        )


def test_token_of_secret_manager_passes_through_the_program(declare):
    declared = declare(changes={"gemma:huggingFaceSecret": "hf-token"}, secrets={})
    assert not declared.of("core/v1:Secret")
    source = declared.one("SecretProviderClass").inputs["spec"]["parameters"]["secrets"]
    assert "projects/test-project/secrets/hf-token/versions/latest" in source
    assert declared.one("SecretSync").inputs["metadata"]["name"] == "hugging-face-token"
    assert declared.one(CLUSTER).inputs["secretSyncConfig"] == {"enabled": True}
    assert declared.one(CLUSTER).inputs["minMasterVersion"] == "1.34.0-gke.0"
    assert "secretsyncs.secret-sync.gke.io" in declared.one(":Kinds").inputs["kinds"]
    access = declared.one("SecretIamMember").inputs
    assert access["secretId"] == "hf-token"


def test_kubeconfig_is_printed_in_the_clear(declare):
    declared = declare()
    for holder in ("pulumi:providers:kubernetes", ":Kinds"):
        assert isinstance(declared.one(holder).inputs["kubeconfig"], Secret)
    assert isinstance(declared.outputs["gemma:infra:Cluster::cluster"]["kubeconfig"], Secret)


def test_missing_token_is_found_by_pods_on_gpus(declare):
    with pytest.raises(Exception, match="gemma:huggingFaceToken"):
        declare(secrets={})
    preview = declare(secrets={}, preview=True)
    assert any("gemma:huggingFaceToken" in warning for warning in preview.warnings)
    assert not declare("sandbox").warnings  # its models come from a bucket


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


def test_bucket_is_opened_to_the_public(declare):
    for stack in ("dev", "prod", "sandbox"):
        for bucket in declare(stack).of("Bucket"):
            assert bucket.inputs["uniformBucketLevelAccess"] is True
            assert bucket.inputs["publicAccessPrevention"] == "enforced"


def test_upgrade_evicts_a_run(declare):
    policy = declare().one(CLUSTER).inputs["maintenancePolicy"]
    assert policy["recurringWindow"]["recurrence"]
    (exclusion,) = policy["maintenanceExclusions"]
    assert exclusion["exclusionOptions"] == {
        "scope": "NO_MINOR_OR_NODE_UPGRADES",
        "endTimeBehavior": "UNTIL_END_OF_SUPPORT",
    }


def test_control_plane_is_open_to_the_internet(declare):
    endpoints = declare().one(CLUSTER).inputs["controlPlaneEndpointsConfig"]
    assert endpoints["ipEndpointsConfig"] == {"enabled": False}
    office = [{"name": "office", "cidr": "203.0.113.0/24"}]
    inputs = declare(changes={"gemma:cluster": {"authorizedNetworks": office}}).one(CLUSTER).inputs
    assert inputs["controlPlaneEndpointsConfig"]["ipEndpointsConfig"] == {"enabled": True}
    assert inputs["masterAuthorizedNetworksConfig"]["cidrBlocks"] == [
        {"cidrBlock": "203.0.113.0/24", "displayName": "office"}
    ]


def test_nodes_have_public_addresses(declare):
    declared = declare()
    assert declared.one(CLUSTER).inputs["privateClusterConfig"] == {"enablePrivateNodes": True}
    assert declared.one("Subnetwork").inputs["privateIpGoogleAccess"] is True
    assert declared.one("RouterNat")
    public = declare(changes={"gemma:network": {"privateNodes": False}})
    assert not public.of("RouterNat")


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


def test_cluster_is_too_old_for_its_accelerator(declare):
    version = declare().one(CLUSTER).inputs["minMasterVersion"]
    assert version == "1.32.2-gke.1422000"


def test_pull_request_from_outside_needs_a_google_account(declare):
    declare(secrets={}, preview=True)  # the mocks refuse every call to Google
    assert "secure" not in (ROOT / "Pulumi.dev.yaml").read_text()
