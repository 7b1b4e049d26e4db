"""A Cloud Storage client of a few lines, for the emulator only.

Google's own client takes half a second to import, which each start of the plugin would pay.
"""

from __future__ import annotations

import http.client
import json
import urllib.parse
from typing import Any


class Objects:
    """Buckets and objects of the emulator at `address` (http://HOST:PORT).

    Raises OSError when it cannot be reached, RuntimeError with its answer when it refuses.
    """

    def __init__(self, address: str) -> None:
        self.host = urllib.parse.urlsplit(address).netloc or address

    def _call(self, method: str, path: str, body: bytes | None = None, type_: str = "") -> Any:
        status, data = self._send(method, path, body, type_)
        if status >= 400:
            raise RuntimeError(f"{method} {path}: {status} {data[:300].decode(errors='replace')}")
        return json.loads(data) if data.startswith(b"{") else data

    def _send(
        self, method: str, path: str, body: bytes | None, type_: str = ""
    ) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(self.host, timeout=60)
        try:
            headers = {"Content-Type": type_ or "application/json"}
            connection.request(method, path, body=body, headers=headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def bucket_exists(self, bucket: str) -> bool:
        status, _ = self._send("GET", f"/storage/v1/b/{bucket}", None)
        return status == 200

    def create_bucket(self, bucket: str, location: str) -> None:
        body = json.dumps({"name": bucket, "location": location}).encode()
        self._call("POST", "/storage/v1/b?project=sandbox", body)

    def delete_bucket(self, bucket: str, names: list[str]) -> None:
        for name in names:
            self.delete(bucket, name)
        status, data = self._send("DELETE", f"/storage/v1/b/{bucket}", None)
        if status >= 400 and status != 404:
            raise RuntimeError(f"deleting bucket {bucket}: {status} {data[:300]!r}")

    def list(self, bucket: str, prefix: str = "") -> list[str]:
        """The names of all objects; empty for a bucket that does not exist."""
        names: list[str] = []
        token = ""
        while True:
            query = urllib.parse.urlencode({"prefix": prefix, "pageToken": token})
            status, data = self._send("GET", f"/storage/v1/b/{bucket}/o?{query}", None)
            if status == 404:
                return names
            page: dict[str, Any] = json.loads(data)
            names += [item["name"] for item in page.get("items") or []]
            token = page.get("nextPageToken") or ""
            if not token:
                return names

    def upload(self, bucket: str, name: str, data: bytes, type_: str = "text/plain") -> None:
        query = urllib.parse.urlencode({"uploadType": "media", "name": name})
        self._call("POST", f"/upload/storage/v1/b/{bucket}/o?{query}", data, type_)

    def download(self, bucket: str, name: str) -> bytes | None:
        """The object's bytes, or None where there is no such object."""
        path = f"/storage/v1/b/{bucket}/o/{urllib.parse.quote(name, safe='')}?alt=media"
        status, data = self._send("GET", path, None)
        if status == 404:
            return None
        if status >= 400:
            raise RuntimeError(f"reading gs://{bucket}/{name}: {status} {data[:300]!r}")
        return data

    def delete(self, bucket: str, name: str) -> None:
        self._send("DELETE", f"/storage/v1/b/{bucket}/o/{urllib.parse.quote(name, safe='')}", None)
