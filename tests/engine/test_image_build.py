"""Building the image against the stand-ins of Cloud Build, Artifact Registry and Cloud Storage.

Google's own clients talk to them, in this process; no engine takes part but in the last tests.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import tools
from infra import image_build
from infra.image import ImageProvider
from infra.image_build import BuildFailed, BuildRequest
from infra.image_context import Context, build_context
from sandbox import cloud, images
from sandbox.cloud.gcp.store import Record, Store
from sandbox.cloud.registry import Registry
from sandbox.folder import Folder
from sandbox.processes import Supervisor
from tests.ports import free_port

REQUEST = BuildRequest(
    project="proj-images",
    region="us-central1",
    repository="gemma",
    tag="",
    bucket="proj-images-builds",
    service_account="gemma-build@proj-images.iam.gserviceaccount.com",
    machine_type="E2_HIGHCPU_8",
    timeout_s=600,
)


def member(kind: str, role: str, **resource: str) -> Record:
    """A role of the build's account, as the stand-in Google holds it."""
    state = {"member": f"serviceAccount:{REQUEST.service_account}", "role": role, **resource}
    return Record(f"gcp:{kind}", "/".join(state.values()), "", {}, dict(state))


def on_bucket(role: str) -> Record:
    return member("storage/bucketIAMMember:BucketIAMMember", role, bucket=f"b/{REQUEST.bucket}")


ACCOUNT = Record(
    type="gcp:serviceaccount/account:Account",
    id=f"projects/proj-images/serviceAccounts/{REQUEST.service_account}",
    urn="",
    inputs={},
    state={"email": REQUEST.service_account, "project": "proj-images"},
)
ROLES = {  # as infra/identity.py binds them
    "read and write": on_bucket("roles/storage.objectUser"),
    "find": on_bucket("roles/storage.legacyBucketReader"),
    "push": member(
        "artifactregistry/repositoryIamMember:RepositoryIamMember",
        "roles/artifactregistry.writer",
        repository=REQUEST.repository_name,
    ),
}


@dataclass
class Apis:
    """Running stand-ins: their folder, and what a build says while it goes on."""

    folder: Path
    told: list[str]

    def build(
        self, context: Context, interrupted: Callable[[], bool] = lambda: False, **changes: Any
    ) -> str:
        request = replace(REQUEST, tag=context.tag, **changes)
        return image_build.build(request, context, self.told.append, interrupted)

    def find(self, context: Context) -> str | None:
        return image_build.find_digest(replace(REQUEST, tag=context.tag))

    def fault(self, **fault: Any) -> None:
        path = self.folder / "cloud" / "build-faults.json"
        path.write_text(json.dumps([fault] if fault else []))

    def builds(self) -> list[dict[str, Any]]:
        paths = (self.folder / "cloud" / "builds").glob("*.json")
        return sorted((json.loads(p.read_text()) for p in paths), key=lambda b: b["createTime"])


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, str]]]:
    """The stand-ins on ports of this machine: no other part of the sandbox is needed."""
    folder = Folder(tmp_path_factory.mktemp("apis"))
    folder.prepare()
    supervisor = Supervisor(folder, print)
    ports = cloud.Ports(free_port(), free_port())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(tools.bin_dir()), prepend=os.pathsep)
        environment = cloud.start(folder.root, "127.0.0.1", supervisor, ports)
    yield folder.root, environment
    supervisor.stop_all()


