"""The program as a whole: its tree of components, its names and labels, its outputs."""

from __future__ import annotations

from infra import links
from infra.schema import Settings
from tests.unit.program import Secret

UNLABELLED = {  # Google gives them no labels
    "Network", "Subnetwork", "Router", "RouterNat", "Account", "Service", "Metric", "Dashboard",
    "NotificationChannel", "IAMMember", "BucketIAMMember", "RepositoryIamMember",
}  # fmt: skip


def test_every_component_ends_with_its_outputs(declare):
    declared = declare()
    components = {r.urn for r in declared.resources if not r.request.custom}
    assert components >= {"gemma:infra:Cluster::cluster", "gemma:infra:Storage::storage"}
    assert components <= declared.outputs.keys()


def test_every_resource_of_google_belongs_to_a_component(declare):
    for resource in declare().resources:
        if resource.type.startswith(("gcp:", "pulumi:providers:")):
            assert resource.parent.startswith("gemma:"), resource.urn


def test_every_resource_that_can_has_the_stack_and_team_labels(declare):
    expected = {"app": "gemma", "environment": "dev", "stack": "dev", "team": "research"}
    for resource in declare().resources:
        kind = resource.type.rpartition(":")[2]
        if not resource.type.startswith("gcp:") or kind in UNLABELLED:
            continue
        inputs = resource.inputs
        labels = inputs.get("labels", inputs.get("resourceLabels", inputs.get("userLabels")))
        assert labels == expected, resource.urn


def test_our_labels_win_over_the_users(declare):
    changes = {"gemma:labels": {"app": "mine", "team": "x"}}
    assert declare(changes=changes).one("Bucket", "runs").inputs["labels"]["app"] == "gemma"


def test_stacks_of_one_project_do_not_share_a_name(declare):
    def names(stack: str) -> set[str]:
        keys = ("name", "accountId", "repositoryId")
        return {
            f"{r.type} {r.inputs[key]}"
            for r in declare(
                stack, secrets={"gemma:huggingFaceToken": "x"} if stack == "dev" else {}
            ).resources
            if r.type.startswith("gcp:")
            for key in keys
            if key in r.inputs
        }

    assert names("dev")
    assert not names("dev") & names("prod")


def test_dev_and_prod_make_the_same_resources(declare):
    # but for what their own config asks: the token's way and the alerts' addressee
    def kinds(stack, **changes):
        declared = declare(
            stack,
            {"gemma:huggingFaceSecret": None, "gemma:alerts": {}, **changes},
            {"gemma:huggingFaceToken": "hf_x"},
        )
        return sorted(r.urn for r in declared.resources)

    assert kinds("dev") == kinds("prod")


def test_outputs_are_what_a_person_needs_next(declare):
    outputs = declare().exports
    assert outputs.keys() == {
        "cluster", "kubeconfig", "bucket", "image", "runs", "links", "commands",
    }  # fmt: skip
    assert isinstance(outputs["kubeconfig"], Secret)
    assert outputs["bucket"] == "gs://test-project-gemma-dev"
    assert "@sha256:" in outputs["image"]
    assert outputs["runs"].keys() == {"vision", "text-to-sql"}
    for run in outputs["runs"].values():
        assert run["id"] in run["folder"]
        assert run["logs"].startswith("https://")
    assert all(
        link.startswith("https://console.cloud.google.com/") for link in outputs["links"].values()
    )
    assert "--dns-endpoint" in outputs["commands"]["kubectl"]


def test_links_hold_no_character_that_a_terminal_breaks_at():
    gpus = links.gpus("p", "r", "c")
    assert not set(gpus) & set(' "()<>|')
    assert links.folder("p", "gs://b/runs/x") == (
        "https://console.cloud.google.com/storage/browser/b/runs/x?project=p"
    )


def test_longest_allowed_stack_name_still_fits_everywhere():
    stack = "a" * 16
    settings = Settings(project="test-project", region="us-central1", stack=stack)
    assert len(settings.name) <= 40  # cluster
    assert 6 <= len(f"{settings.name}-trainer") <= 30  # service account
