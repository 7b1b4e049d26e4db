"""Loads settings from changes to Pulumi.dev.yaml, or collects what is wrong with them."""

from __future__ import annotations

import pulumi.runtime
import pytest

from infra.schema import Settings
from infra.settings import load_settings
from tests.unit.program import set_config, stack_config
from training.common.config import ConfigError, Problem


class NoResources(pulumi.runtime.Mocks):
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
