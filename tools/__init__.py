"""The pinned engine and servers: which versions, and where they lie on this machine.

Standard library only: this runs before any virtual environment exists.

    python -m tools demo      bring what the demo needs (also: preview, test, or tools by name)
    python -m tools --path    print the folder to put first on PATH
"""

from __future__ import annotations

from pathlib import Path

from tools import catalog, places
from tools.install import ToolsError, ensure

__all__ = ["ToolsError", "bin_dir", "bring", "program", "share_dir", "version"]


def bring(*names: str) -> Path:
    """Bring tools or sets (`demo`, `preview`, `test`) into the cache; returns `bin_dir()`.

    At once when they are there. Raises ToolsError (its text is for the user), ValueError for an
    unknown name.
    """
    return ensure(catalog.select(names)) / "bin"


def bin_dir() -> Path:
    """The folder with all programs that were brought: put it first on PATH."""
    return places.set_folder(places.root()) / "bin"


def share_dir(name: str) -> Path:
    """Data files that a server needs: `kuberay/crds` (KubeRay's CRDs), `kwok` (its stages).

    Raises FileNotFoundError when the tool was not brought.
    """
    folder = places.set_folder(places.root()) / "share" / name
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is missing: run `make tools`")
    return folder


def program(name: str) -> Path:
    """The path of one program. Raises FileNotFoundError when its tool was not brought."""
    path = bin_dir() / name
    if not path.exists():
        raise FileNotFoundError(f"{name} is missing: run `make tools`")
    return path


def version(name: str) -> str:
    """The pinned version of a tool; of `pulumi-resource-kubernetes`, the one to install it as."""
    return catalog.BY_NAME[name].version
