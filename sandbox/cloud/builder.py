"""One build of the Cloud Build stand-in: fetch, unpack, go through the Dockerfile, push."""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import tarfile
import threading
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sandbox import images

from . import dockerfile
from .gcp.store import Store
from .objects import Objects
from .registry import Image, PushRefused, Registry, split

BUILD_ARG = "--build-arg="
STEP_FAILED = 'build step 0 "gcr.io/cloud-builders/docker" failed'
STEP_S = 0.04  # a log that grows: who follows it sees several states of it
# What a build does, with the roles that allow it.
READ = re.compile(r"roles/storage\.(objectViewer|objectUser|objectAdmin|admin)")
WRITE = re.compile(r"roles/storage\.(objectCreator|objectUser|objectAdmin|admin)")
FIND = re.compile(r"roles/storage\.(legacyBucket(Reader|Writer|Owner)|bucketViewer|admin)")
PUSH = re.compile(
    r"roles/artifactregistry\.(writer|repoAdmin|admin|createOnPush(Writer|RepoAdmin))"
)


class BuildFailed(Exception):
    """The build ends with FAILURE."""


class Cancelled(Exception):
    """Somebody cancelled the build."""


class Log:
    """The log object of a build, written anew as it grows (objects cannot be appended to)."""

    def __init__(self, objects: Objects, build: dict[str, Any]) -> None:
        bucket, _, folder = build["logsBucket"].removeprefix("gs://").partition("/")
        self.objects, self.bucket = objects, bucket
        self.name = f"{folder.rstrip('/')}/log-{build['id']}.txt".lstrip("/")
        self.text = ""

    def write(self, line: str) -> None:
        self.text += line + "\n"
        if self.bucket:
            self.objects.upload(self.bucket, self.name, self.text.encode())


