"""Builds an image with Cloud Build while the user watches, unless the registry has it already.

Google's own clients do the work. They find another endpoint by the variables that the Pulumi
provider of Google Cloud honours too: GOOGLE_CLOUD_BUILD_CUSTOM_ENDPOINT,
GOOGLE_ARTIFACT_REGISTRY_CUSTOM_ENDPOINT (a private endpoint, for example), STORAGE_EMULATOR_HOST.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from google.api_core import exceptions
from google.cloud import artifactregistry_v1, storage  # pyright: ignore[reportMissingTypeStubs]
from google.cloud.devtools import cloudbuild_v1
from google.protobuf import duration_pb2

from infra.image_context import Context

# Google's clients (and their arguments) carry no complete types: they are Any at this boundary.
PACKAGE = "trainer"
BUILDER = "gcr.io/cloud-builders/docker"
DISK_GB = 200  # CUDA, torch and their build cache
POLL_S = (0.2, 0.5, 1.0, 2.0)  # the last one again and again
LAST_LINES = 20
HEARTBEAT_S = 15.0
# Of the thousands of lines that pip and the builder write, those that tell how far the build is.
MILESTONE = re.compile(r"^(?:(?:Step #\d+: )?#\d+ \[|FETCHSOURCE|BUILD|PUSH|ERROR)")


class BuildFailed(Exception):
    """The image was not built; the message ends with the log's last lines and its link."""


@dataclass(frozen=True)
class BuildRequest:
    """What to build and where it goes.

    Attributes:
        project, region: of the registry and the build.
        repository: id of the Docker repository.
        tag: of the image, from its content.
        bucket: takes the context tarball (`contexts/`) and the build log (`logs/`).
        service_account: email of the account that the build runs as.
        machine_type: of the build, such as E2_HIGHCPU_8.
        timeout_s: the build's time limit, in seconds.
    """

    project: str
    region: str
    repository: str
    tag: str
    bucket: str
    service_account: str
    machine_type: str
    timeout_s: int

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> BuildRequest:
        """From a mapping that may hold more; the engine's numbers are floats."""
        fields: dict[str, Any] = {name: values[name] for name in cls.__dataclass_fields__}
        fields["timeout_s"] = int(fields["timeout_s"])
        return cls(**fields)

    @property
    def image(self) -> str:
        host = f"{self.region}-docker.pkg.dev"
        project = self.project.replace(":", "/")  # a domain's: example.com:my-project
        return f"{host}/{project}/{self.repository}/{PACKAGE}"

    @property
    def repository_name(self) -> str:
        location = f"projects/{self.project}/locations/{self.region}"
        return f"{location}/repositories/{self.repository}"


Progress = Callable[[str], None]
Interrupted = Callable[[], bool]


def find_digest(request: BuildRequest) -> str | None:
    """The digest (sha256:…) of the image that has the tag; None where there is none.

    Raises google.api_core's errors where Google refuses the call.
    """
    name = f"{request.repository_name}/packages/{PACKAGE}/tags/{request.tag}"
    try:
        version: str = _registry().get_tag(name=name).version
    except exceptions.NotFound:
        return None
    return version.rsplit("/", 1)[-1]


def latest_image(request: BuildRequest) -> str | None:
    """The newest image of the repository, whose layers the next build may take over."""
    try:
        images: list[Any] = list(_registry().list_docker_images(parent=request.repository_name))
    except exceptions.GoogleAPICallError:
        return None  # only costs time
    uris = [
        (image.upload_time.timestamp(), str(image.uri))
        for image in images
        if image.uri.startswith(request.image + "@")
    ]
    return max(uris)[1] if uris else None


def _registry() -> Any:
    return artifactregistry_v1.ArtifactRegistryClient(
        transport="rest", client_options=endpoint("GOOGLE_ARTIFACT_REGISTRY_CUSTOM_ENDPOINT")
    )


def build(
    request: BuildRequest, context: Context, progress: Progress, interrupted: Interrupted
) -> str:
    """Uploads the context, builds the image, returns its digest.

    progress gets lines for the user. interrupted is asked between polls: once true, the build is
    cancelled. Raises BuildFailed, or google.api_core's errors where Google refuses a call.
    """
    storage_client: Any = storage.Client(project=request.project)
    bucket = storage_client.bucket(request.bucket)
    source = f"contexts/{context.sha256}.tar.gz"
    # Addressed by content: what is there already is the same.
    with contextlib.suppress(exceptions.PreconditionFailed):
        bucket.blob(source).upload_from_string(
            context.tarball, content_type="application/gzip", if_generation_match=0
        )
    client: Any = cloudbuild_v1.CloudBuildClient(
        transport="rest", client_options=endpoint("GOOGLE_CLOUD_BUILD_CUSTOM_ENDPOINT")
    )
    operation: Any = client.create_build(
        parent=f"projects/{request.project}/locations/{request.region}",
        project_id=request.project,
        build=_definition(request, source, context.commit, latest_image(request)),
    )
    build_id = operation.metadata.build.id
    name = f"projects/{request.project}/locations/{request.region}/builds/{build_id}"
    log = _Log(bucket, f"logs/log-{build_id}.txt", progress)
    progress(f"image {request.tag}: build started, {operation.metadata.build.log_url}")
    result = _follow(client, name, log, interrupted, request.timeout_s)
    if result.status != cloudbuild_v1.Build.Status.SUCCESS:
        raise BuildFailed(_failure(result, log.last))
    digest = next(image.digest for image in result.results.images)
    progress(f"image {request.tag}: built, {digest}")
    return digest


