"""Bringing the engine and servers: which way is taken, and that nothing half-made is ever seen."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import io
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import tools
from tools import build, catalog, download, golang, install, on_path, places
from tools.__main__ import main
from tools.progress import Estimate, Progress, duration
from tools.recipe import Build, Files, Main, OnPath, Release, Tool

ROOT = Path(__file__).parents[2]


def make(name: str = "gadget", **ways: object) -> Tool:
    build_way = Build(mains={"gadgets": (Main(f"example.org/{name}", name),)})
    return Tool(name=name, version="1.2.3", programs=(name,), build=build_way, **ways)  # type: ignore[arg-type]


def script(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a PATH with the system's own programs and nothing of ours."""
    monkeypatch.setenv("GEMMA_TOOLS", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:/usr/bin:/bin")
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "cache"


@pytest.fixture
def no_go(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_go(*_: object) -> Path:
        raise golang.GoError("go is not on PATH")

    monkeypatch.setattr(golang, "find_go", find_go)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A download host on this machine: its address and the folder that it serves."""
    folder = tmp_path / "served"
    folder.mkdir()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: object) -> None:
            super().__init__(*args, directory=str(folder))  # type: ignore[arg-type]

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{httpd.server_port}", folder
        httpd.shutdown()


def publish(folder: Path, name: str = "gadget") -> None:
    """A release: an archive with the program in a folder, something else, and the checksums."""
    with tarfile.open(folder / f"{name}.tar.gz", "w:gz") as tar:
        for member, text in ((f"{name}-1.2.3/{name}", "#!/bin/sh\necho 1.2.3\n"), ("README", "x")):
            info = tarfile.TarInfo(member)
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    digest = hashlib.sha256((folder / f"{name}.tar.gz").read_bytes()).hexdigest()
    (folder / "sums").write_text(f"{'0' * 64}  other.tar.gz\n{digest}  {name}.tar.gz\n")


# --- what is pinned


def test_every_tool_is_pinned_to_the_version_that_go_builds() -> None:
    pins = "\n".join(path.read_text() for path in golang.MODULES.glob("*/go.mod"))
    for tool in catalog.TOOLS:
        if tool.name == "pulumi-resource-kubernetes":  # numbered by its SDK
            continue
        assert f" v{tool.version}" in pins, tool.name


def test_the_plugin_has_the_version_of_the_sdk() -> None:
    version = tools.version("pulumi-resource-kubernetes")
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


# --- the official download


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


def test_an_unreachable_host_costs_once() -> None:
    hosts = download.Hosts()
    begin = time.monotonic()
    hosts.probe(f"http://127.0.0.1:9/{name}" for name in ("a", "b"))
    for name in ("a", "b"):
        with pytest.raises(download.DownloadError, match=r"127\.0\.0\.1:9 cannot be reached"):
            hosts.check(f"http://127.0.0.1:9/{name}")
    assert time.monotonic() - begin < download.PROBE_S


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


# --- built with Go


def test_one_build_per_module_and_shared_stamps() -> None:
    modules = build.modules_of(catalog.select(("demo",)))
    assert modules[0].name == "tools"
    assert len(modules[0].mains) == 7
    assert "k8s.io/component-base/version.gitMinor=35" in modules[0].stamps
    assert len(modules[0].stamps) == len(set(modules[0].stamps))
    assert {module.name for module in build.modules_of(catalog.select(("etcd",)))} == {"tools"}


def test_a_package_counts_with_all_that_it_imports() -> None:
    packages = {
        "a": build.Package("", 1, ("b", "c")),
        "b": build.Package("", 1, ("c",)),
        "c": build.Package("", 1, ()),
        "d": build.Package("", 1, ()),
    }
    done: set[str] = set()
    build._mark("b", packages, done)
    assert done == {"b", "c"}
    build._mark("a", packages, done)
    assert done == {"a", "b", "c"}


def fake_go(path: Path, built: str) -> Path:
    """A `go` that lists one package, writes programs, and downloads a module with one file."""
    source = path.parent / "source" / "crds"
    source.mkdir(parents=True)
    (source / "ray.yaml").write_text("kind: CustomResourceDefinition\n")
    folder = json.dumps({"Dir": str(source.parent)})
    return script(
        path,
        f"""case "$1" in
        env) echo go99.1.0;;
        list) printf 'example.org/gadget\\t/nowhere\\tx.go\\tfmt\\n';;
        mod) echo '{folder}';;
        build) echo example.org/gadget >&2; {built};;
        esac""",
    )


@pytest.fixture
def gadgets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tool:
    """A tool that a fake Go builds, with a data file from its module."""
    monkeypatch.setattr(golang, "MODULES", tmp_path / "modules")
    (tmp_path / "modules" / "gadgets").mkdir(parents=True)
    (tmp_path / "modules" / "gadgets" / "go.mod").write_text("module x\n\ngo 1.26.6\n")
    files = {"gadgets": (Files("example.org/gadget", "crds", ("*.yaml",), "share/gadget/crds"),)}
    way = Build(mains={"gadgets": (Main("example.org/gadget", "gadget"),)}, files=files)
    return Tool("gadget", "1.2.3", ("gadget",), way, share=("gadget",))


WRITE = 'while [ "$1" != -o ]; do shift; done; printf "#!/bin/sh\\necho hi\\n" > "$2gadget"; '
WRITE += 'chmod +x "$2gadget"'


def test_build_brings_programs_and_data(base: Path, tmp_path: Path, gadgets: Tool) -> None:
    fake_go(tmp_path / "path" / "go", WRITE)
    stream = io.StringIO()
    install.ensure([gadgets], Progress(stream))
    folder = places.link_set(base, (gadgets,))
    assert subprocess.check_output([folder / "bin" / "gadget"], text=True) == "hi\n"
    assert (folder / "share" / "gadget" / "crds" / "ray.yaml").is_file()
    assert "to compile: 1 packages" in stream.getvalue()


def test_a_failed_build_says_why_and_what_helps(base: Path, tmp_path: Path, gadgets: Tool) -> None:
    fake_go(tmp_path / "path" / "go", "echo 'x.go:1: undefined: y' >&2; exit 1")
    with pytest.raises(install.ToolsError) as caught:
        install.ensure([gadgets])
    text = str(caught.value)
    for part in (
        "gadget 1.2.3",
        "not looked for on PATH",
        "no official download",
        "undefined: y",
        "install Go 1.26.6",
    ):
        assert part in text
    assert not places.tool_folder(base, gadgets).exists()


def test_without_go_the_error_names_all_ways(base: Path, no_go: None) -> None:
    release = Release("http://127.0.0.1:9/gadget", "http://127.0.0.1:9/sums")
    tool = make(on_path=OnPath(("gadget", "--version"), (1,), (2,)), release=release)
    with pytest.raises(install.ToolsError) as caught:
        install.ensure([tool])
    order = ["gadget is not on PATH", "127.0.0.1:9 cannot be reached", "cannot be built without Go"]
    found = [str(caught.value).index(part) for part in order]
    assert found == sorted(found)
    assert "gadget: 1 or newer, before 2" in str(caught.value)


# --- whole or not at all


def test_nothing_half_made_is_adopted(base: Path) -> None:
    tool = make()
    with places.scratch(base) as tmp:
        (tmp / "made" / "bin").mkdir(parents=True)
        with pytest.raises(FileNotFoundError, match="gadget is missing"):
            places.adopt(base, tool, tmp / "made", {"way": "build"})
    assert not tmp.exists()
    assert not places.installed(base, tool)
    assert not (places.link_set(base, (tool,)) / "bin" / "gadget").exists()


def test_what_an_interrupted_run_left_is_replaced(base: Path) -> None:
    tool = make()
    (places.tool_folder(base, tool) / "bin").mkdir(parents=True)  # no program, no way.json
    junk = base / "tmp" / "junk"
    junk.parent.mkdir()
    junk.write_text("half")
    with places.scratch(base) as tmp:
        assert not junk.exists()
        script(tmp / "made" / "bin" / "gadget", "echo hi")
        places.adopt(base, tool, tmp / "made", {"way": "build"})
    assert places.installed(base, tool)


def test_a_stopped_build_ends_the_compiler_and_leaves_nothing(
    base: Path, tmp_path: Path, gadgets: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_go(tmp_path / "path" / "go", f"echo $$ > {tmp_path}/pid; sleep 60")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    code = (
        "import signal, sys; from pathlib import Path; from tools import golang, install;"
        f"from tools.recipe import *; golang.MODULES = Path({str(golang.MODULES)!r});"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143));"
        f"install.ensure([{gadgets!r}])"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 20
    while not (pid := (tmp_path / "pid")).exists() or not pid.read_text().strip():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    child.send_signal(signal.SIGTERM)
    assert child.wait(20) == 143
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
    assert not places.tool_folder(base, gadgets).exists()
    assert not (base / "tmp").exists()


def test_a_second_run_waits_and_finds_the_work_done(base: Path) -> None:
    tool, stream = make(), io.StringIO()
    with places.lock(base, print):
        second = threading.Thread(target=install.ensure, args=([tool], Progress(stream)))
        second.start()
        deadline = time.monotonic() + 10
        while "waiting" not in stream.getvalue():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        with places.scratch(base) as tmp:
            script(tmp / "made" / "bin" / "gadget", "echo hi")
            places.adopt(base, tool, tmp / "made", {"way": "build"})
    second.join(10)
    assert not second.is_alive()
    assert "bringing" not in stream.getvalue().replace("is bringing", "")


# --- what the user sees


def test_path_is_printed_without_any_work(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--path"]) == 0
    assert capsys.readouterr().out.strip() == str(tools.bin_dir())
    assert not base.exists()


def test_unknown_name(capsys: pytest.CaptureFixture[str]) -> None:
    with contextlib.suppress(SystemExit):
        main(["etdc"])
    assert "sets: preview, demo, test" in capsys.readouterr().err


def test_missing_data_and_programs_say_what_to_do(base: Path) -> None:
    with pytest.raises(FileNotFoundError, match="make tools"):
        tools.share_dir("kuberay/crds")
    with pytest.raises(FileNotFoundError, match="make tools"):
        tools.program("etcd")


def test_durations() -> None:
    assert [duration(s) for s in (3.2, 250, 725)] == ["3 s", "4m10s", "12 min"]


def test_time_left_follows_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    estimate = Estimate(total=100, later=50, seconds_per_unit=2)
    assert estimate.left() == 300
    clock[0], estimate.done = 40.0, 10  # twice as slow as measured: half trusted by now
    assert estimate.left() == (2 + 4) / 2 * 140
    clock[0], estimate.done = 200.0, 50
    assert estimate.left() == 4 * 100
