"""Which version of each tool is pinned, and when one on PATH is fit."""

import os
import re
from pathlib import Path

import pytest

from tests.unit.tools.kit import make, script
from tools import catalog, golang, install, on_path, places
from tools.recipe import OnPath, Tool

ROOT = Path(__file__).parents[3]


def test_every_tool_is_pinned_to_the_version_that_go_builds() -> None:
    pins = "\n".join(path.read_text() for path in golang.MODULES.glob("*/go.mod"))
    for tool in catalog.TOOLS:
        if tool.name == "pulumi-resource-kubernetes":  # numbered by its SDK
            continue
        assert f" v{tool.version}" in pins, tool.name


def test_the_plugin_has_the_version_of_the_sdk() -> None:
    version = catalog.BY_NAME["pulumi-resource-kubernetes"].version
    assert f"pulumi-kubernetes=={version}" in (ROOT / "pyproject.toml").read_text()


def test_only_release_hosts_are_named() -> None:
    """Registries are reached through their clients, which know where they are."""
    named: set[str] = set()
    for path in (ROOT / "tools").rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            named.update(re.findall(r"https?://([\w.-]+)", path.read_text()))
    assert named == {"github.com", "dl.k8s.io", "get.pulumi.com"}


def test_sets_and_names() -> None:
    assert [tool.name for tool in catalog.select(("pulumi", "etcd"))] == ["etcd", "pulumi"]
    assert {tool.name for tool in catalog.select(())} == set(catalog.DEMO)
    assert set(catalog.PREVIEW) < set(catalog.DEMO) < set(catalog.SETS["test"])
    with pytest.raises(ValueError, match="no tool or set is called 'etdc'"):
        catalog.select(("etdc",))


def test_a_new_pin_leaves_the_other_tools_where_they_are(base: Path) -> None:
    old, new = make(), Tool("gadget", "1.2.4", ("gadget",), make().build)
    other = make("other")
    assert places.tool_folder(base, old) != places.tool_folder(base, new)
    assert places.set_folder(base, (old, other)) != places.set_folder(base, (new, other))


# --- already on PATH


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("Kubernetes v1.35.4", (1, 35, 4)),
        ("etcd Version: 3.6.16\nGit SHA: 1a2b", (3, 6, 16)),
        ("v3.274.1\n", (3, 274, 1)),
        ("Client Version: v1.32.4-dispatcher", (1, 32, 4)),
        ("unknown", None),
    ],
)
def test_version_in_a_text(text: str, version: tuple[int, ...] | None) -> None:
    assert on_path.parse_version(text) == version


@pytest.mark.parametrize(
    ("version", "fit"),
    [((3, 249, 9), False), ((3, 250, 0), True), ((3, 999, 1), True), ((4, 0, 0), False)],
)
def test_version_fit(version: tuple[int, ...], fit: bool) -> None:
    assert on_path.fits(OnPath(("x",), (3, 250), (4,)), version) is fit


def test_a_fit_program_on_path_is_taken(base: Path, tmp_path: Path) -> None:
    tool = make(on_path=OnPath(("gadget", "--version"), (1,), (2,)))
    found = script(tmp_path / "path" / "gadget", "echo gadget 1.9")
    install.ensure([tool])
    assert (places.tool_folder(base, tool) / "bin" / "gadget").resolve() == found
    assert places.way_of(base, tool)["way"] == "path"
    found.write_text("#!/bin/sh\necho gadget 9\n")  # upgraded behind our back
    os.utime(found, (1, 1))
    assert not places.installed(base, tool)


def test_an_unfit_one_is_not(base: Path, tmp_path: Path) -> None:
    tool = make(on_path=OnPath(("gadget", "--version"), (1, 3), (2,)))
    script(tmp_path / "path" / "gadget", "echo gadget 1.2.9")
    with pytest.raises(on_path.NotFit, match=r"is 1\.2\.9; what fits is 1\.3 or newer, before 2"):
        on_path.find(tool, base)


def test_our_own_links_are_no_find(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(base / "sets" / "abc" / "bin" / "gadget", "echo 1.9")
    monkeypatch.setenv("PATH", f"{base / 'sets' / 'abc' / 'bin'}:/usr/bin:/bin")
    with pytest.raises(on_path.NotFit, match="not on PATH"):
        on_path.find(make(on_path=OnPath(("gadget", "--version"), (1,), (2,))), base)
