"""A run's folder, gs:// or local, by the same calls.

Objects in a bucket appear whole or not at all; local files get the same by a rename. Calls that
fail for a passing reason (503, a dropped connection) are tried again, with growing pauses.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

Result = TypeVar("Result")

ATTEMPTS = 6  # pauses of about 0.5, 1, 2, 4, 8 s
PERMANENT = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, ValueError)


class Folder:
    """A folder of a bucket (`gs://bucket/path`) or of this machine.

    Paths given to the methods are relative to it, with forward slashes.

    Args:
        uri: of the folder.
        dated: give each object of a bucket a custom time, by which the bucket's lifecycle rule
            deletes it some day; only what may be deleted gets one.
    """

    def __init__(self, uri: str | os.PathLike[str], *, dated: bool = False) -> None:
        self.uri = os.fspath(uri).rstrip("/")
        self.dated = dated
        self.remote = "://" in self.uri
        self._fs: Any = None

    def __repr__(self) -> str:
        return f"Folder({self.uri!r})"

    def __truediv__(self, path: str) -> Folder:
        return Folder(f"{self.uri}/{path}")

    def exists(self, path: str) -> bool:
        """Whether the object (not: the folder) exists."""
        if not self.remote:
            return self._local(path).is_file()
        try:  # not isfile(): it calls a refusal an absence
            found = _patiently(lambda: self._files().info(self._remote(path)))
        except FileNotFoundError:
            return False
        return found["type"] == "file"

    def read(self, path: str) -> bytes:
        """The bytes of an object. Raises FileNotFoundError where there is none."""
        if not self.remote:
            return self._local(path).read_bytes()
        return bytes(_patiently(lambda: self._files().cat_file(self._remote(path))))

    def write(self, path: str, content: bytes | str) -> None:
        """Write an object, whole or not at all."""
        data = content.encode() if isinstance(content, str) else content
        if not self.remote:
            target = self._local(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            # Threads of one process write the same object: a checkpoint's, and the Mirror's.
            own = f"{os.getpid()}-{threading.get_ident()}"
            temporary = target.with_name(f".writing-{own}-{target.name}")
            try:
                temporary.write_bytes(data)
                temporary.replace(target)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
        else:
            _patiently(lambda: self._files().pipe_file(self._remote(path), data, **self._extra()))

    def upload(self, source: str | os.PathLike[str], path: str) -> int:
        """Copy a local file, or a whole local folder, to `path`; return the bytes copied."""
        source = Path(source)
        if source.is_dir():
            files = sorted(p for p in source.rglob("*") if p.is_file())
            return sum(self.upload(p, f"{path}/{p.relative_to(source).as_posix()}") for p in files)
        if not self.remote:
            self.write(path, source.read_bytes())
        else:
            place = self._remote(path)
            _patiently(lambda: self._files().put_file(str(source), place, **self._extra()))
        return source.stat().st_size

    def download(self, path: str, target: str | os.PathLike[str]) -> None:
        """Copy an object, or all that lies below a folder, to the local path `target`."""
        target = Path(target)
        below = self.list(path)
        pairs = [(f"{path}/{name}" if path else name, target / name) for name in below]
        if not pairs:
            if not self.exists(path):
                raise FileNotFoundError(f"{self.uri}/{path}")
            pairs = [(path, target)]
        for source, place in pairs:
            place.parent.mkdir(parents=True, exist_ok=True)
            partial = place.with_name(place.name + ".partial")
            if not self.remote:
                partial.write_bytes(self._local(source).read_bytes())
            else:
                _patiently(
                    lambda s=source, p=partial: self._files().get_file(self._remote(s), str(p))
                )
            partial.replace(place)

    def list(self, path: str = "") -> dict[str, int]:
        """Sizes in bytes of everything below `path`, by path relative to it."""
        if not self.remote:
            base = self._local(path) if path else Path(self.uri)
            return {
                p.relative_to(base).as_posix(): p.stat().st_size
                for p in sorted(base.rglob("*"))
                if p.is_file() and not p.name.startswith(".writing-")
            }
        return {name: int(info["size"]) for name, info in self._objects(path).items()}

    def versions(self) -> dict[str, str]:
        """What tells an object of a bucket from an earlier one of the same path, by path."""
        names = ("generation", "etag", "mtime", "size")
        return {
            path: " ".join(str(info[name]) for name in names if name in info)
            for path, info in self._objects("").items()
        }

    def _objects(self, path: str) -> dict[str, Any]:
        prefix = self._remote(path).rstrip("/") + "/"

        def found() -> dict[str, Any]:
            self._files().invalidate_cache()
            return self._files().find(prefix, detail=True)

        try:
            objects = _patiently(found)
        except FileNotFoundError:  # not even the bucket is there
            return {}
        return {
            name[len(prefix) :]: info
            for name, info in sorted(objects.items())
            if name.startswith(prefix) and not name.endswith("/")
        }

    def delete(self, path: str) -> None:
        """Delete an object, or everything below a folder; nothing there is no error."""
        names = [f"{path}/{name}" for name in self.list(path)] or [path]
        # The last object written marks a folder complete (manifests): delete it first.
        for name in sorted(names, key=lambda n: not n.endswith("manifest.json")):
            try:
                if not self.remote:
                    self._local(name).unlink()
                else:
                    _patiently(lambda n=name: self._files().rm_file(self._remote(n)))
            except FileNotFoundError:
                continue
        if not self.remote:
            base = self._local(path)
            for below in sorted(base.rglob("*"), reverse=True) if base.is_dir() else []:
                below.rmdir()
            if base.is_dir():
                base.rmdir()

    def _local(self, path: str) -> Path:
        return Path(self.uri) / path

    def _remote(self, path: str) -> str:
        bare = self.uri.split("://", 1)[1]
        return f"{bare}/{path}" if path else bare

    def _extra(self) -> dict[str, Any]:
        if not (self.dated and self.uri.startswith("gs://")):
            return {}
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return {"fixed_key_metadata": {"custom_time": now}}

    def _files(self) -> Any:
        if self._fs is None:
            import fsspec

            protocol = self.uri.split("://", 1)[0]
            # Another pod writes here too: a cached listing would hide its objects.
            self._fs = fsspec.filesystem(protocol, use_listings_cache=False)
        return self._fs


def _patiently(call: Callable[[], Result]) -> Result:
    for attempt in range(ATTEMPTS):
        try:
            return call()
        except PERMANENT:
            raise
        except Exception:
            if attempt == ATTEMPTS - 1:
                raise
            time.sleep(0.5 * 2**attempt * random.uniform(0.8, 1.2))
    raise AssertionError("unreachable")
