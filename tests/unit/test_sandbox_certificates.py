"""The sandbox's certificates, as every supported Python checks them."""

from __future__ import annotations

import socket
import ssl
import threading
from pathlib import Path

from sandbox.certificates import SERVER_NAMES, make


def test_the_strictest_python_trusts_the_api_server(tmp_path: Path) -> None:
    make(tmp_path)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    client = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
    client.verify_flags |= ssl.VERIFY_X509_STRICT  # the default from Python 3.13 on
    ours, theirs = socket.socketpair()

    def serve() -> None:
        with server.wrap_socket(theirs, server_side=True) as accepted:
            accepted.sendall(b"ready")

    thread = threading.Thread(target=serve)
    thread.start()
    with client.wrap_socket(ours, server_hostname=SERVER_NAMES[0]) as trusted:
        assert trusted.recv(5) == b"ready"
    thread.join(10)