@pytest.fixture
def apis(servers: tuple[Path, dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> Iterator[Apis]:
    """The stand-ins with a bucket, and with no fault asked for."""
    from google.api_core import exceptions
    from google.cloud import storage

    folder, environment = servers
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with contextlib.suppress(exceptions.Conflict):
        storage.Client().create_bucket(REQUEST.bucket)
    store = Store(folder / "cloud")
    shutil.rmtree(folder / "cloud" / "resources", ignore_errors=True)
    for record in (ACCOUNT, *ROLES.values()):
        store.put(record)
    yield Apis(folder, [])
    (folder / "cloud" / "build-faults.json").unlink(missing_ok=True)


@pytest.fixture
def context(tmp_path: Path) -> Callable[..., Context]:
    """Makes contexts, each with content of its own."""
    (tmp_path / "training").mkdir()
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "training.txt").write_text("torch==2.15.0\n")
    (tmp_path / "training" / "train.py").write_text(f"name = {str(tmp_path)!r}\n")

    def make(*extra: str) -> Context:
        lines = ["FROM python:3.11-slim", "WORKDIR /app", "COPY training training", *extra]
        (tmp_path / "training" / "Dockerfile").write_text("\n".join(lines) + "\n")
        return build_context(tmp_path)

    return make


def test_an_image_is_built_found_and_unpacked_for_the_pods(apis: Apis, context: Any) -> None:
    made = context()
    assert apis.find(made) is None
    digest = apis.build(made)
    assert apis.find(made) == digest
    folder = apis.folder / "images" / digest.replace(":", "-")
    assert (folder / "Dockerfile").exists()
    assert (folder / "training" / "train.py").exists()
    assert any("COPY training training" in line for line in apis.told)
    assert apis.told[-1].endswith(f"built, {digest}")


def test_an_image_knows_the_commit_and_is_the_same_without(apis: Apis, context: Any) -> None:
    made = context("ARG GIT_COMMIT=", "ENV GEMMA_GIT_COMMIT=${GIT_COMMIT}")
    assert made.commit == ""  # no repository there
    known = replace(made, commit="0123abc-dirty")
    assert known.tag == made.tag
    reference = f"trainer@{apis.build(known)}"
    image = images.resolve(apis.folder / "images", reference)
    assert image.environment["GEMMA_GIT_COMMIT"] == "0123abc-dirty"


def test_the_next_build_takes_the_newest_image_s_layers(apis: Apis, context: Any) -> None:
    first = apis.build(context("ENV A=1"))
    apis.build(context("ENV A=2"))
    arguments = apis.builds()[-1]["steps"][0]["args"]
    cache = next(a for a in arguments if a.startswith("--cache-from="))
    assert cache == f"--cache-from=us-central1-docker.pkg.dev/proj-images/gemma/trainer@{first}"


def test_a_missing_file_fails_with_its_line_the_log_s_end_and_a_link(
    apis: Apis, context: Any
) -> None:
    made = context("COPY nothing.txt .")
    with pytest.raises(BuildFailed) as failed:
        apis.build(made)
    text = str(failed.value)
    assert "line 4: COPY nothing.txt ." in text
    assert "#3 [3/4] COPY training training" in text
    assert "https://console.cloud.google.com/cloud-build/builds;region=us-central1/" in text
    assert apis.find(made) is None


def test_an_instruction_that_no_builder_knows_fails(apis: Apis, context: Any) -> None:
    with pytest.raises(BuildFailed, match="unknown instruction: COPPY"):
        apis.build(context("COPPY a b"))


def test_an_interrupt_cancels_the_build(apis: Apis, context: Any) -> None:
    apis.fault(fault="hang")
    with pytest.raises(BuildFailed, match="cancelled"):
        apis.build(context(), interrupted=lambda: any("WORKDIR" in line for line in apis.told))
    assert apis.builds()[-1]["status"] == "CANCELLED"


def test_a_build_ends_at_its_time_limit(apis: Apis, context: Any) -> None:
    apis.fault(fault="hang")
    with pytest.raises(BuildFailed, match="timeout"):
        apis.build(context(), timeout_s=1)


def test_what_the_builder_says_is_passed_on(apis: Apis, context: Any) -> None:
    apis.fault(fault="fail", message="pip: no matching distribution for torch==9")
    with pytest.raises(BuildFailed, match="no matching distribution for torch==9"):
        apis.build(context())


@pytest.mark.parametrize("fault", ["permission", "quota"])
def test_a_refused_build_raises_google_s_error(apis: Apis, context: Any, fault: str) -> None:
    from google.api_core import exceptions

    apis.fault(fault=fault, times=99)
    with pytest.raises(exceptions.GoogleAPICallError) as refused:
        apis.build(context())
    assert refused.value.code == {"permission": 403, "quota": 429}[fault]


@pytest.mark.parametrize(
    ("missing", "instead", "words"),
    [
        ("find", None, "does not have permission to write logs"),
        ("read and write", "roles/storage.objectViewer", "permission to write logs"),
        ("read and write", "roles/storage.objectCreator", "storage.objects.get access"),
        ("push", None, "artifactregistry.repositories.uploadArtifacts"),
    ],
)
def test_a_build_needs_each_of_its_roles(
    apis: Apis, context: Any, missing: str, instead: str | None, words: str
) -> None:
    store = Store(apis.folder / "cloud")
    store.remove(ROLES[missing].type, ROLES[missing].id)
    if instead:
        store.put(on_bucket(instead))
    with pytest.raises(BuildFailed) as failed:
        apis.build(context())
    assert words in str(failed.value)


def test_a_build_needs_its_account(apis: Apis, context: Any) -> None:
    from google.api_core import exceptions

    Store(apis.folder / "cloud").remove(ACCOUNT.type, ACCOUNT.id)
    with pytest.raises(exceptions.NotFound, match="does not exist"):
        apis.build(context())


def test_an_image_whose_tag_exists_is_not_built_again(
    apis: Apis, context: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "tracebacklimit", 1000, raising=False)  # the provider changes it
    made = context()
    digest = apis.build(made)
    before = len(apis.builds())
    props = {**asdict(replace(REQUEST, tag=made.tag)), "context": str(tmp_path), "timeout_s": 600.0}
    created = ImageProvider().create(props)
    assert created.outs is not None
    assert created.outs["reference"] == f"{REQUEST.image}@{digest}"
    assert len(apis.builds()) == before
    assert ImageProvider().read(created.id, props).id == created.id

    Registry(apis.folder).remove(REQUEST.repository_name)  # somebody deleted it: made again
    assert ImageProvider().read(created.id, props).id == ""


def test_a_repository_takes_its_images_along(apis: Apis, context: Any) -> None:
    made = context()
    digest = apis.build(made)
    Registry(apis.folder).remove(REQUEST.repository_name)
    assert apis.find(made) is None
    assert not (apis.folder / "images" / digest.replace(":", "-")).exists()
