"""Cloud Build: takes a build, works on it in the background, tells how it goes.

A build unpacks its source and goes through the Dockerfile as a builder would, up to running the
commands: the sandbox's pods take their packages from the project's virtual environment. What it
"pushes" is the unpacked context, as `<sandbox>/images/sha256-<digest>`.
"""

from __future__ import annotations

import json
import threading
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .builder import Builder, BuildFailed, Cancelled
from .gcp.errors import api_disabled
from .gcp.store import Store, write_atomically
from .gcp.world import World
from .registry import Registry

Build = dict[str, Any]
DONE = frozenset({"SUCCESS", "FAILURE", "INTERNAL_ERROR", "TIMEOUT", "CANCELLED"})


class Refused(Exception):
    """An API error: HTTP status, Google's status name and the message."""

    def __init__(self, code: int, status: str, message: str) -> None:
        super().__init__(message)
        self.code, self.status = code, status


class CloudBuild:
    """The builds of one sandbox, kept under `<sandbox>/cloud/builds`.

    `<sandbox>/cloud/build-faults.json` makes builds go wrong: a list of {"fault": ..., "times": 1,
    "message": ..., "seconds": ...}, each used for that many builds. fault: fail (in the middle,
    with the message), hang (until it is cancelled or its timeout), slow (for `seconds` more),
    permission and quota (refused when it is created).
    """

    def __init__(self, folder: Path, storage: str) -> None:
        self.folder = folder
        self.store = Store(folder / "cloud")
        self.world = World(folder=folder / "cloud", storage=storage)
        self.builder = Builder(folder, storage, Registry(folder))
        self.lock = threading.Lock()
        self.cancelled: dict[str, threading.Event] = {}
        for path in (folder / "cloud" / "builds").glob("*.json"):
            build = json.loads(path.read_bytes())
            if build["status"] not in DONE:
                self._save(build | {"status": "INTERNAL_ERROR", "finishTime": now()})

    def create(self, project: str, location: str, build: Build) -> Build:
        """Queues a build; the answer is an operation that holds it. Raises Refused."""
        number = self.world.number(project)
        enabled = self.world.services(project)
        if enabled is not None and "cloudbuild.googleapis.com" not in enabled:
            error = str(api_disabled("cloudbuild.googleapis.com", project, number))
            raise Refused(403, "PERMISSION_DENIED", error.removeprefix("googleapi: Error 403: "))
        fault = self._fault()
        if fault.get("fault") == "permission":
            message = fault.get("message", "The caller does not have permission")
            raise Refused(403, "PERMISSION_DENIED", message)
        if fault.get("fault") == "quota":
            message = fault.get("message", "Quota exceeded for concurrent builds in this region")
            raise Refused(429, "RESOURCE_EXHAUSTED", message)
        self._check(build)
        id_ = str(uuid.uuid4())
        bucket = str(build.get("logsBucket", "")).removeprefix("gs://")
        page = f"https://console.cloud.google.com/cloud-build/builds;region={location}/{id_}"
        build |= {
            "id": id_,
            "name": f"projects/{project}/locations/{location}/builds/{id_}",
            "projectId": project,
            "status": "QUEUED",
            "createTime": now(),
            "timeout": build.get("timeout", "3600s"),
            "logUrl": f"{page}?project={number}",
            "logsBucket": f"gs://{bucket}",
        }
        self._save(build)
        self.cancelled[id_] = threading.Event()
        threading.Thread(target=self._work, args=(build, fault), daemon=True).start()
        metadata = {
            "@type": "type.googleapis.com/google.devtools.cloudbuild.v1.BuildOperationMetadata",
            "build": build,
        }
        return {"name": f"operations/build/{project}/{id_}", "metadata": metadata, "done": False}

    def get(self, id_: str) -> Build:
        try:
            return json.loads((self.folder / "cloud" / "builds" / f"{id_}.json").read_bytes())
        except FileNotFoundError:
            raise Refused(404, "NOT_FOUND", "Requested entity was not found.") from None

    def list(self) -> list[Build]:
        paths = (self.folder / "cloud" / "builds").glob("*.json")
        builds = [json.loads(path.read_bytes()) for path in paths]
        return sorted(builds, key=lambda build: build["createTime"], reverse=True)

    def cancel(self, id_: str) -> Build:
        with self.lock:
            build = self.get(id_)
            if build["status"] not in DONE:
                build |= {"status": "CANCELLED", "finishTime": now()}
                self._save(build)
                self.cancelled.setdefault(id_, threading.Event()).set()
            return build

    def _check(self, build: Build) -> None:
        if not build.get("steps"):
            raise Refused(400, "INVALID_ARGUMENT", "invalid build: no build steps")
        logging = (build.get("options") or {}).get("logging", "")
        if account := build.get("serviceAccount"):
            if not build.get("logsBucket") and logging not in ("CLOUD_LOGGING_ONLY", "NONE"):
                raise Refused(
                    400,
                    "INVALID_ARGUMENT",
                    "if 'build.service_account' is specified, the build must either (a) specify "
                    "'build.logs_bucket', (b) use the REGIONAL_USER_OWNED_BUCKET "
                    "build.options.default_logs_bucket_behavior option, or (c) use either "
                    "CLOUD_LOGGING_ONLY / NONE logging options",
                )
            email = account.rsplit("/", 1)[-1]
            if not self.world.account_exists(f"serviceAccount:{email}"):
                raise Refused(404, "NOT_FOUND", f"Service account {email} does not exist.")

    def _work(self, build: Build, fault: dict[str, Any]) -> None:
        stop = self.cancelled[build["id"]]
        self._change(build["id"], {"status": "WORKING", "startTime": now()})
        try:
            outcome = self.builder.run(build, fault, stop)
            end: Build = {"status": "SUCCESS", "results": {"images": outcome}}
        except Cancelled:
            return
        except TimeoutError:
            end = {"status": "TIMEOUT", "statusDetail": "build timed out"}
        except BuildFailed as error:
            end = {"status": "FAILURE", "statusDetail": str(error)}
            end["failureInfo"] = {"type": "USER_BUILD_STEP", "detail": str(error)}
        except Exception as error:
            end = {"status": "INTERNAL_ERROR", "statusDetail": repr(error)}
        self._change(build["id"], {**end, "finishTime": now()})

    def _change(self, id_: str, values: Build) -> None:
        with self.lock:
            build = self.get(id_)
            if build["status"] not in DONE:
                self._save(build | values)

    def _save(self, build: Build) -> None:
        path = self.folder / "cloud" / "builds" / f"{build['id']}.json"
        write_atomically(path, json.dumps(build, indent=1))

    def _fault(self) -> dict[str, Any]:
        path = self.folder / "cloud" / "build-faults.json"
        with self.lock:
            try:
                faults: list[dict[str, Any]] = json.loads(path.read_bytes())
            except FileNotFoundError:
                return {}
            for fault in faults:
                if fault.setdefault("times", 1) > 0:
                    fault["times"] -= 1
                    write_atomically(path, json.dumps(faults))
                    return fault
        return {}


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
