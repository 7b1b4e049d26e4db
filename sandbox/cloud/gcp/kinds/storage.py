"""Cloud Storage: buckets and objects, which also come into being in the emulator."""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from pathlib import Path
from typing import Any, cast

from sandbox.cloud.gcp.errors import CloudError, bad_request
from sandbox.cloud.gcp.store import Record, Values
from sandbox.cloud.gcp.world import World
from sandbox.cloud.objects import Objects

from .base import Kind, must_exist, now

BUCKET = "gcp:storage/bucket:Bucket"
API = "https://www.googleapis.com/storage/v1/b/"
CLASSES = ("STANDARD", "NEARLINE", "COLDLINE", "ARCHIVE", "MULTI_REGIONAL", "REGIONAL")


class Bucket(Kind):
    token = BUCKET
    service = "storage.googleapis.com"
    updated = frozenset({"rpo", "storageClass"})

    def identity(self, inputs: Values, world: World) -> str:
        return str(inputs["name"])

    def taken(self, record: Record | None, inputs: Values, world: World) -> None:
        exists = world.storage and Objects(world.storage).bucket_exists(inputs["name"])
        if record is not None or exists:
            raise CloudError(
                "googleapi: Error 409: Your previous request to create the named bucket succeeded "
                "and you already own it., conflict"
            )

    def accept(self, inputs: Values, world: World) -> None:
        name = inputs["name"]
        if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]", name) or name.startswith("goog"):
            raise CloudError(f"googleapi: Error 400: Invalid bucket name: '{name}', invalid")
        if inputs.get("storageClass", "STANDARD") not in CLASSES:
            raise CloudError(
                f"googleapi: Error 400: Invalid storage class {inputs['storageClass']}., invalid"
            )
        if inputs.get("publicAccessPrevention", "inherited") not in ("inherited", "enforced"):
            raise CloudError(
                "googleapi: Error 400: Invalid value for iamConfiguration.publicAccessPrevention: "
                f"{inputs['publicAccessPrevention']}, invalid"
            )
        self.check_labels(inputs)

    def computed(self, inputs: Values, world: World, id_: str) -> Values:
        retention = inputs.get("softDeletePolicy", {}).get("retentionDurationSeconds", 604800)
        return {
            "location": str(inputs["location"]).upper(),
            "projectNumber": int(world.number(world.of(inputs))),
            "selfLink": API + id_,
            "softDeletePolicy": {"effectiveTime": now(), "retentionDurationSeconds": retention},
            "url": f"gs://{id_}",
        }

    def generated(self, inputs: Values, world: World, id_: str) -> Values:
        return {
            "hierarchicalNamespace": {"enabled": False},
            "publicAccessPrevention": "inherited",
            "timeCreated": now(),
            "uniformBucketLevelAccess": False,
            "updated": now(),
        }

    def same(self, path: str, old: Any, new: Any) -> bool:
        if path == "location":
            return str(old).upper() == str(new).upper()
        return super().same(path, old, new)

    def created(self, record: Record, world: World) -> None:
        if world.storage:
            Objects(world.storage).create_bucket(record.id, record.state["location"])

    def deleting(self, record: Record, world: World) -> None:
        if not world.storage:
            return
        objects = Objects(world.storage)
        names = objects.list(record.id)
        if names and not record.state.get("forceDestroy"):
            raise CloudError(
                f"Error trying to delete bucket {record.id} without `force_destroy` set to true"
            )
        objects.delete_bucket(record.id, names)


class BucketObject(Kind):
    token = "gcp:storage/bucketObject:BucketObject"
    service = "storage.googleapis.com"
    updated = frozenset({"content", "source"})

    def identity(self, inputs: Values, world: World) -> str:
        return f"{inputs['bucket']}-{inputs['name']}"

    def taken(self, record: Record | None, inputs: Values, world: World) -> None:
        pass  # an upload replaces what is there

    def accept(self, inputs: Values, world: World) -> None:
        must_exist(world, BUCKET, inputs["bucket"], "The specified bucket does not exist.")

    def computed(self, inputs: Values, world: World, id_: str) -> Values:
        data = content(inputs)
        md5 = hashlib.md5(data, usedforsecurity=False)
        path = f"{API}{inputs['bucket']}/o/{inputs['name'].replace('/', '%2F')}"
        return {
            "crc32c": base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode(),
            "md5hash": base64.b64encode(md5.digest()).decode(),
            "md5hexhash": md5.hexdigest(),
            "mediaLink": path.replace("/storage/v1/b", "/download/storage/v1/b") + "?alt=media",
            "outputName": inputs["name"],
            "selfLink": path,
        }

    def generated(self, inputs: Values, world: World, id_: str) -> Values:
        return {"contentType": "text/plain; charset=utf-8", "storageClass": "STANDARD"}

    def created(self, record: Record, world: World) -> None:
        self.changed(record, world)

    def changed(self, record: Record, world: World) -> None:
        if world.storage:
            inputs = record.inputs
            Objects(world.storage).upload(inputs["bucket"], inputs["name"], content(inputs))

    def deleting(self, record: Record, world: World) -> None:
        if world.storage:
            Objects(world.storage).delete(record.inputs["bucket"], record.inputs["name"])


def content(inputs: Values) -> bytes:
    """The bytes of an object: given as text, as a string asset or as a file."""
    source = inputs.get("source")
    if isinstance(source, dict):
        asset = cast(Values, source)
        if "__asset_path" in asset:
            return Path(asset["__asset_path"]).read_bytes()
        return str(asset["__asset"]).encode()
    if isinstance(source, str):
        return Path(source).read_bytes()
    if inputs.get("content") is None:
        raise bad_request("an object needs content or source")
    return str(inputs["content"]).encode()
