"""infra/ray_operator.py: waits for kinds that arrive late, says so, and ends with a reason."""

from __future__ import annotations

import pytest

from infra.ray_operator import RAY, Kinds, KindsNotServed, _Provider, wait_for

assert Kinds  # imported for what registering it does


class World:
    """An API server whose answers are a script; time passes only in sleep."""

    def __init__(self, *answers: set[str] | Exception) -> None:
        self.answers, self.said, self.now, self.asked = list(answers), [], 0.0, 0

    def served(self) -> set[str]:
        answer = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        if isinstance(answer, Exception):
            raise answer
        return answer

    def wait(self, wanted=RAY, deadline=60) -> None:
        def sleep(seconds: float) -> None:
            self.now += seconds

        wait_for(
            self.served,
            wanted,
            self.said.append,
            deadline=deadline,
            clock=lambda: self.now,
            sleep=sleep,
        )


def test_nothing_is_said_when_all_is_there():
    world = World({*RAY, "other"})
    world.wait()
    assert (world.asked, world.said) == (1, [])


def test_what_is_missing_is_said_once_and_again_when_it_changes():
    world = World(set(), set(), {"rayclusters.ray.io"}, set(RAY))
    world.wait()
    assert len(world.said) == 2
    assert "rayclusters.ray.io, rayjobs.ray.io" in world.said[0]
    assert world.said[1].endswith("serve rayjobs.ray.io")


def test_api_server_that_is_not_reached_yet_is_waited_for():
    world = World(ConnectionError("no route to host\nmore"), set(RAY))
    world.wait()
    assert "no route to host" in world.said[0]
    assert "more" not in world.said[0]


def test_cluster_without_the_add_on_ends_with_a_reason():
    world = World(ConnectionError("certificate has expired"))
    with pytest.raises(KindsNotServed, match=r"rayjobs.ray.io not served .*has expired"):
        world.wait(deadline=30)
    assert 30 <= world.now <= 40


@pytest.mark.parametrize(
    ("changes", "replaces"),
    [
        ({}, []),
        ({"kubeconfig": "with a new certificate"}, []),
        ({"cluster": "another"}, ["cluster"]),
        ({"kinds": [*RAY, "secretsyncs.secret-sync.gke.io"]}, ["kinds"]),
        ({"kinds": list(reversed(RAY))}, []),
    ],
)
def test_waiting_is_repeated_for_another_cluster_or_more_kinds_only(changes, replaces):
    olds = {"cluster": "c", "kubeconfig": "k", "kinds": list(RAY)}
    diff = _Provider().diff("id", olds, {**olds, **changes})
    assert (diff.changes, diff.replaces) == (bool(replaces), replaces)
