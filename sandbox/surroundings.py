"""What the sandbox takes from the rest of the repository: binaries, plugins, cloud stand-ins."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import tools
from sandbox import cloud
from sandbox.certificates import ADDRESS, kubeconfig
from sandbox.folder import REPOSITORY, Folder, SandboxError

if TYPE_CHECKING:
    from sandbox.processes import Supervisor

PASSPHRASE = "sandbox"  # protects nothing: the sandbox's stack has no real secret


def binaries() -> Path:
    """The folder with the engine and the servers (`make tools`)."""
    return tools.bin_dir()


def shared(part: str) -> Path:
    """A folder of files that come with the servers: `kuberay/crds`, `kwok`."""
    return tools.share_dir(part)


def cloud_environment(folder: Folder, supervisor: Supervisor) -> dict[str, str]:
    """Start the stand-ins for Google's APIs; what Pulumi and the pods must know of them."""
    return cloud.start(folder.root, ADDRESS, supervisor)


def install_plugin(folder: Folder) -> None:
    """Put the kubernetes plugin into the sandbox's own Pulumi home."""
    source = binaries() / "pulumi-resource-kubernetes"
    if not source.exists():
        return
    home = folder.pulumi_home / "plugins" / f"resource-kubernetes-v{version('pulumi-kubernetes')}"
    home.mkdir(parents=True, exist_ok=True)
    link = home / source.name
    if not link.exists():
        link.unlink(missing_ok=True)
        link.symlink_to(source)


def environment(folder: Folder, services: dict[str, str]) -> dict[str, str]:
    """Variables for whatever joins the sandbox: Pulumi, kubectl, Google's clients."""
    path = [str(folder.bin), str(binaries()), str(Path(sys.executable).parent)]
    return {
        **services,
        "GEMMA_SANDBOX": str(folder.root),
        "VIRTUAL_ENV": sys.prefix,
        "PATH": os.pathsep.join([*path, os.environ.get("PATH", "/usr/bin:/bin")]),
        # The cluster's DNS endpoint has a public certificate in the cloud, ours in the sandbox.
        "SSL_CERT_FILE": str(folder.pki / "ca.crt"),
        "KUBECONFIG": str(kubeconfig(folder.pki, "admin")),
        "PULUMI_HOME": str(folder.pulumi_home),
        # No .attrs files: one that a kill leaves empty makes the stack unreadable.
        "PULUMI_BACKEND_URL": f"file://{folder.pulumi_state}?metadata=skip",
        "PULUMI_CONFIG_PASSPHRASE": PASSPHRASE,
        # The kubernetes plugin of the Pulumi home, not the same one on PATH with a warning.
        "PULUMI_IGNORE_AMBIENT_PLUGINS": "true",
        "PULUMI_SKIP_UPDATE_CHECK": "1",
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        "PYTHONPATH": str(REPOSITORY),
    }


def require_virtual_environment() -> None:
    """The pods run this interpreter's packages, so it must be the project's."""
    if sys.prefix == sys.base_prefix:
        raise SandboxError(
            "run the sandbox with the project's virtual environment: `.venv/bin/python -m sandbox`"
        )
