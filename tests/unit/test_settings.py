"""infra/settings.py: what a user writes, what the program gets, what is said when neither fits."""

from __future__ import annotations

import copy

import pulumi.runtime
import pytest
import yaml
from pulumi.runtime import config as pulumi_config
from pydantic import ValidationError

from infra.environments import ENVIRONMENTS
from infra.schema import Settings
from infra.settings import load_settings
from tests.unit.program import ROOT, set_config, stack_config
from training.common.config import ConfigError, Problem

EXCLUSION = {"name": "release", "start": "2026-12-01T00:00:00Z"}


@pytest.fixture(autouse=True)
def _stack():
    pulumi.runtime.set_mocks(_NoResources(), project="gemma", stack="dev")
    yield
    pulumi_config.set_all_config({}, [])


class _NoResources(pulumi.runtime.Mocks):
    def new_resource(self, args):
        raise AssertionError(f"settings declare no resource, not even {args.typ}")

    def call(self, args):
        raise AssertionError(f"settings ask nobody, not even {args.token}")


def load(changes=None, secrets=None, rules=()) -> Settings:
    set_config({**stack_config("dev"), **(changes or {})}, secrets)
    return load_settings(rules)


def problems(changes=None, secrets=None, rules=()) -> dict[str, Problem]:
    """The problems by key; a value of None takes the key out of Pulumi.dev.yaml."""
    values = {**stack_config("dev"), **(changes or {})}
    set_config({k: v for k, v in values.items() if v is not None}, secrets)
    with pytest.raises(ConfigError) as error:
        load_settings(rules)
    found = {problem.key: problem for problem in error.value.problems}
    assert len(found) == len(error.value.problems), "a key is told about twice"
    for problem in found.values():
        assert problem.allowed, problem
        assert problem.fix.startswith("pulumi "), problem
        assert str(problem) in str(error.value)
    return found


@pytest.mark.parametrize("stack", ["dev", "sandbox", "sandbox-real", "prod"])
def test_every_stack_of_the_repository_loads(stack):
    set_config(stack_config(stack))
    settings = load_settings()
    given = yaml.safe_load((ROOT / f"Pulumi.{stack}.yaml").read_text())["config"]
    assert settings.runs.keys() == given["gemma:runs"].keys()


def test_all_problems_are_told_at_once():
    def rule(settings):
        yield Problem("gemma:runs.vision.trainer", settings.runs["vision"].trainer, "x", "pulumi x")

    found = problems(
        {
            "gcp:project": "x",
            "gcp:region": "us-central1-b",
            "gemma:enviroment": "dev",
            "gemma:capacity": "reserved",
            "gemma:bucket": {"name": "UPPER", "softDeleteDays": 91},
            "gemma:labels": {"Team": "x", "team": "Research & Co"},
            "gemma:runs": {
                "vision": {"workload": "gemma3-vision", "workersPerNode": 0, "trainer": {"a": 1}},
                "sql": {"workload": "gemma5", "nodes": 0},
                "nameless": {},
            },
        },
        rules=[rule],
    )
    assert found.keys() == {
        "gcp:project",
        "gcp:region",
        "gemma:enviroment",
        "gemma:capacity",
        "gemma:bucket.name",
        "gemma:bucket.softDeleteDays",
        "gemma:labels.Team",
        "gemma:labels.team",
        "gemma:runs.vision.workersPerNode",
        "gemma:runs.sql.workload",
        "gemma:runs.sql.nodes",
        "gemma:runs.nameless.workload",
        "gemma:runs.vision.trainer",  # the rule ran although the model had problems of its own
    }


@pytest.mark.parametrize(
    ("changes", "key", "meant"),
    [
        ({"gemma:reservatoin": "x"}, "gemma:reservatoin", "reservation"),
        ({"gemma:hugginFaceToken": "x"}, "gemma:hugginFaceToken", "huggingFaceToken"),
        ({"gemma:bucket": {"forceDestory": True}}, "gemma:bucket.forceDestory", "forceDestroy"),
        (
            {"gemma:runs": {"v": {"workload": "gemma3-vision", "node": 2}}},
            "gemma:runs.v.node",
            "nodes",
        ),
        (
            {
                "gemma:cluster": {
                    "maintenance": {
                        "exclusions": [{"name": "x", "start": "2026-01-01T00:00:00Z", "stop": "x"}]
                    }
                }
            },
            "gemma:cluster.maintenance.exclusions[0].stop",
            "scope",
        ),
    ],
)
def test_unknown_key_is_refused_and_the_closest_known_one_named(changes, key, meant):
    problem = problems(changes)[key]
    assert meant in problem.allowed
    assert "config rm" in problem.fix


@pytest.mark.parametrize(
    "name",
    ["UPPER", "a", "a" * 64, "-a-b", "dots..dots", "goog-x", "my-google-bucket", "192.168.1.1"],
)
def test_bucket_name_that_google_refuses_at_creation_is_refused_at_preview(name):
    assert problems({"gemma:bucket": {"name": name}}).keys() == {"gemma:bucket.name"}


def test_bucket_name_that_leaves_no_room_for_its_sibling_is_refused():
    assert "gemma:bucket.name" in problems({"gemma:bucket": {"name": "a" * 57}})


