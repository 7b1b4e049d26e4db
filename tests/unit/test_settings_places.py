"""Names, places and spans that Google would refuse at creation are refused at preview."""

from __future__ import annotations

import pulumi.runtime
import pytest

from tests.unit.stack_settings import NoResources, problems

pytestmark = pytest.mark.usefixtures("no_resources")


EXCLUSION = {"name": "release", "start": "2026-12-01T00:00:00Z"}


@pytest.mark.parametrize(
    "name",
    ["UPPER", "a", "a" * 64, "-a-b", "dots..dots", "goog-x", "my-google-bucket", "192.168.1.1"],
)
def test_bucket_name_that_google_refuses_at_creation_is_refused_at_preview(name):
    assert problems({"gemma:bucket": {"name": name}}).keys() == {"gemma:bucket.name"}


def test_bucket_name_that_leaves_no_room_for_its_sibling_is_refused():
    assert "gemma:bucket.name" in problems({"gemma:bucket": {"name": "a" * 57}})


def test_a_missing_project_is_told_once():
    assert problems({"gcp:project": None}).keys() == {"gcp:project"}


@pytest.mark.parametrize(
    "region", ["us-central1-b", "US-CENTRAL1", "us-centrl1", "europe", "global", None]
)
def test_zonal_or_unknown_location_is_refused_at_preview(region):
    assert "gcp:region" in problems({"gcp:region": region})


def test_zone_is_mended_by_its_region():
    assert problems({"gcp:region": "europe-west4-b"})["gcp:region"].fix.endswith(" europe-west4")


@pytest.mark.parametrize("project", ["123456", "Project-One", "p", "a" * 31, "ends-", None])
def test_malformed_project_id_is_refused_at_preview(project):
    assert "gcp:project" in problems({"gcp:project": project})


def test_a_place_that_is_refused_is_the_one_cause_and_what_follows_from_it_is_not_told():
    path = "projects/host/regions/us-central1/subnetworks/gke"
    changes = {"gcp:region": "us-central1-b", "gemma:network": {"name": "n", "subnetwork": path}}
    assert problems({"gcp:project": "My_Project", **changes}).keys() == {
        "gcp:project",
        "gcp:region",
    }
    pulumi.runtime.set_mocks(NoResources(), project="gemma", stack="a-stack-with-a-long-name")
    assert problems({"gcp:project": "a" * 30}).keys() == {"stack name"}


def test_a_wrong_project_hides_no_wrong_bucket():
    changes = {"gcp:project": "My_Project", "gemma:bucket": {"name": "a" * 57}}
    assert problems(changes).keys() == {"gcp:project", "gemma:bucket.name"}


def test_project_never_comes_from_the_shell(monkeypatch):
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "somebody-elses-project")
    monkeypatch.setenv("GOOGLE_PROJECT", "somebody-elses-project")
    assert "gcp:project" in problems({"gcp:project": None})


@pytest.mark.parametrize("stack", ["a-stack-with-a-long-name", "Dev", "dev_1", "organization/dev"])
def test_stack_whose_service_accounts_google_would_refuse_is_refused(stack):
    pulumi.runtime.set_mocks(NoResources(), project="gemma", stack=stack)
    assert "stack name" in problems({"gemma:bucket": {"name": "fine"}})


@pytest.mark.parametrize(
    ("network", "keys"),
    [
        ({"name": "shared"}, {"gemma:network.subnetwork"}),
        ({"subnetwork": "gke"}, {"gemma:network.name"}),
        ({"podsRange": "pods"}, {"gemma:network.servicesRange"}),
        ({"cidr": "10.20.0.1/20"}, {"gemma:network.cidr"}),
        ({"podsCidr": "10.20.0.0/16"}, {"gemma:network.podsCidr"}),
    ],
)
def test_network_that_cannot_be_is_refused(network, keys):
    assert problems({"gemma:network": network}).keys() == keys


def test_image_by_tag_is_refused_since_a_tag_moves():
    assert "gemma:image.uri" in problems({"gemma:image": {"uri": "host/p/r/trainer:latest"}})


def test_maintenance_exclusion_needs_a_time_zone():
    exclusion = {"name": "x", "start": "2026-12-24T00:00:00"}
    changes = {"gemma:cluster": {"maintenance": {"exclusions": [exclusion]}}}
    assert "gemma:cluster.maintenance.exclusions[0].start" in problems(changes)


@pytest.mark.parametrize(
    ("maintenance", "key"),
    [
        ({"end": "2026-01-03T01:00:00Z"}, "end"),
        ({"recurrence": "every Sunday"}, "recurrence"),
        ({"exclusions": [{**EXCLUSION, "end": EXCLUSION["start"]}]}, "exclusions[0].end"),
        ({"exclusions": [{**EXCLUSION, "scope": "NO_UPGRADES"}]}, "exclusions[0].end"),
        (
            {"exclusions": [{**EXCLUSION, "scope": "NO_UPGRADES", "end": "2027-01-01T00:00:00Z"}]},
            "exclusions[0].end",
        ),
    ],
)
def test_maintenance_that_google_refuses_at_creation_is_refused_at_preview(maintenance, key):
    found = problems({"gemma:cluster": {"maintenance": maintenance}})
    assert found.keys() == {f"gemma:cluster.maintenance.{key}"}
