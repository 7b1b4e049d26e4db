"""Copies folders to and from the sandbox's buckets: `python -m sandbox.bucket upload|download`.

Runs inside the sandbox. Plain requests to Cloud Storage's JSON API: Google's client takes longer
to import than the copies take.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlparse


class Bucket:
    """One bucket of the emulator that STORAGE_EMULATOR_HOST names."""

    def __init__(self, name: str) -> None:
        self.name = name
        address = urlparse(os.environ["STORAGE_EMULATOR_HOST"]).netloc
        self._connection = http.client.HTTPConnection(address, timeout=60)

    def _request(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        self._connection.request(method, path, body, {"Content-Type": "application/octet-stream"})
        response = self._connection.getresponse()
        return response.status, response.read()

    def create(self) -> None:
        """Make the bucket; one that exists is kept."""
        body = json.dumps({"name": self.name}).encode()
        status, text = self._request("POST", "/storage/v1/b?project=gemma-sandbox", body)
        if status not in (200, 409):
            raise OSError(f"bucket {self.name}: {status} {text.decode(errors='replace')}")

    def write(self, name: str, data: bytes) -> None:
        """Create or replace an object."""
        query = urlencode({"uploadType": "media", "name": name})
        status, text = self._request("POST", f"/upload/storage/v1/b/{self.name}/o?{query}", data)
        if status != 200:
            raise OSError(f"gs://{self.name}/{name}: {status} {text.decode(errors='replace')}")

    def read(self, name: str) -> bytes:
        """An object's content."""
        path = f"/storage/v1/b/{self.name}/o/{quote(name, safe='')}?alt=media"
        status, data = self._request("GET", path)
        if status != 200:
            raise FileNotFoundError(f"gs://{self.name}/{name}: {status}")
        return data

    def names(self, prefix: str) -> list[str]:
        """The objects below `prefix`."""
        found: list[str] = []
        token = ""
        while True:
            query = urlencode({"prefix": prefix, **({"pageToken": token} if token else {})})
            status, data = self._request("GET", f"/storage/v1/b/{self.name}/o?{query}")
            if status != 200:
                raise FileNotFoundError(f"gs://{self.name}: {status}")
            answer: dict[str, Any] = json.loads(data)
            found += [item["name"] for item in answer.get("items") or []]
            token = answer.get("nextPageToken") or ""
            if not token:
                return found


def split(uri: str) -> tuple[str, str]:
    """Bucket and path of `gs://BUCKET/PATH`; the path ends with a slash unless it is empty."""
    bucket, _, path = uri.removeprefix("gs://").partition("/")
    path = path.strip("/")
    return bucket, f"{path}/" if path else ""


def upload(folder: Path, uri: str) -> int:
    """Copy all files below `folder`; returns how many."""
    name, prefix = split(uri)
    bucket = Bucket(name)
    bucket.create()
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    for path in files:
        bucket.write(prefix + path.relative_to(folder).as_posix(), path.read_bytes())
    return len(files)


def download(uri: str, folder: Path, without: str = "") -> int:
    """Copy all objects below `uri` but those whose path there starts with `without`."""
    name, prefix = split(uri)
    bucket = Bucket(name)
    copied = 0
    for item in bucket.names(prefix):
        inner = item.removeprefix(prefix)
        if not inner or inner.endswith("/") or (without and inner.startswith(without)):
            continue
        target = folder / inner
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(bucket.read(item))
        copied += 1
    return copied


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["upload", source, uri]:
            upload(Path(source), uri)
        case ["download", uri, target]:
            download(uri, Path(target), without="checkpoints/")
        case _:
            sys.exit(__doc__)
