"""A stand-in of the Hugging Face Hub's API, as far as huggingface_hub 2.4 calls it.

    with Hub() as hub:
        hub.use(monkeypatch, tmp_path, token="hf_writer")

Statuses, X-Error-Code and X-Error-Message are those that the real Hub sends; which of them its
client tells apart is `hf_raise_for_status`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import yaml

SHA = "a" * 40


@dataclass
class Repository:
    """One repository; `revisions` name the only commit that there is, `sha`."""

    files: dict[str, bytes] = field(default_factory=dict)
    private: bool = False
    gated: bool = False
    owner: str = "google"
    accepted: set[str] = field(default_factory=set)
    sha: str = SHA
    revisions: tuple[str, ...] = ("main", SHA)
    commits: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Token:
    """Whose it is, and what it may do; `open_gates` False is a fine-grained token without gates."""

    account: str
    write: bool = False
    open_gates: bool = True


class Hub:
    """The server; `repositories` by "models/owner/name" or "datasets/owner/name"."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.tokens = {
            "hf_reader": Token("jane"),
            "hf_writer": Token("jane", write=True),
            "hf_narrow": Token("jane", open_gates=False),
        }
        self.requests: list[str] = []
        self.blobs: dict[str, bytes] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("_", (_Handler,), {"hub": self}))
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Hub:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def use(self, patch: pytest.MonkeyPatch, cache: Path, token: str | None = None) -> None:
        """Let this process's huggingface_hub talk to the server, its cache in a folder `cache`."""
        patch.delenv("HF_TOKEN", raising=False)
        for name, value in self.environment(cache, token).items():
            patch.setenv(name, value)
        # The client reads the environment once, when it is imported.
        for name, value in {
            "ENDPOINT": self.address,
            "HUGGINGFACE_CO_URL_TEMPLATE": self.address
            + "/{repo_id}/resolve/{revision}/{filename}",
            "HF_HUB_CACHE": str(cache),
            "HF_TOKEN_PATH": str(cache / "token"),
            "HF_HUB_DISABLE_XET": True,
        }.items():
            patch.setattr(f"huggingface_hub.constants.{name}", value)

    def environment(self, cache: Path, token: str | None = None) -> dict[str, str]:
        """Variables for a process that is still to start."""
        given = {"HF_ENDPOINT": self.address, "HF_HOME": str(cache), "HF_HUB_DISABLE_XET": "1"}
        return given | ({"HF_TOKEN": token} if token else {})


