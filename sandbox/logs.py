"""Serves the logs of containers where the API server looks for a kubelet's: `kubectl logs`."""

from __future__ import annotations

import contextlib
import ssl
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlparse

from sandbox.certificates import ADDRESS
from sandbox.folder import Folder

if TYPE_CHECKING:
    from sandbox.node import Node

POLL = 0.2  # seconds between looks at a log that is followed
LOG_PORT = 10250


def serve_logs(folder: Folder, node: Node) -> None:
    """Answer GET /containerLogs/NAMESPACE/POD/CONTAINER in a thread.

    Of kubectl's options, --follow, --previous, --tail and --limit-bytes are honoured; lines carry
    no times, so --since and --timestamps are not.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlparse(self.path)
            parts = [unquote(part) for part in url.path.strip("/").split("/")]
            if len(parts) != 4 or parts[0] != "containerLogs":
                self.send_error(404)
                return
            options = {key: values[-1] for key, values in parse_qs(url.query).items()}
            worker = node.worker(parts[1], parts[2])
            file = worker and worker.log_file(parts[3], options.get("previous") == "true")
            if not worker or not file or not file.exists():
                self.send_error(404, "no log of this container")
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.end_headers()
            follow = options.get("follow") == "true"
            with contextlib.suppress(OSError):  # the reader has gone
                self._copy(file, options, lambda: follow and worker.is_running(parts[3]))

        def _copy(self, file: Path, options: dict[str, str], more: Callable[[], bool]) -> None:
            left = int(options.get("limitBytes", 1 << 62))
            with file.open("rb") as log:
                if "tailLines" in options:
                    log.seek(tail_offset(file, int(options["tailLines"])))
                while left > 0:
                    going = more()  # asked before reading, so that the last lines are not lost
                    data = log.read(min(left, 1 << 16))
                    if data:
                        self.wfile.write(data)
                        self.wfile.flush()
                        left -= len(data)
                    elif not going:
                        return
                    else:
                        time.sleep(POLL)

        def log_message(self, format: str, *args: object) -> None:
            """Requests are not logged."""

    server = ThreadingHTTPServer((ADDRESS, LOG_PORT), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder.pki / "server.crt", folder.pki / "server.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def tail_offset(file: Path, lines: int) -> int:
    """Where the last `lines` lines of a file begin, in bytes."""
    data = file.read_bytes()
    if lines <= 0:
        return len(data)
    position = len(data) - (1 if data.endswith(b"\n") else 0)
    for _ in range(lines):
        position = data.rfind(b"\n", 0, position)
        if position < 0:
            return 0
    return position + 1
