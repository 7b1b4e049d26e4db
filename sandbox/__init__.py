"""A stand-in cloud on one machine: real Kubernetes and KubeRay, stand-ins for Google's APIs.

with Sandbox(folder) as sandbox:
    sandbox.run(["pulumi", "up", "--yes"])
"""

from sandbox.client import Sandbox
from sandbox.folder import SandboxBusyError, SandboxError

__all__ = ["Sandbox", "SandboxBusyError", "SandboxError"]
