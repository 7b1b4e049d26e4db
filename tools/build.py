"""The third way: built with Go from modules that go.sum pins.

All programs of one Go module are built by one `go build`: shared packages are compiled once, and
one program is linked while another compiles. The modules under tools/go ask for the same versions
of what they share wherever that compiles, so that their builds share Go's cache as well: the demo's
nine programs take a third of the time that they take one by one.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools import golang
from tools.progress import Estimate, Progress, duration
from tools.recipe import Files, Main, Tool

# Measured on the demo's set, cold, on 2 cores of a 2026 cloud machine: CPU seconds for a megabyte
# of Go source, and what linking a program counts as.
CPU_S_PER_MB = 4.5
LINK_MB = 2.0
# Debug information of packages is left out (-dwarf=false): 9% less CPU, and -s drops it anyway.
FLAGS = ("-trimpath", "-gcflags=all=-dwarf=false")


@dataclass
class Module:
    """What one module under tools/go has to build for the wanted tools."""

    name: str
    mains: list[Main]
    stamps: list[str]
    embed: list[Files]

    @property
    def path(self) -> Path:
        return golang.MODULES / self.name


@dataclass(frozen=True)
class Package:
    folder: str  # tells apart two versions of one package
    megabytes: float
    imports: tuple[str, ...]


def modules_of(tools: Sequence[Tool]) -> list[Module]:
    """The modules to build, the one with most programs first: it fills the cache for the others."""
    modules: dict[str, Module] = {}
    for tool in tools:
        version = tool.version.split(".")
        stamps = [
            text.format(version=tool.version, major=version[0], minor=version[1])
            for text in tool.build.stamps
        ]
        for name, mains in tool.build.mains.items():
            module = modules.setdefault(name, Module(name, [], [], []))
            module.mains.extend(mains)
            module.stamps.extend(stamp for stamp in stamps if stamp not in module.stamps)
            module.embed.extend(tool.build.embed.get(name, ()))
    return sorted(modules.values(), key=lambda module: -len(module.mains))


class Builder:
    """Builds modules into one folder; raises golang.GoError when one cannot be built at all."""

    def __init__(self, go: Path, tmp: Path, progress: Progress) -> None:
        self._go = go
        self._tmp = tmp
        self._env = golang.environment(tmp)
        self._progress = progress
        self.out = tmp / "out"
        self.out.mkdir()

    def build(self, modules: Sequence[Module]) -> dict[str, str]:
        """Build everything; returns, for each module that failed, why."""
        failed: dict[str, str] = {}
        listed: dict[str, dict[str, Package]] = {}
        for module in modules:
            try:
                listed[module.name] = self._list(module)
            except golang.GoError as error:
                failed[module.name] = str(error)
        work: dict[str, float] = {}
        compiled: set[str] = set()  # folders
        fresh: dict[str, dict[str, float]] = {}  # what no earlier module compiles, in megabytes
        for module in modules:
            packages = listed.get(module.name, {})
            fresh[module.name] = {
                name: package.megabytes
                for name, package in packages.items()
                if package.folder not in compiled
            }
            work[module.name] = sum(fresh[module.name].values()) + LINK_MB * len(module.mains)
            compiled.update(package.folder for package in packages.values())
        cores = min(_cores(), 8)  # linking and a few huge packages stay serial
        guess = CPU_S_PER_MB / cores
        self._progress.say(
            f"to compile: {len(compiled)} packages on {cores} cores, "
            f"about {duration(sum(work.values()) * guess)} if nothing is in Go's cache yet"
        )
        for number, module in enumerate(modules, 1):
            if module.name in failed:
                continue
            later = sum(work[other.name] for other in modules[number:])
            estimate = Estimate(work[module.name], later, guess)
            label = f"[{number}/{len(modules)}]"
            names = ", ".join(main.program for main in module.mains)
            self._progress.say(f"{label} building {names}")
            why = self._compile(module, listed[module.name], fresh[module.name], estimate, label)
            self._progress.say(
                f"{label} {'failed' if why else 'took'} {duration(estimate.elapsed)}"
            )
            if why:
                failed[module.name] = why
        return failed

    def _overlay(self, module: Module) -> list[str]:
        """Let the compiler see files of the Go module cache as if they lay in our module."""
        if not module.embed:
            return []
        replace: dict[str, str] = {}
        for files in module.embed:
            source = golang.module_folder(self._go, module.name, files.module, self._tmp)
            for name in files.patterns:
                replace[str(module.path / files.to / name)] = str(source / files.folder / name)
        path = self._tmp / f"overlay-{module.name}.json"
        path.write_text(json.dumps({"Replace": replace}))
        return ["-overlay", str(path)]

    def _list(self, module: Module) -> dict[str, Package]:
        """All packages to compile, by name; fetches the Go modules that are not there yet."""
        fetched: list[str] = []
        errors: list[str] = []

        def on_line(line: str) -> None:
            (fetched if line.startswith("go: downloading") else errors).append(line)

        def tick() -> None:
            what = f"fetching Go modules, {len(fetched)} so far" if fetched else "listing packages"
            self._progress.tick(f"{module.name}: {what}")

        form = '{{.ImportPath}}\t{{.Dir}}\t{{join .GoFiles ","}}\t{{join .Imports ","}}'
        command = [str(self._go), "list", "-deps", *self._overlay(module), "-f", form]
        command += [main.package for main in module.mains]
        code, text = golang.run(command, module.path, self._env, on_line, tick)
        if code:
            raise golang.GoError(golang.tail("\n".join(errors), 3))
        packages: dict[str, Package] = {}
        for line in text.splitlines():
            name, folder, files, imports = line.split("\t")
            size = sum(_size(Path(folder, file)) for file in files.split(",") if file)
            packages[name] = Package(folder, size / 1e6, tuple(imports.split(",")))
        return packages

    def _compile(
        self,
        module: Module,
        packages: dict[str, Package],
        fresh: dict[str, float],
        estimate: Estimate,
        label: str,
    ) -> str | None:
        """One `go build`; returns why it failed. What it did finish lies in `out` either way."""
        done: set[str] = set()
        errors: list[str] = []

        def on_line(line: str) -> None:
            if line in packages:
                _mark(line, packages, done)
            elif not line.startswith("go: downloading"):
                errors.append(line)

        def tick() -> None:
            linked = sum((self.out / main.written).exists() for main in module.mains)
            estimate.done = sum(fresh.get(name, 0) for name in done) + LINK_MB * linked
            self._progress.tick(
                f"{label} {len(done)} of {len(packages)} packages, "
                f"{duration(estimate.elapsed)} so far, about {duration(estimate.left())} left"
            )

        stamps = " ".join(f"-X {stamp}" for stamp in module.stamps)
        command = [str(self._go), "build", "-v", *FLAGS, f"-ldflags=-s -w {stamps}"]
        command += [*self._overlay(module), "-o", f"{self.out}{os.sep}"]
        command += [main.package for main in module.mains]
        code, _ = golang.run(command, module.path, self._env, on_line, tick)
        return golang.tail("\n".join(errors), 4) if code else None

    def collect(self, tool: Tool, into: Path) -> None:
        """Put a tool's programs and files together in `into`. Raises golang.GoError."""
        (into / "bin").mkdir(parents=True)
        for mains in tool.build.mains.values():
            for main in mains:
                if not (self.out / main.written).exists():
                    raise golang.GoError(f"{main.program} was not built")
                (self.out / main.written).rename(into / "bin" / main.program)
        for module, many in tool.build.files.items():
            for files in many:
                source = golang.module_folder(self._go, module, files.module, self._tmp)
                (into / files.to).mkdir(parents=True, exist_ok=True)
                found = [p for glob in files.patterns for p in (source / files.folder).glob(glob)]
                if not found:
                    raise golang.GoError(f"{files.module} has no {files.folder}")
                for path in found:
                    copy = into / files.to / path.name
                    shutil.copyfile(path, copy)
                    copy.chmod(0o755 if files.to == "bin" else 0o644)


def _cores() -> int:
    """The cores that this process may use; macOS only knows how many there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _mark(name: str, packages: dict[str, Package], done: set[str]) -> None:
    """A package was compiled, so all that it imports is done too, from the cache if not now."""
    todo = [name]
    while todo:
        current = todo.pop()
        if current in packages and current not in done:
            done.add(current)
            todo.extend(packages[current].imports)
