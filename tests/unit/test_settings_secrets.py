"""Tokens in the stack's configuration: where one may stand, and that none is repeated."""

from __future__ import annotations

import pytest

from infra.settings import load_settings
from tests.unit.program import set_config, stack_config
from tests.unit.stack_settings import problems
from training.common.config import ConfigError

pytestmark = pytest.mark.usefixtures("no_resources")


@pytest.mark.parametrize("secret", [True, False])
def test_a_token_under_a_misspelled_key_is_not_repeated(secret):
    given = {"gemma:huggingFaceTokn": "hf_NeverToBeSeen"}
    text = str(problems(None, given) if secret else problems(given))
    assert "hf_NeverToBeSeen" not in text
    assert "pulumi config set --secret --path '{group}huggingFaceToken'" in text


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
