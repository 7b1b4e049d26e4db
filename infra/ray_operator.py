"""Waits for what GKE's add-ons install after the cluster is there.

GKE reports a cluster as running before the Ray operator has registered its kinds, and the
Kubernetes provider refuses an object of a kind that does not exist yet (pulumi-kubernetes#3176).
This resource is made once per cluster and asks the API server until the kinds are served.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import pulumi
from pulumi import dynamic

from infra.imports import ONE_AT_A_TIME
from infra.schema import Settings

RAY = ("rayclusters.ray.io", "rayjobs.ray.io")
SECRET_SYNC = (
    "secretproviderclasses.secrets-store.csi.x-k8s.io",
    "secretsyncs.secret-sync.gke.io",
)
DEADLINE = 15 * 60
PAUSE = 5


class KindsNotServed(RuntimeError):
    """The add-on did not register its kinds in time."""


def wait_for(
    served: Callable[[], set[str]],
    wanted: Iterable[str],
    say: Callable[[str], None],
    *,
    deadline: float = DEADLINE,
    pause: float = PAUSE,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Returns once all `wanted` kinds are served; says what is missing whenever that changes.

    Args:
        served: names of the established CustomResourceDefinitions; may raise while the API server
            cannot be reached.
        wanted: names of CustomResourceDefinitions.
        say: shows one line to the user.
        deadline, pause: seconds.

    Raises:
        KindsNotServed: after the deadline, naming what is missing and where to look.
    """
    start = clock()
    told = ""
    trouble = ""
    while True:
        try:
            missing, trouble = sorted(set(wanted) - served()), ""
        except Exception as error:  # any of a dozen libraries' network errors: all mean "not yet"
            missing, trouble = sorted(wanted), f" ({str(error).splitlines()[0]})"
        if not missing:
            return
        line = f"waiting for GKE's add-ons to serve {', '.join(missing)}{trouble}"
        if line != told:
            say(line)
            told = line
        if clock() - start > deadline:
            raise KindsNotServed(
                f"{', '.join(missing)} not served after {deadline / 60:.0f} minutes{trouble}. Is "
                "the cluster running, and its Ray operator add-on enabled? `kubectl get crd` and "
                "the cluster's page in the console tell; then run `pulumi up` again."
            )
        sleep(pause)


class _Provider(dynamic.ResourceProvider):
    serialize_as_secret_always = False

    def create(self, props: dict[str, Any]) -> dynamic.CreateResult:
        with ONE_AT_A_TIME:
            from infra.kubernetes_api import established

        kubeconfig, wanted = str(props["kubeconfig"]), [str(kind) for kind in props["kinds"]]
        wait_for(lambda: established(kubeconfig), wanted, lambda line: print(line, flush=True))
        return dynamic.CreateResult(str(props["cluster"]), dict(props))

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> dynamic.DiffResult:
        kinds = sorted(_olds.get("kinds", [])) != sorted(_news.get("kinds", []))
        cluster = _olds.get("cluster") != _news.get("cluster")
        # A kubeconfig that only got a new certificate is nothing to wait for again.
        return dynamic.DiffResult(
            changes=kinds or cluster,
            replaces=["cluster"] if cluster else ["kinds"] if kinds else [],
        )


class Kinds(dynamic.Resource, module="gemma", name="Kinds"):
    """Ready when the cluster serves the kinds.

    Attributes:
        cluster: the cluster's id; the wait is repeated for another cluster.
    """

    cluster: pulumi.Output[str]

    def __init__(
        self,
        name: str,
        *,
        cluster: pulumi.Input[str],
        kubeconfig: pulumi.Input[str],
        kinds: Iterable[str],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        props = {"cluster": cluster, "kubeconfig": kubeconfig, "kinds": list(kinds)}
        super().__init__(_Provider(), name, props, opts)


def kinds_for(settings: Settings) -> tuple[str, ...]:
    """What the stack's objects need beyond Kubernetes' own kinds."""
    return (*RAY, *SECRET_SYNC) if settings.hugging_face_secret else RAY
