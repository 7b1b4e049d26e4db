"""A stand-in cloud on one machine: real Kubernetes and KubeRay, stand-ins for Google's APIs.

with Sandbox(folder) as sandbox:
    sandbox.run(["pulumi", "up", "--yes"])
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandbox.client import Sandbox as Sandbox
    from sandbox.folder import SandboxBusyError as SandboxBusyError
    from sandbox.folder import SandboxError as SandboxError


def __getattr__(name: str) -> Any:
    """Import on first use: the gcp plugin, which every pulumi command starts, needs none of it."""
    if name in ("Sandbox", "SandboxBusyError", "SandboxError"):
        from sandbox import client

        return getattr(client, name)
    raise AttributeError(name)
