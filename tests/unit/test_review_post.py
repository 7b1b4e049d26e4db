"""One comment on the right pull request, against a local server that answers as GitHub does."""

from __future__ import annotations

import http.server
import json
import threading
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from review import comment, post


class GitHub:
    """Pull requests and comments of one repository."""

    def __init__(self) -> None:
        self.pulls = [
            {"number": 7, "head": {"sha": "new"}, "of": "someone:feature/x y", "state": "open"},
            {"number": 3, "head": {"sha": "new"}, "of": "another:feature/x y", "state": "open"},
        ]
        self.comments: list[dict[str, Any]] = [
            self.comment(n, "somebody", f"{comment.marker('dev')} quoted") for n in range(130)
        ]

    @staticmethod
    def comment(number: int, login: str, body: str) -> dict[str, Any]:
        return {
            "id": number,
            "user": {"login": login},
            "body": body,
            "html_url": f"http://c/{number}",
        }

    def answer(self, method: str, path: str, body: dict[str, Any]) -> Any:
        address = urllib.parse.urlsplit(path)
        query = dict(urllib.parse.parse_qsl(address.query))
        resource = address.path.removeprefix("/repos/team/gemma/")
        if (method, resource) == ("GET", "pulls"):
            return [pull for pull in self.pulls if pull["of"] == query["head"]]
        if (method, resource) == ("GET", "issues/7/comments"):
            size, page = int(query["per_page"]), int(query["page"])
            return self.comments[(page - 1) * size : page * size]
        if (method, resource) == ("POST", "issues/7/comments"):
            self.comments.append(self.comment(len(self.comments), post.AUTHOR, body["body"]))
            return self.comments[-1]
        assert (method, resource.rpartition("/")[0]) == ("PATCH", "issues/comments")
        found = self.comments[int(resource.rpartition("/")[2])]
        assert found["user"]["login"] == post.AUTHOR
        found["body"] = body["body"]
        return found


@pytest.fixture
def github(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[GitHub]:
    found = GitHub()

    class Handler(http.server.BaseHTTPRequestHandler):
        def handle_request(self) -> None:
            assert self.headers["Authorization"] == "Bearer t0ken"
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            answer = json.dumps(found.answer(self.command, self.path, body)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_POST = do_PATCH = handle_request

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("GITHUB_API_URL", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("GITHUB_REPOSITORY", "team/gemma")
    monkeypatch.setenv("GITHUB_TOKEN", "t0ken")
    monkeypatch.setenv("GITHUB_EVENT_PATH", str(tmp_path / "event.json"))
    yield found
    server.shutdown()
    server.server_close()


def send(tmp_path: Path, text: str, sha: str = "new", stack: str = "dev") -> None:
    run = {
        "head_sha": sha,
        "head_branch": "feature/x y",
        "head_repository": {"owner": {"login": "someone"}},
    }
    (tmp_path / "event.json").write_text(json.dumps({"workflow_run": run}))
    (tmp_path / f"{stack}.md").write_text(text)
    assert post.main([str(tmp_path)]) == 0


def test_the_second_preview_updates_the_first(github: GitHub, tmp_path: Path) -> None:
    before = len(github.comments)
    send(tmp_path, f"{comment.marker('dev')}\n\none")
    send(tmp_path, f"{comment.marker('dev')}\n\ntwo")
    assert len(github.comments) == before + 1
    assert github.comments[-1]["body"].endswith("two")


def test_a_run_of_an_older_commit_says_nothing(github: GitHub, tmp_path: Path) -> None:
    before = len(github.comments)
    send(tmp_path, "late", sha="old")
    assert len(github.comments) == before


def test_any_text_stays_one_comment_within_the_limit(github: GitHub, tmp_path: Path) -> None:
    send(tmp_path, "x" * 100_000)
    send(tmp_path, "y" * 100_000)
    assert len(github.comments) == 131
    assert github.comments[-1]["body"].startswith(comment.marker("dev"))
    assert len(github.comments[-1]["body"]) < 65_536


def test_each_stack_of_the_repository_has_its_comment(github: GitHub, tmp_path: Path) -> None:
    before = len(github.comments)
    send(tmp_path, "of dev")
    send(tmp_path, "of prod", stack="prod")
    send(tmp_path, "of nobody", stack="made-up")
    found = [made["body"] for made in github.comments[before:]]
    assert found == [f"{comment.marker(stack)}\n\nof {stack}" for stack in ("dev", "prod")]
