"""Built with Go: what is built once, what failed says why, and nothing half-made is ever seen."""

import io
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.unit.tools.kit import WRITE, fake_go, make, script
from tools import build, catalog, golang, install, places
from tools.progress import Progress
from tools.recipe import OnPath, Release, Tool

ROOT = Path(__file__).parents[3]


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
    deadline = time.monotonic() + 120
    while not (pid := (tmp_path / "pid")).exists() or not pid.read_text().strip():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    child.send_signal(signal.SIGTERM)
    assert child.wait(120) == 143
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
    assert not places.tool_folder(base, gadgets).exists()
    assert not (base / "tmp").exists()


def test_a_signal_while_the_compiler_is_started_ends_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python does not know its pid before Popen has returned."""
    started: list[subprocess.Popen[str]] = []

    class Interrupted(subprocess.Popen[str]):
        def __init__(self, *arguments: object, **named: object) -> None:
            super().__init__(*arguments, **named)  # type: ignore[call-overload]
            started.append(self)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            golang.run(
                ["sleep", "600"], tmp_path, dict(os.environ), lambda line: None, lambda: None
            )
    finally:
        signal.signal(signal.SIGINT, before)
    assert started[0].returncode == -signal.SIGKILL


def test_a_second_run_waits_and_finds_the_work_done(base: Path) -> None:
    tool, stream = make(), io.StringIO()
    with places.lock(base, print):
        second = threading.Thread(target=install.ensure, args=([tool], Progress(stream)))
        second.start()
        deadline = time.monotonic() + 120
        while "waiting" not in stream.getvalue():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        with places.scratch(base) as tmp:
            script(tmp / "made" / "bin" / "gadget", "echo hi")
            places.adopt(base, tool, tmp / "made", {"way": "build"})
    second.join(120)
    assert not second.is_alive()
    assert "bringing" not in stream.getvalue().replace("is bringing", "")
