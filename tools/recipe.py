"""How a tool is described: its version and the three ways to get it.

Ways, in the order in which they are tried: already on PATH in a version that fits (`OnPath`), the
project's own release (`Release`, verified by its published SHA-256), built from its Go module
(`Build`, verified by the go.sum files under tools/go). A tool without one of the ways says None.
"""

from __future__ import annotations

from dataclasses import dataclass, field

Version = tuple[int, ...]


@dataclass(frozen=True)
class OnPath:
    """A program found on PATH fits when `at_least <= its version < below`."""

    command: tuple[str, ...]  # prints a text whose first X.Y[.Z] is the version
    at_least: Version
    below: Version


@dataclass(frozen=True)
class Release:
    """An official download; the templates know {version}, {os}, {arch} and {x64} (x64 or arm64)."""

    url: str
    checksums: str  # a text with lines of `SHA256  FILE`, or the bare SHA-256 of the file


@dataclass(frozen=True)
class Main:
    """One main package of a module under tools/go, and the name its program gets."""

    package: str
    program: str

    @property
    def written(self) -> str:
        """The file name that `go build -o FOLDER/` gives it: the last part that is no version."""
        parts = [part for part in self.package.split("/") if part not in {"v2", "v3", "v4"}]
        return parts[-1]


@dataclass(frozen=True)
class Files:
    """Files of a Go module's folder: copied beside the programs, or read while building."""

    module: str  # Go module path
    folder: str  # folder in it
    patterns: tuple[str, ...]
    to: str  # under the tool's folder: "bin" or "share/..."; for Build.embed, under the Go module


@dataclass(frozen=True)
class Build:
    """Main packages and files of one or several modules under tools/go."""

    mains: dict[str, tuple[Main, ...]]  # module folder under tools/go -> its main packages
    files: dict[str, tuple[Files, ...]] = field(default_factory=dict[str, tuple[Files, ...]])
    embed: dict[str, tuple[Files, ...]] = field(default_factory=dict[str, tuple[Files, ...]])
    stamps: tuple[str, ...] = ()  # `-X` values of the linker; {version}, {major}, {minor}


@dataclass(frozen=True)
class Tool:
    """A pinned tool. Its folder in the cache is NAME/VERSION, with `-rN` once `revision` is > 1."""

    name: str
    version: str
    programs: tuple[str, ...]
    build: Build
    on_path: OnPath | None = None
    release: Release | None = None
    share: tuple[str, ...] = ()  # folders under share/ that it brings
    revision: int = 1  # raise it when the way a tool is built changes and its version does not

    @property
    def key(self) -> str:
        return self.version if self.revision == 1 else f"{self.version}-r{self.revision}"