def _definition(
    request: BuildRequest, source: str, commit: str, cache: str | None
) -> cloudbuild_v1.Build:
    """The build. BuildKit keeps its cache inside the images (inline), since tags cannot move."""
    image = f"{request.image}:{request.tag}"
    arguments = ["build", "--progress=plain", "--build-arg=BUILDKIT_INLINE_CACHE=1"]
    arguments += [f"--build-arg=GIT_COMMIT={commit}"] if commit else []
    arguments += [f"--cache-from={cache}"] if cache else []
    account = f"projects/{request.project}/serviceAccounts/{request.service_account}"
    return cloudbuild_v1.Build(
        source=cloudbuild_v1.Source(
            storage_source=cloudbuild_v1.StorageSource(bucket=request.bucket, object_=source)
        ),
        steps=[
            cloudbuild_v1.BuildStep(
                name=BUILDER, args=[*arguments, f"--tag={image}", "."], env=["DOCKER_BUILDKIT=1"]
            )
        ],
        images=[image],
        timeout=duration_pb2.Duration(seconds=request.timeout_s),
        service_account=account,
        # Cloud Build asks for its own bucket or none as soon as the account is ours.
        logs_bucket=f"gs://{request.bucket}/logs",
        options=cloudbuild_v1.BuildOptions(
            logging=cloudbuild_v1.BuildOptions.LoggingMode.GCS_ONLY,
            machine_type=cloudbuild_v1.BuildOptions.MachineType[request.machine_type],
            disk_size_gb=DISK_GB,
        ),
        tags=["gemma", request.tag],
    )


def _follow(
    client: Any, name: str, log: _Log, interrupted: Interrupted, timeout_s: int
) -> cloudbuild_v1.Build:
    states = cloudbuild_v1.Build.Status
    waits = list(POLL_S)
    # Google ends the build at its limit; ours only ends waiting for an answer that never comes.
    deadline = time.monotonic() + timeout_s + 300
    while True:
        found: cloudbuild_v1.Build = client.get_build(
            request=cloudbuild_v1.GetBuildRequest(name=name)
        )
        log.read()
        if found.status not in (states.QUEUED, states.WORKING, states.PENDING):
            return found
        if interrupted() or time.monotonic() > deadline:
            client.cancel_build(request=cloudbuild_v1.CancelBuildRequest(name=name))
            raise BuildFailed(f"the build was cancelled, {found.log_url}")
        time.sleep(waits[0])
        if len(waits) > 1:
            waits.pop(0)


def _failure(result: cloudbuild_v1.Build, lines: list[str]) -> str:
    state = result.status.name.lower().replace("_", " ")
    detail = result.status_detail or (result.failure_info.detail if result.failure_info else "")
    return "\n".join(
        [
            f"the image build ended with {state}: {detail}",
            "the end of its log:",
            *(f"    {line}" for line in lines or ["(no log)"]),
            f"all of it: {result.log_url}",
        ]
    )


class _Log:
    """A build's log object, which grows: read from where the last look ended."""

    def __init__(self, bucket: Any, name: str, progress: Progress) -> None:
        self._bucket, self._name, self._progress = bucket, name, progress
        self._offset = 0
        self._rest = ""
        self._said = time.monotonic()
        self.last: list[str] = []

    def read(self) -> None:
        """Takes in what is new and tells the user. A log that cannot be read is skipped."""
        try:
            # A new blob each time: one that was read sticks to the generation that it saw.
            data: bytes = self._bucket.blob(self._name).download_as_bytes(start=self._offset)
        except (exceptions.NotFound, exceptions.RequestRangeNotSatisfiable, exceptions.Forbidden):
            return
        self._offset += len(data)
        *lines, self._rest = (self._rest + data.decode(errors="replace")).split("\n")
        for line in lines:
            self._line(line)

    def _line(self, line: str) -> None:
        if not line.strip():
            return
        self.last = [*self.last, line][-LAST_LINES:]
        now = time.monotonic()
        if MILESTONE.match(line) or now - self._said > HEARTBEAT_S:
            self._said = now
            self._progress(line)


def endpoint(variable: str) -> dict[str, str] | None:
    """Client options for another endpoint, if the environment names one."""
    address = os.environ.get(variable)
    if not address:
        return None
    parts = urlsplit(address)
    return {"api_endpoint": f"{parts.scheme}://{parts.netloc}"}
