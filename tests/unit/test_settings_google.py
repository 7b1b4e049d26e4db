"""Settings that a preview takes and that Google or the API server would refuse only later."""

from __future__ import annotations

import pytest

from tests.unit.stack_settings import load, problems

pytestmark = pytest.mark.usefixtures("no_resources")

EXCLUSION = {"name": "x", "start": "2026-01-01T00:00:00Z", "end": "2026-01-02T00:00:00Z"}
SUBNETWORK = "projects/host-project/regions/us-central1/subnetworks/gke"


def of_run(**keys: object) -> dict[str, object]:
    return {"gemma:runs": {"v": {"workload": "gemma3-vision", **keys}}}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("queue", "GPU Queue!"),
        ("queue", ""),
        ("cluster", "My_Cluster"),
        ("cluster", "a" * 43),  # KubeRay's 53 less the hash of its content
        ("cluster", "ends-"),
        ("maxHours", 10**6),  # in seconds more than 32 bits
        ("maxHours", "inf"),
        ("maxHours", 1e-5),  # a deadline of 0 s
        ("pendingHours", "inf"),
        ("pendingHours", "nan"),
        ("retries", 10**10),
        ("nodes", 10**9),
    ],
)
def test_what_the_api_server_would_refuse_of_a_run(key, value):
    assert problems(of_run(**{key: value})).keys() == {f"gemma:runs.v.{key}"}


def test_the_command_that_mends_asks_for_no_thousands_of_machines():
    problem = problems(of_run(nodes=10**9))["gemma:runs.v.nodes"]
    assert problem.fix == "pulumi config set --path 'gemma:runs.v.nodes' 1"


def test_a_bucket_named_like_a_domain_is_refused():
    # Google asks for proof of the domain, and NAME-builds is none.
    assert problems({"gemma:bucket": {"name": "my.bucket"}}).keys() == {"gemma:bucket.name"}
    assert load({"gemma:bucket": {"name": "my_bucket", "sources": ["data.example.com"]}})


def test_a_bucket_is_a_source_once():
    sources = {"name": "mine", "sources": ["data", "mine", "data"]}
    keys = {"gemma:bucket.sources[1]", "gemma:bucket.sources[2]"}
    assert problems({"gemma:bucket": sources}).keys() == keys


def test_a_domains_project_needs_a_bucket_name_of_its_own():
    project = {"gcp:project": "example.com:my-project"}
    assert problems(project).keys() == {"gemma:bucket.name"}
    assert load({**project, "gemma:bucket": {"name": "mine"}})


@pytest.mark.parametrize(
    ("network", "key"),
    [
        ({"cidr": "10.0.0.0/30"}, "cidr"),
        ({"cidr": "10.20.0.0"}, "cidr"),
        ({"cidr": "10.20.0.0/255.255.240.0"}, "cidr"),
        ({"podsCidr": "224.0.0.0/16"}, "podsCidr"),
        ({"servicesCidr": "127.0.0.0/20"}, "servicesCidr"),
        ({"name": SUBNETWORK, "subnetwork": "gke"}, "name"),
        ({"name": "shared", "subnetwork": "projects/p/global/networks/x"}, "subnetwork"),
        ({"name": "n", "subnetwork": SUBNETWORK.replace("central1", "east1")}, "subnetwork"),
        ({"name": "n", "subnetwork": "s", "podsRange": "a", "servicesRange": "a"}, "servicesRange"),
        ({"name": "n", "subnetwork": "s", "cidr": "10.0.0.0/20"}, "cidr"),
    ],
)
def test_a_network_that_google_would_refuse_or_ignore(network, key):
    assert problems({"gemma:network": network}).keys() == {f"gemma:network.{key}"}


def test_a_subnetwork_of_the_stacks_region_is_taken():
    assert load({"gemma:network": {"name": "shared", "subnetwork": SUBNETWORK}})


def test_ranges_without_their_network_would_be_left_unused():
    ranges = {"podsRange": "pods", "servicesRange": "services"}
    keys = {"gemma:network.podsRange", "gemma:network.servicesRange"}
    assert problems({"gemma:network": ranges}).keys() == keys


def test_an_ip_endpoint_open_to_all_is_opened_on_purpose():
    cluster = {"controlPlane": "ip"}
    key = "gemma:cluster.authorizedNetworks"
    assert problems({"gemma:cluster": cluster}).keys() == {key}
    everybody = [{"name": "everybody", "cidr": "0.0.0.0/0"}]
    assert load({"gemma:cluster": {**cluster, "authorizedNetworks": everybody}})


@pytest.mark.parametrize(
    ("maintenance", "key"),
    [
        ({"end": "2026-01-03T06:00:00Z", "recurrence": "FREQ=WEEKLY;BYDAY=SU"}, "recurrence"),
        ({"end": "2026-01-03T05:00:00Z", "recurrence": "FREQ=DAILY"}, "recurrence"),
        ({"recurrence": "FREQ=WEEKLY;BYDAY=SA;INTERVAL=3"}, "recurrence"),
        ({"recurrence": "FREQ=WEEKLY;BYDAY=XX"}, "recurrence"),
        ({"start": "2026-01-03 02:00:00Z"}, "start"),
        ({"start": "20260103T020000Z"}, "start"),
        ({"exclusions": [EXCLUSION, EXCLUSION]}, "exclusions[1].name"),
        (
            {
                "exclusions": [
                    {**EXCLUSION, "name": f"n{n}", "scope": "NO_UPGRADES"} for n in range(4)
                ]
            },
            "exclusions[3].scope",
        ),
    ],
)
def test_maintenance_that_gke_does_not_take(maintenance, key):
    found = problems({"gemma:cluster": {"maintenance": maintenance}})
    assert found.keys() == {f"gemma:cluster.maintenance.{key}"}


