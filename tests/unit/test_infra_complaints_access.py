"""Public complaints about who may see or do too much, or too little.

One test each, named after its symptom. The bugs are those of the providers and of the tutorials;
the program is written so that they cannot happen. What needs the engine is in tests/engine.
"""

from __future__ import annotations

import json

import pytest

from tests.unit.program import ROOT, Secret

CLUSTER = "container/cluster:Cluster"


def test_nodes_of_autopilot_run_as_the_default_account(declare):
    defaults = declare().one(CLUSTER).inputs["clusterAutoscaling"]["autoProvisioningDefaults"]
    assert defaults == {"serviceAccount": "gemma-dev-nodes@test-project.iam.gserviceaccount.com"}


def test_build_runs_as_the_default_account_that_lost_its_rights(declare):
    build = declare().one("dynamic/image:Build")
    assert build.inputs["service_account"].startswith("gemma-dev-build@")


def test_nodes_cannot_pull_the_image(declare):
    granted = declare().one("RepositoryIamMember", "nodes-artifactregistry.reader").inputs
    assert (
        granted["member"] == "serviceAccount:gemma-dev-nodes@test-project.iam.gserviceaccount.com"
    )


@pytest.mark.parametrize(
    ("control_plane", "server", "trusts_the_cluster"),
    [("dns", "https://gke-1.goog", False), ("ip", "https://203.0.113.1", True)],
)
def test_kubeconfig_has_no_credentials_that_work(
    declare, control_plane, server, trusts_the_cluster
):
    # pulumi-kubernetes#3369
    office = [{"name": "office", "cidr": "203.0.113.0/24"}]
    cluster = {"controlPlane": control_plane, "authorizedNetworks": office}
    provider = declare(changes={"gemma:cluster": cluster}).one("pulumi:providers:kubernetes")
    config = json.loads(provider.inputs["kubeconfig"].value)
    assert config["users"][0]["user"]["exec"]["command"] == "gke-gcloud-auth-plugin"
    assert config["clusters"][0]["cluster"]["server"] == server
    assert ("certificate-authority-data" in config["clusters"][0]["cluster"]) == trusts_the_cluster


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
    assert declared.one(CLUSTER).inputs["minMasterVersion"] == "1.34.0-gke.0"
    assert "secretsyncs.secret-sync.gke.io" in declared.one(":Kinds").inputs["kinds"]
    access = declared.one("SecretIamMember").inputs
    assert access["secretId"] == "hf-token"


def test_token_renewed_in_secret_manager_never_reaches_a_pod(declare):
    # https://cloud.google.com/secret-manager/docs/sync-k8-secrets: rotation is off unless asked for
    declared = declare(changes={"gemma:huggingFaceSecret": "hf-token"}, secrets={})
    sync = declared.one(CLUSTER).inputs["secretSyncConfig"]
    assert sync == {"enabled": True, "rotationConfig": {"enabled": True}}
    assert "secretSyncConfig" not in declare().one(CLUSTER).inputs


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


def test_bucket_is_opened_to_the_public(declare):
    for stack in ("dev", "prod", "sandbox"):
        for bucket in declare(stack).of("Bucket"):
            assert bucket.inputs["uniformBucketLevelAccess"] is True
            assert bucket.inputs["publicAccessPrevention"] == "enforced"


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


def test_a_download_of_weights_runs_out_of_ports(declare):
    # Cloud NAT gives a machine 64 ports for one address unless told otherwise.
    nat = declare().one("RouterNat").inputs
    assert nat["enableDynamicPortAllocation"] is True
    for ports in map(
        int, (nat["minPortsPerVm"], nat["maxPortsPerVm"])
    ):  # Google takes powers of two
        assert ports >= 32
        assert ports & (ports - 1) == 0
    assert nat["maxPortsPerVm"] > nat["minPortsPerVm"]


def test_pull_request_from_outside_needs_a_google_account(declare):
    declare(secrets={}, preview=True)  # the mocks refuse every call to Google
    assert "secure" not in (ROOT / "Pulumi.dev.yaml").read_text()
