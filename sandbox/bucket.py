"""Copies folders to and from the sandbox's buckets: `python -m sandbox.bucket upload|download`.

Runs inside the sandbox, and finds the emulator by STORAGE_EMULATOR_HOST.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from sandbox.cloud.objects import Objects


def split(uri: str) -> tuple[str, str]:
    """Bucket and path of `gs://BUCKET/PATH`; the path ends with a slash unless it is empty."""
    bucket, _, path = uri.removeprefix("gs://").partition("/")
    path = path.strip("/")
    return bucket, f"{path}/" if path else ""


def upload(folder: Path, uri: str) -> int:
    """Copy all files below `folder` to a bucket, which is made if absent; returns how many."""
    bucket, prefix = split(uri)
    objects = _objects()
    if not objects.bucket_exists(bucket):
        objects.create_bucket(bucket, "US")
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    for path in files:
        name = prefix + path.relative_to(folder).as_posix()
        objects.upload(bucket, name, path.read_bytes(), "application/octet-stream")
    return len(files)


def download(uri: str, folder: Path, without: str = "") -> int:
    """Copy all objects below `uri` but those whose path there starts with `without`.

    Raises FileNotFoundError where there is no such bucket, or an object has gone meanwhile.
    """
    bucket, prefix = split(uri)
    objects = _objects()
    if not objects.bucket_exists(bucket):
        raise FileNotFoundError(f"gs://{bucket}")
    copied = 0
    for name in objects.list(bucket, prefix):
        inner = name.removeprefix(prefix)
        if not inner or inner.endswith("/") or (without and inner.startswith(without)):
            continue
        data = objects.download(bucket, name)
        if data is None:
            raise FileNotFoundError(f"gs://{bucket}/{name}")
        target = folder / inner
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        copied += 1
    return copied


def _objects() -> Objects:
    return Objects(os.environ["STORAGE_EMULATOR_HOST"])


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["upload", source, uri]:
            upload(Path(source), uri)
        case ["download", uri, target]:
            download(uri, Path(target), without="checkpoints/")
        case _:
            sys.exit(__doc__)
