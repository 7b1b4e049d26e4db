"""Keeps `pulumi destroy --skip-preview` from taking half of a protected stack.

Cluster and bucket are protected by the engine, which refuses at preview. Without a preview it gets
to them last and has deleted all that hangs on them by then. The guard depends on everything, so it
is the first to go, and it refuses with the way to do it on purpose.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import pulumi
from pulumi import dynamic

from infra.schema import Settings


class StackIsLockedError(RuntimeError):
    """The stack's configuration says that it stays."""


class _Provider(dynamic.ResourceProvider):
    serialize_as_secret_always = False

    def create(self, props: dict[str, Any]) -> dynamic.CreateResult:
        return dynamic.CreateResult("guard", _own(props))

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> dynamic.DiffResult:
        return dynamic.DiffResult(changes=_own(_olds) != _own(_news))

    def update(
        self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]
    ) -> dynamic.UpdateResult:
        return dynamic.UpdateResult(_own(_news))

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        if _props.get("steps"):
            sys.tracebacklimit = 0  # the plugin prints a traceback, which tells a user nothing
            raise StackIsLockedError(
                "this stack is protected and nothing was deleted. To destroy it on purpose:\n  "
                + " && ".join([*_props["steps"], "pulumi up", "pulumi destroy"])
            )


def _own(props: dict[str, Any]) -> dict[str, Any]:
    return {"steps": list(props.get("steps") or [])}


class Guard(dynamic.Resource, module="gemma", name="Guard"):
    """Refuses to be deleted while the stack is locked."""

    def __init__(self, name: str, steps: Sequence[str], after: Sequence[pulumi.Resource]) -> None:
        """
        Args:
            steps: commands that unlock the stack; none: it is not locked.
            after: what is to be deleted after the guard: all else.
        """
        opts = pulumi.ResourceOptions(depends_on=list(after))
        super().__init__(_Provider(), name, {"steps": list(steps)}, opts)


def watch() -> list[pulumi.Resource]:
    """A list that fills with every resource that is declared from here on."""
    seen: list[pulumi.Resource] = []

    def note(args: pulumi.ResourceTransformationArgs) -> None:
        if isinstance(args.resource, pulumi.CustomResource):
            seen.append(args.resource)

    pulumi.runtime.register_stack_transformation(note)
    return seen


def unlocking(settings: Settings) -> list[str]:
    """The commands that unlock a stack of these settings; none where it is not locked."""
    locked = {
        "gemma:cluster.deletionProtection false": settings.cluster.deletion_protection,
        "gemma:bucket.forceDestroy true": not settings.bucket.force_destroy,
    }
    return [f"pulumi config set --path {key}" for key, is_locked in locked.items() if is_locked]
