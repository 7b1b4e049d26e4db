"""The official download: verified against its published digest, or refused."""

import subprocess
import urllib.request
from pathlib import Path

import pytest

from tests.unit.tools.kit import make, publish
from tools import catalog, download, install, places
from tools.recipe import Release


def test_download_is_verified_and_linked(base: Path, server: tuple[str, Path]) -> None:
    url, folder = server
    publish(folder)
    tool = make(release=Release(url + "/gadget.tar.gz", url + "/sums"))
    install.ensure([tool])
    place = places.tool_folder(base, tool)
    assert sorted(path.name for path in place.rglob("*") if path.is_file()) == [
        "gadget",
        "way.json",
    ]
    assert subprocess.check_output([place / "bin" / "gadget"], text=True) == "1.2.3\n"
    assert places.way_of(base, tool) == {"way": "download", "source": url + "/gadget.tar.gz"}
    bin_folder = places.link_set(base, (tool,)) / "bin"
    assert subprocess.check_output([bin_folder / "gadget"], text=True) == "1.2.3\n"


@pytest.mark.usefixtures("no_go")
def test_a_download_with_another_digest_is_refused(base: Path, server: tuple[str, Path]) -> None:
    url, folder = server
    publish(folder)
    (folder / "sums").write_text(f"{'0' * 64}  gadget.tar.gz\n")
    tool = make(release=Release(url + "/gadget.tar.gz", url + "/sums"))
    with pytest.raises(install.ToolsError, match="has SHA-256"):
        install.ensure([tool])
    assert not places.tool_folder(base, tool).exists()


def test_an_unreachable_host_costs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = download.Hosts()
    asked: list[tuple[str, float]] = []
    real = urllib.request.urlopen

    def urlopen(request: urllib.request.Request, timeout: float) -> object:
        asked.append((request.full_url, timeout))
        return real(request, timeout=timeout)

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    hosts.probe(f"http://127.0.0.1:9/{name}" for name in ("a", "b"))
    for name in ("a", "b"):
        with pytest.raises(download.DownloadError, match=r"127\.0\.0\.1:9 cannot be reached"):
            hosts.check(f"http://127.0.0.1:9/{name}")
    assert asked == [("http://127.0.0.1:9/b", download.PROBE_S)]


@pytest.mark.parametrize(
    "text", ["{d}  a.tar.gz\n", "{d} *a.tar.gz", "{d}\n", "x\n{D}  dist/a.tar.gz\n"]
)
def test_published_digests(text: str) -> None:
    digest = "ab" * 32
    text = text.format(d=digest, D=digest.upper())
    assert download.published_sha256(text, "a.tar.gz") == digest
    assert download.published_sha256(f"{digest}  b.tar.gz", "a.tar.gz") is None


def test_templates_expand_on_this_machine() -> None:
    for tool in catalog.TOOLS:
        if tool.release:
            for template in (tool.release.url, tool.release.checksums):
                assert "{" not in download.expand(template, tool.version)
