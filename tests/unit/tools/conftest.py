"""A cache of its own, a server of releases and a module that a fake Go builds."""

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import golang
from tools.recipe import Build, Files, Main, Tool


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


@pytest.fixture
def gadgets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tool:
    """A tool that a fake Go builds, with a data file from its module."""
    monkeypatch.setattr(golang, "MODULES", tmp_path / "modules")
    (tmp_path / "modules" / "gadgets").mkdir(parents=True)
    (tmp_path / "modules" / "gadgets" / "go.mod").write_text("module x\n\ngo 1.26.6\n")
    files = {"gadgets": (Files("example.org/gadget", "crds", ("*.yaml",), "share/gadget/crds"),)}
    way = Build(mains={"gadgets": (Main("example.org/gadget", "gadget"),)}, files=files)
    return Tool("gadget", "1.2.3", ("gadget",), way, share=("gadget",))