class _Refusal(Exception):
    def __init__(self, status: int, code: str, message: str, **more: str) -> None:
        self.status, self.code, self.message, self.more = status, code, message, more


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    sha = SHA

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._answer()

    do_HEAD = do_POST = do_PUT = do_GET

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path).strip("/")
        self.hub.requests.append(f"{self.command} {path}")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            answer = self._route(path.split("/"), body)
        except _Refusal as refusal:
            text = json.dumps({"error": refusal.message, **refusal.more}).encode()
            named = {"X-Error-Code": refusal.code, "X-Error-Message": refusal.message}
            return self._send(refusal.status, text, {k: v for k, v in named.items() if v})
        if isinstance(answer, bytes):
            tag = hashlib.sha256(answer).hexdigest()
            return self._send(200, answer, {"ETag": f'"{tag}"', "X-Repo-Commit": self.sha})
        return self._send(200, json.dumps(answer).encode(), {"Content-Type": "application/json"})

    def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _token(self) -> Token | None:
        given = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if given and given not in self.hub.tokens:
            raise _Refusal(401, "", "Invalid credentials in Authorization header")
        return self.hub.tokens.get(given)

    def _route(self, parts: list[str], body: bytes) -> Any:  # noqa: PLR0911 - one line each
        token = self._token()
        match parts:
            case ["api", "whoami-v2"] if token:
                return {"name": token.account, "type": "user"}
            case ["api", "validate-yaml"]:
                return _validated(json.loads(body)["content"])
            case ["api", "repos", "create"]:
                return self._create(json.loads(body), token)
            case ["api", kind, owner, name, *rest]:
                return self._api(f"{kind}/{owner}/{name}", rest, token, body)
            case ["lfs", oid] if self.command == "PUT":
                self.hub.blobs[oid] = body
                return {}
            case [owner, name, "info", "lfs", "objects", "batch"]:
                self._writable(f"models/{owner}/{name.removesuffix('.git')}", token)
                return {"transfer": "basic", "objects": list(map(self._slot, _objects(body)))}
            case ["datasets", owner, name, "resolve", revision, *file]:
                return self._file(f"datasets/{owner}/{name}", revision, "/".join(file), token)
            case [owner, name, "resolve", revision, *file]:
                return self._file(f"models/{owner}/{name}", revision, "/".join(file), token)
        raise _Refusal(401 if token is None else 404, "", "Invalid username or password.")

    def _found(self, key: str, token: Token | None, revision: str = "main") -> Repository:
        repository = self.hub.repositories.get(key)
        hidden = repository and repository.private and repository.owner != _account(token)
        if repository is None or hidden:
            if token is None:
                raise _Refusal(401, "", "Invalid username or password.")
            raise _Refusal(404, "RepoNotFound", "Repository not found")
        if revision not in repository.revisions:
            raise _Refusal(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        self.sha = repository.sha
        return repository

    def _writable(self, key: str, token: Token | None) -> Repository:
        repository = self._found(key, token)
        if token is None or not token.write or repository.owner != token.account:
            raise _Refusal(403, "", "You don't have write access to this repository")
        return repository

    def _create(self, asked: dict[str, Any], token: Token | None) -> dict[str, str]:
        owner = asked.get("organization") or _account(token)
        if token is None or not token.write or owner != token.account:
            told = f'You don\'t have the rights to create a model under the namespace "{owner}"'
            raise _Refusal(403 if token else 401, "", told)
        key = f"models/{owner}/{asked['name']}"
        page = f"{self.hub.address}/{owner}/{asked['name']}"
        if key in self.hub.repositories:
            raise _Refusal(409, "", "You already created this model repo", url=page)
        private = asked.get("visibility") == "private"
        self.hub.repositories[key] = Repository(private=private, owner=token.account)
        return {"url": page}

    def _api(self, key: str, rest: list[str], token: Token | None, body: bytes) -> Any:
        match rest:
            case [] | ["revision", _]:
                repository = self._found(key, token, rest[1] if rest else "main")
                files = [{"rfilename": name} for name in repository.files]
                name = key.split("/", 1)[1]
                return {
                    "id": name,
                    "sha": repository.sha,
                    "siblings": files,
                    "private": repository.private,
                    "tags": [],
                    "downloads": 0,
                    "likes": 0,
                }
            case ["tree", revision]:
                return [
                    {"type": "file", "path": path, "size": len(content), "oid": _oid(content)}
                    for path, content in self._found(key, token, revision).files.items()
                ]
            case ["auth-check", "write"]:
                return {} if self._writable(key, token) else None
            case ["preupload", _]:
                self._writable(key, token)
                return {"files": [_mode(file["path"]) for file in json.loads(body)["files"]]}
            case ["commit", _]:
                return self._commit(self._writable(key, token), key, body)
        raise _Refusal(404, "", f"no such path here: {rest}")

    def _commit(self, repository: Repository, key: str, body: bytes) -> dict[str, Any]:
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "header":
                repository.commits.append(value["summary"])
            elif line["key"] == "file":
                repository.files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                repository.files[value["path"]] = self.hub.blobs[value["oid"]]
        address = f"{self.hub.address}/{key.split('/', 1)[1]}/commit/{SHA}"
        return {"commitUrl": address, "commitOid": SHA, "pullRequestUrl": None}

    def _slot(self, wanted: dict[str, Any]) -> dict[str, Any]:
        upload = {"href": f"{self.hub.address}/lfs/{wanted['oid']}"}
        return {**wanted, "actions": {"upload": upload}}

    def _file(self, key: str, revision: str, path: str, token: Token | None) -> bytes:
        repository = self._found(key, token, revision)
        if repository.gated and path not in ("README.md", ".gitattributes"):
            name = key.split("/", 1)[1]
            if token is None:
                told = f"Access to model {name} is restricted. You must have access to it."
                raise _Refusal(401, "GatedRepo", told)
            if not token.open_gates:
                told = "Please enable access to public gated repositories in your token settings"
                raise _Refusal(403, "", told)
            if token.account not in repository.accepted:
                told = f"Access to model {name} is restricted and you are not in the list."
                raise _Refusal(403, "GatedRepo", told)
        if path not in repository.files:
            raise _Refusal(404, "EntryNotFound", "Entry not found")
        return repository.files[path]


def _account(token: Token | None) -> str | None:
    return token.account if token else None


def _oid(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _objects(body: bytes) -> list[dict[str, Any]]:
    return json.loads(body)["objects"]


def _mode(path: str) -> dict[str, Any]:
    mode = "lfs" if path.endswith(".safetensors") else "regular"
    return {"path": path, "uploadMode": mode, "shouldIgnore": False, "oid": None}


def _validated(card: str) -> dict[str, Any]:
    """The Hub refuses a card whose base_model is no Hub id."""
    metadata = yaml.safe_load(card.split("---")[1]) if card.startswith("---") else {}
    base = metadata.get("base_model")
    if base is not None and (str(base).startswith("/") or str(base).count("/") > 1):
        raise _Refusal(400, "", f'"base_model" with value "{base}" is not valid')
    return {"warnings": [], "errors": []}