@pytest.mark.parametrize(
    ("changes", "key", "commands"),
    [
        (
            {"gemma:runs": {"v": {"workload": "gemma3-vision", "node": 2}}},
            "gemma:runs.v.node",
            "pulumi config rm --path 'gemma:runs.v.node' && "
            "pulumi config set --path 'gemma:runs.v.nodes' 2",
        ),
        (
            {"gemma:capcity": "spot"},
            "gemma:capcity",
            "pulumi config rm --path 'gemma:capcity' && "
            "pulumi config set --path 'gemma:capacity' spot",
        ),
        (
            {"gemma:runs": {"v": {"workload": "gemma-4-text"}}},
            "gemma:runs.v.workload",
            "pulumi config set --path 'gemma:runs.v.workload' gemma4-text",
        ),
    ],
)
def test_the_command_mends_the_misspelling_and_loses_nothing(changes, key, commands):
    assert f"fix:     {commands}\n" in f"{problems(changes)[key]}\n"


@pytest.mark.parametrize("secret", [True, False])
def test_a_token_under_a_misspelled_key_is_not_repeated(secret):
    given = {"gemma:huggingFaceTokn": "hf_NeverToBeSeen"}
    text = str(problems(None, given) if secret else problems(given))
    assert "hf_NeverToBeSeen" not in text
    assert "pulumi config set --secret --path '{group}huggingFaceToken'" in text


def test_a_number_that_is_none_is_told_in_plain_words():
    run = {"workload": "gemma3-vision", "nodes": "two"}
    assert problems({"gemma:runs": {"v": run}})["gemma:runs.v.nodes"].allowed == "a whole number"


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


def test_project_never_comes_from_the_shell(monkeypatch):
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "somebody-elses-project")
    monkeypatch.setenv("GOOGLE_PROJECT", "somebody-elses-project")
    assert "gcp:project" in problems({"gcp:project": None})


@pytest.mark.parametrize("stack", ["a-stack-with-a-long-name", "Dev", "dev_1", "organization/dev"])
def test_stack_whose_service_accounts_google_would_refuse_is_refused(stack):
    pulumi.runtime.set_mocks(_NoResources(), project="gemma", stack=stack)
    assert "stack name" in problems({"gemma:bucket": {"name": "fine"}})


def test_plain_text_token_is_refused_and_not_repeated():
    found = problems({"gemma:huggingFaceToken": "hf_verysecret"})
    assert found.keys() == {"gemma:huggingFaceToken"}
    assert "hf_verysecret" not in str(found)
    assert "--secret" in found["gemma:huggingFaceToken"].fix


@pytest.mark.parametrize("token", ["hf_x\n", " hf_x"])
def test_token_with_a_line_end_is_refused_and_not_repeated(token):
    found = problems(secrets={"gemma:huggingFaceToken": token})
    assert "hf_x" not in str(found)


def test_token_and_secret_manager_exclude_each_other():
    changes = {"gemma:huggingFaceSecret": "token"}
    assert "gemma:huggingFaceSecret" in problems(changes, {"gemma:huggingFaceToken": "hf_x"})


def test_secret_where_google_stores_it_in_the_clear_is_refused():
    values = stack_config("dev")
    values.pop("gemma:labels")
    set_config(values, {"gemma:labels": '{"password": "hidden"}'})
    with pytest.raises(ConfigError) as error:
        load_settings()
    assert "hidden" not in str(error.value)
    assert [problem.key for problem in error.value.problems] == ["gemma:labels"]


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


def test_malformed_group_is_refused():
    assert "gemma:bucket" in problems({"gemma:bucket": "my-bucket"})
    assert "gemma:runs" in problems({"gemma:runs": '{"vision": '})


def test_empty_default_of_pulumi_yaml_means_unset():
    settings = load({"gemma:reservation": "", "gemma:image": {}, "gemma:huggingFaceSecret": ""})
    assert (settings.reservation, settings.image.uri, settings.hugging_face_secret) == (None,) * 3


def test_text_of_pulumi_config_set_becomes_numbers_and_flags():
    runs = {"v": {"workload": "gemma3-vision", "nodes": "2", "enabled": "false"}}
    run = load({"gemma:runs": runs, "gemma:dashboard": "false"}).runs["v"]
    assert (run.nodes, run.enabled) == (2, False)


@pytest.mark.parametrize("environment", ["dev", "prod"])
def test_environment_is_nothing_but_defaults(environment):
    settings = load({"gemma:environment": environment})
    expected = ENVIRONMENTS[environment]
    assert settings.cluster.deletion_protection == expected["cluster"]["deletionProtection"]
    assert settings.bucket.force_destroy == expected["bucket"]["forceDestroy"]
    own = {"gemma:bucket": {"forceDestroy": True}, "gemma:environment": environment}
    assert load(own).bucket.force_destroy
    assert load(own).bucket.checkpoint_days == expected["bucket"]["checkpointDays"]


def test_settings_cannot_be_changed():
    settings = load()
    with pytest.raises(ValidationError):
        settings.capacity = "spot"


def test_loading_leaves_the_tables_alone():
    before = copy.deepcopy(ENVIRONMENTS)
    load({"gemma:bucket": {"name": "mine"}, "gemma:environment": "prod"})
    assert before == ENVIRONMENTS


def test_problem_is_printed_without_a_traceback():
    set_config({})
    with pytest.raises(pulumi.RunError):
        load_settings()
