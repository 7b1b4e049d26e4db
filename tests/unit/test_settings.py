"""infra/settings.py: what a user writes, what the program gets, what is said when neither fits."""

from __future__ import annotations

import copy

import pulumi
import pytest
import yaml
from pydantic import ValidationError

from infra.environments import ENVIRONMENTS
from infra.settings import load_settings
from tests.unit.program import ROOT, set_config, stack_config
from tests.unit.stack_settings import load, problems
from training.common.config import Problem

pytestmark = pytest.mark.usefixtures("no_resources")


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
def test_the_command_mends_the_misspelling_and_loses_nothing(
    changes, key, commands, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)  # the repository's own stack files name the right keys too
    assert f"fix:     {commands}\n" in f"{problems(changes)[key]}\n"


@pytest.mark.parametrize(
    ("changes", "secrets", "key", "right"),
    [
        (
            {"gemma:capcity": "spot", "gemma:capacity": "reserved"},
            None,
            "gemma:capcity",
            "capacity",
        ),
        (
            {"gema:capacity": "spot", "gemma:capacity": "spot"},
            None,
            "gema:capacity",
            "gemma:capacity",
        ),
        (
            {},
            {"gemma:hugginFaceToken": "hf_x", "gemma:huggingFaceToken": "hf_y"},
            "gemma:hugginFaceToken",
            "huggingFaceToken",
        ),
        (
            {"gemma:runs": {"v": {"workload": "gemma3-vision", "node": 2, "nodes": "two"}}},
            None,
            "gemma:runs.v.node",
            "nodes",
        ),
        (
            {
                "gemma:cluster": {
                    "controlPlane": "ip",
                    "authorizedNetworks": [
                        {"name": "a", "cidr": "10.0.0.0/8", "cdir": "10.0.0.0/9"}
                    ],
                }
            },
            None,
            "gemma:cluster.authorizedNetworks[0].cdir",
            "cidr",
        ),
    ],
)
def test_a_misspelled_key_beside_the_right_one_is_to_be_removed_and_writes_over_nothing(
    changes, secrets, key, right
):
    problem = problems(changes, secrets)[key]
    assert problem.allowed.startswith(f"{right}, which is given too: remove ")
    assert str(problem).count("pulumi config") == 1
    assert "config rm" in problem.fix


def test_a_default_is_no_key_beside_the_misspelled_one():
    # gemma:environment gives forceDestroy, the user has not
    fix = problems({"gemma:bucket": {"forceDestory": False}})["gemma:bucket.forceDestory"].fix
    assert "forceDestroy' false" in f"{fix}".replace("{group}", "gemma:bucket.")


def test_a_number_that_is_none_is_told_in_plain_words():
    run = {"workload": "gemma3-vision", "nodes": "two"}
    assert problems({"gemma:runs": {"v": run}})["gemma:runs.v.nodes"].allowed == "a whole number"


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