class Builder:
    """Runs builds one at a time each in its thread; pushes into the sandbox's registry."""

    def __init__(self, folder: Path, storage: str, registry: Registry) -> None:
        self.folder, self.registry = folder, registry
        self.objects = Objects(storage)
        self.store = Store(folder / "cloud")

    def run(
        self, build: dict[str, Any], fault: dict[str, Any], stop: threading.Event
    ) -> list[dict[str, Any]]:
        """The images pushed, with digests. Raises BuildFailed, Cancelled or TimeoutError."""
        email = str(build.get("serviceAccount", "")).rsplit("/", 1)[-1]
        source = build["source"]["storageSource"]
        logs = build["logsBucket"].removeprefix("gs://").partition("/")[0]
        kind = "storage/bucketIAMMember:BucketIAMMember"
        if logs and not all(self._may(email, kind, logs, roles) for roles in (WRITE, FIND)):
            raise BuildFailed(
                f"the service account {email} does not have permission to write logs to {logs}"
            )
        log = Log(self.objects, build)
        deadline = time.monotonic() + float(str(build["timeout"]).rstrip("s"))
        log.write(f'starting build "{build["id"]}"\n\nFETCHSOURCE')
        try:
            if not self._may(email, kind, source["bucket"], READ):
                raise BuildFailed(
                    f"could not resolve source: googleapi: Error 403: {email} does not have "
                    "storage.objects.get access to the Google Cloud Storage object."
                )
            data = self.objects.download(source["bucket"], source["object"])
            if data is None:
                raise BuildFailed(
                    "could not resolve source: googleapi: Error 404: No such object: "
                    f"{source['bucket']}/{source['object']}"
                )
            log.write(f"Fetching storage object: gs://{source['bucket']}/{source['object']}")
            # After the word that Cloud Build writes here.
            log.write(
                "BUILD by the sandbox: its steps are played, pods run this machine's packages"
            )
            context, digest = self._unpack(data, build["steps"][0]["args"])
            self._build(context, log, fault, stop, deadline)
            pushed = [self._push(name, digest, len(data), email, log) for name in build["images"]]
        except BuildFailed as error:
            log.write(f"ERROR\nERROR: {error}")
            raise
        except TimeoutError:
            log.write("TIMEOUT\nERROR: context deadline exceeded")
            raise
        log.write("DONE")
        return pushed

    def _unpack(self, data: bytes, options: list[str]) -> tuple[Path, str]:
        given = [o.removeprefix(BUILD_ARG) for o in options if o.startswith(BUILD_ARG)]
        arguments = json.dumps(dict(pair.split("=", 1) for pair in sorted(given)))
        digest = hashlib.sha256(data + arguments.encode()).hexdigest()
        final = self.folder / "images" / f"sha256-{digest}"
        if not final.exists():
            partial = final.with_name(f".{final.name}.{uuid.uuid4().hex}")
            partial.mkdir(parents=True)
            with tarfile.open(fileobj=io.BytesIO(data)) as archive:
                archive.extractall(partial, filter="data")
            (partial / images.ARGUMENTS).write_text(arguments)
            try:
                partial.rename(final)
            except OSError:  # another build of the same context was faster
                shutil.rmtree(partial)
        return final, f"sha256:{digest}"

    def _build(
        self,
        context: Path,
        log: Log,
        fault: dict[str, Any],
        stop: threading.Event,
        deadline: float,
    ) -> None:
        try:
            text = (context / "Dockerfile").read_text()
        except FileNotFoundError:
            raise BuildFailed(
                "unable to prepare context: unable to evaluate symlinks in Dockerfile path: lstat "
                "/workspace/Dockerfile: no such file or directory"
            ) from None
        try:
            steps = dockerfile.parse(text)
            for number, step in enumerate(steps, 1):
                log.write(f"#{number} [{number}/{len(steps)}] {step}")  # as BuildKit prints it
                self._wait(STEP_S, stop, deadline)
                if number == (len(steps) + 1) // 2:
                    self._disturb(fault, stop, deadline, step)
                dockerfile.check(steps[:number], context)
        except dockerfile.DockerfileError as error:
            raise BuildFailed(f"{STEP_FAILED}: {error}") from None

    def _disturb(
        self, fault: dict[str, Any], stop: threading.Event, deadline: float, step: dockerfile.Step
    ) -> None:
        kind = fault.get("fault")
        if kind == "fail":
            message = fault.get("message", f"line {step.line}: {step}: returned a non-zero code: 1")
            raise BuildFailed(f"{STEP_FAILED}: {message}")
        if kind == "hang":
            self._wait(float("inf"), stop, deadline)
        if kind == "slow":
            self._wait(float(fault.get("seconds", 1)), stop, deadline)

    @staticmethod
    def _wait(seconds: float, stop: threading.Event, deadline: float) -> None:
        left = deadline - time.monotonic()
        if stop.wait(min(seconds, max(left, 0))):
            raise Cancelled
        if left < seconds:
            raise TimeoutError

    def _push(self, name: str, digest: str, size: int, email: str, log: Log) -> dict[str, Any]:
        log.write(f"PUSH\nPushing {name}")
        repository, package, tag = split(name)
        member = "artifactregistry/repositoryIamMember:RepositoryIamMember"
        if not self._may(email, member, repository, PUSH):
            raise BuildFailed(
                'denied: Permission "artifactregistry.repositories.uploadArtifacts" denied on '
                f'resource "{repository}"'
            )
        uploaded = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        try:
            self.registry.push(Image(repository, package, tag, digest, uploaded, size))
        except PushRefused as error:
            raise BuildFailed(str(error)) from None
        log.write(f"{tag}: digest: {digest} size: {size}")
        return {"name": name, "digest": digest}

    def _may(self, email: str, kind: str, resource: str, roles: re.Pattern[str]) -> bool:
        """Whether some role of the account, on the resource or its project, is one of these.

        An account that no program made is not held to anything.
        """
        accounts = self.store.list("gcp:serviceaccount/account:Account")
        if email not in {record.state["email"] for record in accounts}:
            return True
        member = f"serviceAccount:{email}"
        target = "bucket" if kind.startswith("storage") else "repository"
        for record in self.store.list(f"gcp:{kind}"):
            state = record.state
            on = str(state[target]).removeprefix("b/")
            if state["member"] == member and roles.fullmatch(state["role"]) and on == resource:
                return True
        return any(
            record.state["member"] == member and roles.fullmatch(record.state["role"])
            for record in self.store.list("gcp:projects/iAMMember:IAMMember")
        )
