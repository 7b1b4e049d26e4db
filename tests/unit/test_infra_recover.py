"""What a killed deployment leaves in the state, and what becomes of it."""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Mapping
from typing import Any

import pytest

from infra import recover

URN = "urn:pulumi:dev::gemma::gemma:infra:Network${}::{}"
NETWORK = "gcp:compute/network:Network"


def state(*pending: tuple[str, str, str, dict[str, Any]], there: Any = ()) -> dict[str, Any]:
    operations = [
        {"type": what, "resource": {"urn": URN.format(kind, name), "type": kind, "inputs": inputs}}
        for what, kind, name, inputs in pending
    ]
    return {
        "version": 3,
        "deployment": {"resources": list(there), "pending_operations": operations},
    }


def test_a_killed_creation_is_put_into_the_state_under_the_id_it_has() -> None:
    inputs = {"name": "gemma-dev", "project": "p"}
    work = recover.plan(state(("creating", NETWORK, "network", inputs)))
    (found,) = work.state["deployment"]["resources"]
    assert found["id"] == "projects/p/global/networks/gemma-dev"
    assert found["inputs"] == inputs
    assert "pending_operations" not in work.state["deployment"]
    assert work.adopted == [found["urn"]]


def test_every_resource_of_the_program_has_its_way(declare: Any) -> None:
    settings = {"gemma:alerts": {"emails": ["a@example.com"]}}
    kinds = {
        found.type for found in declare(changes=settings).resources if found.type.startswith("gcp:")
    }
    left = kinds - set(recover.IDS) - set(recover.NAMED_BY_GOOGLE)
    repeatable = ("IAMMember", "IamMember", ":Service")  # granted twice, enabled twice: once
    assert [kind for kind in left if not kind.endswith(repeatable)] == []


def test_what_can_be_repeated_is_left_to_the_next_up() -> None:
    kind = "gcp:projects/iAMMember:IAMMember"
    work = recover.plan(state(("creating", kind, "nodes", {"role": "r", "member": "m"})))
    assert work.state["deployment"]["resources"] == []
    assert work.again == [URN.format(kind, "nodes")]


def test_a_killed_update_is_read_again() -> None:
    there = {"urn": URN.format(NETWORK, "network"), "type": NETWORK, "id": "x", "outputs": {"a": 1}}
    work = recover.plan(state(("updating", NETWORK, "network", {}), there=[there]))
    assert work.state["deployment"]["resources"] == [there]
    assert work.unsure == [there["urn"]]


def test_what_google_names_is_shown_with_its_page() -> None:
    kind = "gcp:monitoring/dashboard:Dashboard"
    inputs = {"project": "p", "dashboardJson": json.dumps({"displayName": "Gemma"})}
    (sentence,) = recover.plan(state(("creating", kind, "dashboard", inputs))).by_hand
    assert "'Gemma'" in sentence
    assert "monitoring/dashboards?project=p" in sentence


def test_the_state_given_is_not_changed() -> None:
    given = state(("creating", NETWORK, "network", {"name": "n", "project": "p"}))
    before = copy.deepcopy(given)
    recover.plan(given)
    assert given == before


class Engine:
    """Answers as `pulumi` does, with a cloud that knows some ids."""

    def __init__(self, exported: Mapping[str, Any], cloud: set[str]) -> None:
        self.state, self.cloud, self.calls = exported, cloud, list[tuple[str, ...]]()

    def __call__(self, *arguments: str, input: str | None = None) -> str:
        self.calls.append(arguments)
        match arguments[:2]:
            case ("stack", "export"):
                return json.dumps(self.state)
            case ("stack", "import"):
                assert input is not None
                self.state = json.loads(input)
            case ("refresh", _):
                found = self.state["deployment"]
                kept = [item for item in found["resources"] if item["id"] in self.cloud]
                self.state = {"deployment": {"resources": kept}}
        return ""


@pytest.mark.parametrize("exists", [True, False])
def test_the_words_say_what_was_there(exists: bool, capsys: pytest.CaptureFixture[str]) -> None:
    pending = state(("creating", NETWORK, "network", {"name": "n", "project": "p"}))
    engine = Engine(pending, {"projects/p/global/networks/n"} if exists else set())
    assert recover.recover("dev", engine) == 0
    text = capsys.readouterr().out
    assert f"{'taken over' if exists else 'does not exist'}: {NETWORK} network" in text
    assert "make up STACK=dev" in text
    assert len(engine.state["deployment"]["resources"]) == exists


class Unreachable(Engine):
    """No refresh comes to its end."""

    def __call__(self, *arguments: str, input: str | None = None) -> str:
        if arguments[0] == "refresh":
            raise subprocess.CalledProcessError(255, ["pulumi"])
        return super().__call__(*arguments, input=input)


def test_what_was_put_into_the_state_is_read_however_often_that_was_cut_off() -> None:
    pending = state(("creating", NETWORK, "network", {"name": "n", "project": "p"}))
    first = Unreachable(pending, set())
    with pytest.raises(subprocess.CalledProcessError):
        recover.recover("dev", first)
    assert len(first.state["deployment"]["resources"]) == 1
    second = Engine(first.state, set())
    assert recover.recover("dev", second) == 0
    assert second.state["deployment"]["resources"] == []


def test_an_engine_that_refuses_is_told_without_a_traceback(monkeypatch: Any) -> None:
    def refuse(*_arguments: str, input: str | None = None) -> str:
        raise subprocess.CalledProcessError(255, ["pulumi"])

    monkeypatch.setattr(recover, "run_pulumi", refuse)
    assert recover.main(["--stack", "dev"]) == 255


def test_with_nothing_unfinished_nothing_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    engine = Engine({"deployment": {"resources": []}}, set())
    recover.recover("dev", engine)
    assert [call[0] for call in engine.calls] == ["cancel", "stack"]
    assert "nothing unfinished" in capsys.readouterr().out