@pytest.mark.parametrize(
    "recurrence", ["FREQ=DAILY", "FREQ=WEEKLY", "FREQ=WEEKLY;BYDAY=SA,SU;INTERVAL=2"]
)
def test_windows_of_48_hours_in_32_days_are_taken(recurrence):
    assert load({"gemma:cluster": {"maintenance": {"recurrence": recurrence}}})


def test_a_time_without_quotes_is_taken_as_the_engine_hands_it_over():
    window = {"start": "2026-01-03 02:00:00 +0000 UTC", "end": "2026-01-03 16:00:00 +0100 +0100"}
    found = load({"gemma:cluster": {"maintenance": window}}).cluster.maintenance
    assert (found.start, found.end) == ("2026-01-03T02:00:00Z", "2026-01-03T16:00:00+01:00")


def test_labels_that_google_keeps_for_itself():
    assert problems({"gemma:labels": {"goog-x": "y"}}).keys() == {"gemma:labels.goog-x"}
    many = {f"key-{n}": "x" for n in range(61)}
    assert problems({"gemma:labels": many}).keys() == {"gemma:labels"}


def test_a_label_that_reads_like_a_number_is_text():
    # `pulumi config set --path gemma:labels.cost-center 1234` makes a number of it
    assert load({"gemma:labels": {"cost-center": 1234}}).labels == {"cost-center": "1234"}


@pytest.mark.parametrize("name", ["us-docker.pkg.dev/My/X", "us-docker.pkg.dev/p/tr\u00e4iner"])
def test_an_image_that_no_registry_can_have_is_refused(name):
    uri = f"{name}@sha256:{'0' * 64}"
    assert problems({"gemma:image": {"uri": uri}}).keys() == {"gemma:image.uri"}


@pytest.mark.parametrize(
    "changes",
    [
        of_run(hfToken="hf_NeverToBeSeen"),
        of_run(trainer="hf_NeverToBeSeen"),
        {"gemma:huggingFaceSecret": "hf_NeverToBeSeen"},
        {"gemma:reservatoin": {"a": "hf_NeverToBeSeen"}},
    ],
)
def test_a_token_in_the_wrong_place_is_refused_and_not_repeated(changes):
    for problem in problems(changes).values():
        assert "NeverToBeSeen" not in str(problem)


@pytest.mark.parametrize(
    ("changes", "fix"),
    [
        # a dot in a name is no level
        ({"gemma:labels": {"a.b": "c"}}, "pulumi config rm --path 'gemma:labels[\"a.b\"]'"),
        # nothing, or a value where a group belongs: what is left out has its default
        (of_run(trainer=None), "pulumi config rm --path 'gemma:runs.v.trainer'"),
        ({"gemma:alerts": "false"}, "pulumi config rm 'gemma:alerts'"),
        (
            {"gemma:alerts": {"emails": "a@example.com"}},
            "pulumi config rm --path 'gemma:alerts.emails' && "
            "pulumi config set --path 'gemma:alerts.emails[0]' a@example.com",
        ),
        # where a value is known that is allowed, it stands in the command: the likeliest, or the
        # default, the environment's where that picks it
        ({"gemma:capacity": "ondemand"}, "pulumi config set 'gemma:capacity' on-demand"),
        ({"gemma:dashboard": "nope"}, "pulumi config set 'gemma:dashboard' true"),
        (
            {"gemma:environment": "prod", "gemma:cluster": {"deletionProtection": "x"}},
            "pulumi config set --path 'gemma:cluster.deletionProtection' true",
        ),
        (
            {"gemma:environment": "prod", "gemma:bucket": {"checkpointDays": 10**6}},
            "pulumi config set --path 'gemma:bucket.checkpointDays' 90",
        ),
        (
            {"gemma:cluster": {"maintenance": {"recurrence": "weekly"}}},
            "pulumi config set --path 'gemma:cluster.maintenance.recurrence' "
            "'FREQ=WEEKLY;BYDAY=SA,SU'",
        ),
        (
            {"gemma:runs": {"environment": {}}},
            "pulumi config set --path 'gemma:runs.environment.workload' gemma3-vision",
        ),
        (
            {"gcp:project": "example.com:my-project"},
            "pulumi config set --path 'gemma:bucket.name' example-com-my-project-gemma-dev",
        ),
        # the default of another key of this name is none of a label's
        (
            {"gemma:labels": {"environment": "Not Fit"}},
            "pulumi config set --path 'gemma:labels.environment' VALUE",
        ),
        # nothing has its default, which need not be the first that is allowed
        (
            {"gemma:cluster": {"releaseChannel": None}},
            "pulumi config rm --path 'gemma:cluster.releaseChannel'",
        ),
        # a renamed group keeps what is in it, in words that a shell and the engine take
        (
            {"gemma:bukcet": {"name": "mine", "forceDestroy": True, "sources": ["a b", "-c"]}},
            "pulumi config rm --path 'gemma:bukcet' && "
            "pulumi config set --path 'gemma:bucket.name' mine && "
            "pulumi config set --path 'gemma:bucket.forceDestroy' true && "
            "pulumi config set --path 'gemma:bucket.sources[0]' 'a b' && "
            "pulumi config set --path 'gemma:bucket.sources[1]' -- -c",
        ),
    ],
)
def test_the_command_mends_when_it_is_run_as_it_stands(changes, fix):
    (problem,) = problems(changes).values()
    assert f"fix:     {fix}\n" in f"{problem}\n"
