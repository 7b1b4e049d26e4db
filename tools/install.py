"""Bring tools into the cache, each by the first way that works."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tools import build, download, golang, on_path, places
from tools.progress import Progress
from tools.recipe import Tool

Tried = dict[str, list[str]]  # tool -> why each way failed, in order


class ToolsError(Exception):
    """Some tools could not be brought; the text says what was tried and what to install."""


def ensure(tools: Sequence[Tool], progress: Progress | None = None) -> Path:
    """Bring the tools that are missing; returns the folder of links, ready for PATH.

    Raises ToolsError when one cannot be had; those that could are kept.
    """
    base = places.root()
    progress = progress or Progress()
    if all(places.installed(base, tool) for tool in tools):
        return places.link_set(base)
    with places.lock(base, progress.say):
        missing = [tool for tool in tools if not places.installed(base, tool)]
        if missing:  # else the run that we waited for brought them
            tried: Tried = {tool.name: [] for tool in missing}
            progress.say(f"bringing {', '.join(tool.name for tool in missing)} into {base}")
            with places.scratch(base) as tmp:
                missing = _from_path(base, missing, tmp, tried, progress)
                missing = _from_releases(base, missing, tmp, tried, progress)
                missing = _from_source(base, missing, tmp, tried, progress)
            places.link_set(base)
            if missing:
                raise ToolsError(explain(missing, tried))
    return places.link_set(base)


def _from_path(
    base: Path, tools: Sequence[Tool], tmp: Path, tried: Tried, progress: Progress
) -> list[Tool]:
    """Adopt what is on PATH; returns the tools that are still missing."""
    missing: list[Tool] = []
    for tool in tools:
        try:
            found = on_path.find(tool, base)
        except on_path.NotFit as error:
            tried[tool.name].append(str(error))
            missing.append(tool)
            continue
        made = tmp / f"{tool.name}-path"
        (made / "bin").mkdir(parents=True)
        for program, path in found.items():
            (made / "bin" / program).symlink_to(path)
        source = str(next(iter(found.values())))
        mtime_ns = {program: path.stat().st_mtime_ns for program, path in found.items()}
        places.adopt(base, tool, made, {"way": "path", "source": source, "mtime_ns": mtime_ns})
        progress.say(f"{tool.name}: {source} fits")
    return missing


def _from_releases(
    base: Path, tools: Sequence[Tool], tmp: Path, tried: Tried, progress: Progress
) -> list[Tool]:
    """Download releases; returns the tools that are still missing."""
    hosts = download.Hosts()
    releases = [(tool, tool.release) for tool in tools if tool.release]
    hosts.probe(
        download.expand(url, tool.version)
        for tool, release in releases
        for url in (release.url, release.checksums)
    )
    missing: list[Tool] = []
    for tool in tools:
        made = tmp / f"{tool.name}-release"
        made.mkdir()
        try:
            url = download.fetch(tool, made, hosts, progress.tick)
        except download.DownloadError as error:
            tried[tool.name].append(str(error))
            missing.append(tool)
            continue
        places.adopt(base, tool, made, {"way": "download", "source": url})
        progress.say(f"{tool.name}: downloaded {url}")
    return missing


def _from_source(
    base: Path, tools: Sequence[Tool], tmp: Path, tried: Tried, progress: Progress
) -> list[Tool]:
    """Build with Go; returns the tools that are still missing."""
    if not tools:
        return []
    try:
        go = golang.find_go(base, tmp, progress.say)
    except golang.GoError as error:
        for tool in tools:
            tried[tool.name].append(f"cannot be built without Go: {error}")
        return list(tools)
    builder = build.Builder(go, tmp, progress)
    failed = builder.build(build.modules_of(tools))
    missing: list[Tool] = []
    for tool in tools:
        made = tmp / f"{tool.name}-built"
        try:
            builder.collect(tool, made)
        except golang.GoError as error:
            whys = [failed[name] for name in tool.build.mains if name in failed]
            tried[tool.name].append(f"building with {go} failed: {'; '.join(whys) or error}")
            missing.append(tool)
            continue
        places.adopt(base, tool, made, {"way": "build", "source": _source(tool)})
    return missing


def _source(tool: Tool) -> str:
    packages = [main.package for mains in tool.build.mains.values() for main in mains]
    return f"tools/go, {', '.join(packages)}"


def explain(missing: Sequence[Tool], tried: Tried) -> str:
    """What was tried for each tool, why it failed, and what helps."""
    lines = ["These tools could not be brought:"]
    for tool in missing:
        lines.append(f"  {tool.name} {tool.version}")
        lines.extend(f"    - {why}" for why in tried[tool.name])
    go = ".".join(map(str, golang.needed_version()))
    lines += [
        "What helps, any of these:",
        f"  - install Go {go} or newer and let it reach its module proxy (GOPROXY), then try again",
        "  - let this machine reach the hosts named above (HTTPS_PROXY is honoured)",
        "  - put the program yourself on PATH in a version that fits:",
    ]
    for tool in missing:
        rule = tool.on_path
        lines.append(
            f"      {tool.name}: "
            + (
                f"{'.'.join(map(str, rule.at_least))} or newer, "
                f"before {'.'.join(map(str, rule.below))}"
                if rule
                else f"not possible; put {', '.join(tool.programs)} into "
                f"{places.tool_folder(places.root(), tool)}/bin and {{}} into way.json there"
            )
        )
    return "\n".join(lines)
