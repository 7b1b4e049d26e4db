"""The pinned engine and servers: which versions, and where they lie on this machine.

Standard library only: this runs before any virtual environment exists.

    python -m tools demo      bring what the demo needs (also: preview, test, or tools by name)
    python -m tools --path    print the folder to put first on PATH
"""

from __future__ import annotations

from pathlib import Path

from tools import places


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
