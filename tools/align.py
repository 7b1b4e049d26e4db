"""For maintainers: after a pin under tools/go/tools was raised, give the other modules the same.

    python -m tools.align

Builds share Go's cache only where they ask for the same version of a module. This raises each
module's requirements to those of tools/go/tools; what must stay behind is in KEEP. It needs the
network, and ends with the list of modules that still differ.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tools.golang import MODULES

LEADER = "tools"
# The plugin's generator stops compiling at pkg v3.247 (schema.PackageSpec.Provider became a
# pointer); the language host is in sdk v3.68.0 and in none after it. kwok's CRI client is ahead.
KEEP = {
    "kubernetes-plugin": {"github.com/pulumi/pulumi/pkg/v3", "github.com/pulumi/pulumi/sdk/v3"},
    "python-host": {"github.com/pulumi/pulumi/sdk/v3"},
    "kwok": {"sigs.k8s.io/kwok", "k8s.io/cri-api", "k8s.io/cri-client"},
}


def go(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["go", *arguments], cwd=folder, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def versions(folder: Path) -> dict[str, str]:
    """The selected version of each module in a build."""
    text = go(folder, "list", "-mod=mod", "-m", "-f", "{{.Path}} {{.Version}}", "all")
    pairs = [line.split() for line in text.splitlines()]
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def mains(folder: Path) -> list[str]:
    """The main packages: `tool` lines, or the folder's own."""
    told = json.loads(go(folder, "mod", "edit", "-json"))
    return [tool["Path"] for tool in told.get("Tool") or ()] or ["./..."]


def order(version: str) -> tuple[list[int], bool, str]:
    """A sort key: numbers first, then a release after its pre-releases."""
    core, _, extra = version.removeprefix("v").partition("+")[0].partition("-")
    return [int(part) for part in core.split(".")], not extra, extra


def align(name: str, leader: dict[str, str]) -> dict[str, tuple[str, str]]:
    """Raise one module's requirements; returns what differs still: module -> (its, leader's)."""
    folder = MODULES / name
    keep = KEEP.get(name, set())
    for _ in range(5):  # raising one may raise others
        raised = [
            f"-require={module}@{leader[module]}"
            for module, version in versions(folder).items()
            if module in leader and module not in keep and order(version) < order(leader[module])
        ]
        if not raised:
            break
        go(folder, "mod", "edit", *raised)
    go(folder, "list", "-mod=mod", "-e", "-deps", *mains(folder))  # completes go.sum
    return {
        module: (version, leader[module])
        for module, version in versions(folder).items()
        if module in leader and version != leader[module] and leader[module] != "v0.0.0"
    }


def main() -> int:
    leader = versions(MODULES / LEADER)
    for name in KEEP:
        for module, (its, leaders) in sorted(align(name, leader).items()):
            print(f"{name}: {module} {its}, not {leaders}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
