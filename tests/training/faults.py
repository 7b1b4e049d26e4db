"""A bucket whose requests can be counted, refused, cut short, or made the last ones of a process.

A proxy in front of fake-gcs-server: what is disturbed are the requests that gcsfs really sends.
"""

from __future__ import annotations

import contextlib
import http.client
import shutil
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote

import pytest

import tools
from tests.ports import free_port

BINARY = shutil.which("fake-gcs-server", path=str(tools.bin_dir())) or shutil.which(
    "fake-gcs-server"
)
needs_bucket = pytest.mark.skipif(BINARY is None, reason="fake-gcs-server is absent: `make tools`")

PASS, REFUSE, CUT = "pass", "refuse", "cut"


class FaultyBucket:
    """`gs://bucket` on a server of its own, behind a proxy.

    Attributes:
        seen: "METHOD path" of each request since `watch`.
        before: called with the request's number before it is passed on; says what to do with it:
            pass it, refuse it with `status`, or cut its answer in the middle.
        after: called with its number when the bucket has done it, before the answer is given.
        status: of a refusal.
    """

    def __init__(self) -> None:
        self.status = 503
        self._lock = threading.Lock()
        self.watch()

    def watch(
        self,
        before: Callable[[int], str] = lambda number: PASS,
        after: Callable[[int], None] = lambda number: None,
    ) -> None:
        """Count from 0 again, with these hooks."""
        with self._lock:
            self.seen: list[str] = []
            self.before, self.after = before, after

    def __enter__(self) -> FaultyBucket:
        self.server_port = free_port()
        self._proxy = ThreadingHTTPServer(("127.0.0.1", 0), type("_", (_Proxy,), {"bucket": self}))
        self._proxy.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._proxy.server_port}"
        command = [str(BINARY), "-scheme", "http", "-backend", "memory"]
        command += ["-port", str(self.server_port), "-external-url", self.address]
        command += ["-public-host", self.address.removeprefix("http://")]
        self._server = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        threading.Thread(target=self._proxy.serve_forever, args=(0.01,), daemon=True).start()
        self._make("bucket")
        return self

    def __exit__(self, *_: object) -> None:
        self._proxy.shutdown()
        self._proxy.server_close()
        self._server.kill()
        self._server.wait()

    def use(self, patch: pytest.MonkeyPatch) -> None:
        """Let this process's gcsfs, and its children's, come here."""
        patch.setenv("STORAGE_EMULATOR_HOST", self.address)
        # Else gcsfs first asks by gRPC what kind of bucket it is, and waits a minute.
        patch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")

    def holds(self, path: str) -> bool:
        """Whether the object exists, asked of the server itself."""
        address = (
            f"http://127.0.0.1:{self.server_port}/storage/v1/b/bucket/o/{quote(path, safe='')}"
        )
        try:
            urllib.request.urlopen(address).close()
        except urllib.error.HTTPError:
            return False
        return True

    def _make(self, name: str) -> None:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.server_port}/storage/v1/b",
            f'{{"name": "{name}"}}'.encode(),
            {"Content-Type": "application/json"},
        )
        deadline = time.monotonic() + 120
        while True:
            try:
                urllib.request.urlopen(request).close()
            except (urllib.error.URLError, ConnectionError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
            else:
                return


class _Proxy(BaseHTTPRequestHandler):
    bucket: FaultyBucket

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        bucket = self.bucket
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with bucket._lock:
            number = len(bucket.seen)
            bucket.seen.append(f"{self.command} {self.path}")
            before, after = bucket.before, bucket.after
        verdict = before(number)
        if verdict == REFUSE:
            self._send(bucket.status, [], b"no")
            return
        upstream = http.client.HTTPConnection("127.0.0.1", bucket.server_port)
        headers = {k: v for k, v in self.headers.items() if k.lower() != "transfer-encoding"}
        upstream.request(self.command, self.path, body, headers)
        answer = upstream.getresponse()
        content = answer.read()
        upstream.close()
        after(number)
        self._send(answer.status, answer.getheaders(), content, cut=verdict == CUT)

    do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = do_GET

    def _send(
        self, status: int, headers: list[tuple[str, str]], content: bytes, *, cut: bool = False
    ) -> None:
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        with contextlib.suppress(OSError):  # who asked has been killed
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content[: len(content) // 2] if cut else content)
