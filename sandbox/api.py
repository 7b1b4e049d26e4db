"""A small client of the Kubernetes API: JSON over one kept connection for each thread.

The official client takes two seconds to import, and the sandbox's start is measured in seconds.
"""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlencode

Json = dict[str, Any]

MERGE = "application/merge-patch+json"


class ApiError(RuntimeError):
    """An answer of the API server other than 2xx."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Api:
    """Requests to one API server with a bearer token."""

    def __init__(self, address: str, ca: Path, token: str) -> None:
        """`address` is HOST:PORT."""
        self.address = address
        self._context = ssl.create_default_context(cafile=str(ca))
        self._token = token
        self._local = threading.local()

    def _connect(self, timeout: float) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self.address, timeout=timeout, context=self._context)

    def request(
        self,
        method: str,
        path: str,
        body: bytes | Json | None = None,
        content: str = "application/json",
    ) -> Json:
        """One request; raises ApiError, or OSError when the server is not there."""
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": content}
        for attempt in (1, 2):
            kept = cast("http.client.HTTPSConnection | None", getattr(self._local, "kept", None))
            connection = kept or self._connect(timeout=30)
            try:
                connection.request(method, path, data, headers)
                response = connection.getresponse()
                text = response.read()
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                self._local.kept = None
                if kept is None or attempt == 2:  # a kept connection may have gone stale
                    raise OSError(f"{method} {path}: {error}") from error
                continue
            self._local.kept = connection
            break
        else:
            raise AssertionError
        if response.status >= 300:
            raise ApiError(response.status, _message(text))
        return json.loads(text) if text.startswith(b"{") else {"text": text.decode()}

    def get(self, path: str) -> Json:
        return self.request("GET", path)

    def find(self, path: str) -> Json | None:
        """Like `get`, None when it does not exist."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def create(self, path: str, body: Json) -> Json:
        return self.request("POST", path, body)

    def patch(self, path: str, body: Json) -> Json:
        """JSON merge patch: lists are replaced as a whole."""
        return self.request("PATCH", path, body, MERGE)

    def delete(self, path: str, body: Json | None = None) -> None:
        """Delete; what is already gone is no error."""
        try:
            self.request("DELETE", path, body)
        except ApiError as error:
            if error.status != 404:
                raise

    def watch(self, path: str, version: str, **query: str) -> Iterator[Json]:
        """Events after resource version `version` until the server closes the stream."""
        asked = {"watch": "1", "resourceVersion": version, "timeoutSeconds": "300", **query}
        connection = self._connect(timeout=330)
        try:
            connection.request(
                "GET",
                f"{path}?{urlencode(asked)}",
                headers={"Authorization": f"Bearer {self._token}"},
            )
            response = connection.getresponse()
            if response.status >= 300:
                raise ApiError(response.status, _message(response.read()))
            while line := response.readline():
                yield json.loads(line)
        finally:
            connection.close()

    def follow(
        self,
        path: str,
        stop: threading.Event,
        listed: Callable[[list[Json]], None],
        changed: Callable[[str, Json], None],
        **query: str,
    ) -> None:
        """List, then watch, for ever: what an informer does.

        `listed` gets all items each time the list is read anew, `changed` the type of an event
        (ADDED, MODIFIED, DELETED) and the object.
        """
        while not stop.is_set():
            try:
                answer = self.get(f"{path}?{urlencode(query)}" if query else path)
                listed(cast("list[Json]", answer.get("items") or []))
                version: str = answer["metadata"]["resourceVersion"]
                while not stop.is_set():
                    for event in self.watch(path, version, **query):
                        if event["type"] == "ERROR":
                            raise ApiError(event["object"].get("code", 500), "watch expired")
                        version = event["object"]["metadata"]["resourceVersion"]
                        if event["type"] != "BOOKMARK":
                            changed(event["type"], event["object"])
            except (TimeoutError, OSError, ApiError, ValueError, http.client.HTTPException):
                time.sleep(0.5)


def _message(text: bytes) -> str:
    try:
        return str(json.loads(text).get("message") or text.decode(errors="replace"))
    except (ValueError, AttributeError):
        return text.decode(errors="replace")[:500]
