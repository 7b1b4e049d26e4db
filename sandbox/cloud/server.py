"""One process for the small HTTP stand-ins: metadata server, Cloud Build, Artifact Registry.

`python -m sandbox.cloud.server FOLDER ADDRESS PORT STORAGE`: their paths do not overlap, so they
share one port.
"""

from __future__ import annotations

import json
import re
import sys
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from . import metadata
from .cloudbuild import CloudBuild, Refused
from .gcp.store import Store
from .registry import Registry

METADATA = "/computeMetadata/v1/"
BUILDS = re.compile(
    r"/v1/projects/(?P<project>[^/]+)(?:/locations/(?P<location>[^/]+))?/builds"
    r"(?:/(?P<id>[^/:]+))?(?::(?P<verb>\w+))?"
)


class Services:
    """What the requests are answered from."""

    def __init__(self, folder: Path, storage: str) -> None:
        self.store = Store(folder / "cloud")
        self.builds = CloudBuild(folder, storage)
        self.registry = Registry(folder)

    def api(self, method: str, path: str, query: dict[str, str], body: dict[str, Any]) -> Any:
        """The JSON answer of a Google API. Raises Refused."""
        if found := BUILDS.fullmatch(path):
            return self._builds(method, found, query, body)
        if path.startswith("/v1/projects/") and "/repositories/" in path and method == "GET":
            answer = self.registry.answer(path.removeprefix("/v1/"))
            if answer is not None:
                return answer
        raise Refused(404, "NOT_FOUND", "Requested entity was not found.")

    def _builds(
        self, method: str, found: re.Match[str], query: dict[str, str], body: dict[str, Any]
    ) -> Any:
        # The client sends the region of a build as `parent`, in the path or in the query.
        parent = query.get("parent", "").split("/")
        location = found["location"] or (parent[3] if len(parent) == 4 else "global")
        if method == "POST" and found["verb"] == "cancel":
            return self.builds.cancel(found["id"] or body["id"])
        if method == "POST":
            return self.builds.create(found["project"], location, body)
        if found["id"]:
            return self.builds.get(found["id"])
        return {"builds": self.builds.list()}


class Handler(BaseHTTPRequestHandler):
    """Routes by path; errors come in Google's JSON form."""

    services: Services
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._handle("GET")

    def do_POST(self) -> None:
        self._handle("POST")

    def _handle(self, method: str) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        raw = self.rfile.read(length)
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        if url.path == "/" or url.path.startswith(METADATA):
            found = metadata.answer(url.path.removeprefix(METADATA), query, self.services.store)
            self._send(200 if found else 404, *(found or ("", "text/plain")))
            return
        try:
            body = json.loads(raw) if raw else {}
            answer, code = self.services.api(method, url.path, query, body), 200
        except Refused as error:
            code = error.code
            answer = {"error": {"code": code, "message": str(error), "status": error.status}}
        self._send(code, json.dumps(answer), "application/json")

    def _send(self, code: int, text: str, type_: str) -> None:
        data = text.encode()
        self.send_response(code)
        self.send_header("Content-Type", type_)
        self.send_header("Metadata-Flavor", "Google")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        if not self.path.startswith(METADATA):
            super().log_message(format, *args)


def main() -> None:
    folder, address, port, storage = sys.argv[1:]
    Handler.services = Services(Path(folder), storage)
    ThreadingHTTPServer((address, int(port)), Handler).serve_forever()


if __name__ == "__main__":
    main()
