"""Artifact Registry: which image has which tag, as its REST API v1 tells it."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .gcp.store import Store, write_atomically

REPOSITORY = "gcp:artifactregistry/repository:Repository"


class PushRefused(Exception):
    """The registry does not take the image; the message is the registry's."""


@dataclass(frozen=True)
class Image:
    """One tagged image. repository: projects/P/locations/L/repositories/R; digest: sha256:…"""

    repository: str
    package: str
    tag: str
    digest: str
    uploaded: str
    size: int

    @property
    def reference(self) -> str:
        _, project, _, location, _, name = self.repository.split("/")
        return f"{location}-docker.pkg.dev/{project}/{name}/{self.package}"


def split(reference: str) -> tuple[str, str, str]:
    """L-docker.pkg.dev/P/R/PACKAGE:TAG as repository, package, tag. Raises ValueError."""
    host, project, name, package = reference.split("/", 3)
    package, _, tag = package.partition(":")
    location = host.removesuffix("-docker.pkg.dev")
    if location == host:
        raise ValueError(f"{reference} is not in Artifact Registry")
    return f"projects/{project}/locations/{location}/repositories/{name}", package, tag or "latest"


class Registry:
    """The images of one sandbox, kept under `<sandbox>/cloud/registry`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = Store(folder / "cloud")

    def _path(self, repository: str, package: str, tag: str) -> Path:
        name = hashlib.sha256(f"{repository}/{package}:{tag}".encode()).hexdigest()[:20]
        return self.folder / "cloud" / "registry" / f"{name}.json"

    def list(self, repository: str, package: str = "") -> Iterator[Image]:
        for path in sorted((self.folder / "cloud" / "registry").glob("*.json")):
            image = Image(**json.loads(path.read_bytes()))
            if image.repository == repository and package in ("", image.package):
                yield image

    def find(self, repository: str, package: str, tag: str) -> Image | None:
        try:
            return Image(**json.loads(self._path(repository, package, tag).read_bytes()))
        except FileNotFoundError:
            return None

    def push(self, image: Image) -> None:
        """Raises PushRefused: no such repository, or the tag is another image's and immutable."""
        record = self.store.get(REPOSITORY, image.repository)
        if record is None and next(self.store.list(REPOSITORY), None) is not None:
            name = image.repository.rsplit("/", 1)[-1]
            raise PushRefused(f'name unknown: Repository "{name}" not found')
        if record is not None and (record.state.get("dockerConfig") or {}).get("immutableTags"):
            old = self.find(image.repository, image.package, image.tag)
            if old is not None and old.digest != image.digest:
                raise PushRefused(
                    f"manifest invalid: cannot update tag {image.tag}. The repository has enabled "
                    "tag immutability"
                )
        path = self._path(image.repository, image.package, image.tag)
        write_atomically(path, json.dumps(asdict(image)))

    def remove(self, repository: str) -> None:
        """All images of a repository that is being deleted, and what they hold."""
        gone = list(self.list(repository))
        for image in gone:
            self._path(image.repository, image.package, image.tag).unlink(missing_ok=True)
            folder = self.folder / "images" / image.digest.replace(":", "-")
            shutil.rmtree(folder, ignore_errors=True)

    def answer(self, path: str) -> dict[str, Any] | None:
        """GET of a v1 resource name; None where there is nothing of that name."""
        repository, _, rest = _split_path(path)
        if rest and rest[0] == "packages" and len(rest) == 4 and rest[2] == "tags":
            image = self.find(repository, rest[1].replace("%2F", "/"), rest[3])
            return None if image is None else _tag(image)
        if rest == ["dockerImages"]:
            images = sorted(self.list(repository), key=lambda image: image.uploaded, reverse=True)
            return {"dockerImages": [_docker_image(image) for image in images]}
        if rest and rest[0] == "dockerImages" and len(rest) == 2:
            for image in self.list(repository):
                if rest[1] == f"{image.package}@{image.digest}":
                    return _docker_image(image)
        return None


def _split_path(path: str) -> tuple[str, str, list[str]]:
    parts = path.split("/")
    return "/".join(parts[:6]), parts[5] if len(parts) > 5 else "", parts[6:]


def _tag(image: Image) -> dict[str, Any]:
    base = f"{image.repository}/packages/{image.package}"
    return {"name": f"{base}/tags/{image.tag}", "version": f"{base}/versions/{image.digest}"}


def _docker_image(image: Image) -> dict[str, Any]:
    return {
        "name": f"{image.repository}/dockerImages/{image.package}@{image.digest}",
        "uri": f"{image.reference}@{image.digest}",
        "tags": [image.tag],
        "imageSizeBytes": str(image.size),
        "uploadTime": image.uploaded,
        "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
    }
