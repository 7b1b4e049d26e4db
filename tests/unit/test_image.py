"""The trainer image: what its context is, what its build says, what its Dockerfile holds."""

from __future__ import annotations

import base64
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import types
from pathlib import Path
from typing import Any

import pulumi
import pytest
from google.api_core import exceptions
from pulumi.dynamic.dynamic import serialize_provider

from infra import image_build, image_context
from infra.image import BY_DIGEST, ImageProvider, Interrupt, TrainerImage, TrainerImageArgs
from infra.image_context import ROOT, build_context
from sandbox.cloud import dockerfile

DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A small repository with what a context is made of."""
    files = {
        "training/Dockerfile": "FROM python\nCOPY training training\n",
        "training/__init__.py": "",
        "training/common/config.py": "x = 1\n",
        "requirements/training.txt": "torch==2.15.0\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_the_context_depends_on_its_content_alone(checkout: Path, tmp_path_factory: Any) -> None:
    before = build_context(checkout)
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "copy"
    shutil.copytree(checkout, elsewhere)
    for path in elsewhere.rglob("*"):
        os.utime(path, (1, 1))
        path.chmod(0o700)
    assert build_context(elsewhere) == before


def test_what_no_trainer_imports_is_left_out(checkout: Path) -> None:
    before = build_context(checkout)
    for name in (
        "training/__pycache__/config.cpython-311.pyc",
        "training/common/__pycache__/x.py",
        "training/samples/make.py",
        "training/common/tests/test_config.py",
        "training/.hidden/x.py",
        "infra/image.py",
        "README.md",
    ):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text("print('changed')")
    assert build_context(checkout).tag == before.tag


@pytest.mark.parametrize(
    "name", ["training/common/config.py", "training/Dockerfile", "requirements/training.txt"]
)
def test_a_changed_file_gives_another_tag(checkout: Path, name: str) -> None:
    before = build_context(checkout)
    (checkout / name).write_text("changed\n")
    after = build_context(checkout)
    assert re.fullmatch(r"ctx-[0-9a-f]{12}", after.tag)
    assert after.tag != before.tag


def test_the_dockerfile_is_at_the_tarball_s_root(checkout: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(build_context(checkout).tarball)) as archive:
        members = archive.getmembers()
    assert {m.name for m in members} == {
        "Dockerfile",
        "requirements/training.txt",
        "training/__init__.py",
        "training/common/config.py",
    }
    assert {(m.uid, m.gid, m.mtime, m.mode) for m in members} == {(0, 0, 0, 0o644)}


def test_the_real_dockerfile_builds_from_the_real_context(tmp_path: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(build_context().tarball)) as archive:
        archive.extractall(tmp_path, filter="data")
    steps = dockerfile.parse((tmp_path / "Dockerfile").read_text())
    dockerfile.check(steps, tmp_path)
    assert (tmp_path / "training" / "gemma3_vision" / "train.py").exists()
    assert (tmp_path / "training" / "gemma4_text" / "train.py").exists()


def test_the_image_runs_as_nobody_special_and_installs_by_hash() -> None:
    steps = dockerfile.parse((ROOT / "training/Dockerfile").read_text())
    assert [s.rest for s in steps if s.instruction == "USER"] == ["1000:1000"]
    assert [s.rest for s in steps if s.instruction == "WORKDIR"][-1] == "/app"
    installs = [s.rest for s in steps if "pip install" in s.rest]
    assert installs
    assert all("--require-hashes" in install for install in installs)


def test_no_secret_can_get_into_a_layer() -> None:
    text = (ROOT / "training/Dockerfile").read_text()
    names = re.findall(r"^(?:ARG|ENV)\s+(\w+)", text, re.MULTILINE)
    assert not [name for name in names if re.search("TOKEN|SECRET|KEY|PASSWORD", name)]


def test_hadolint_has_nothing_to_say() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run(
        [hadolint, ROOT / "training/Dockerfile"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_the_pickled_provider_is_a_name() -> None:
    pickled = serialize_provider(ImageProvider())
    assert pickled == serialize_provider(ImageProvider())
    data = base64.b64decode(pickled)
    assert b"infra.image" in data
    assert str(ROOT).encode() not in data
    assert len(data) < 100


@pytest.mark.parametrize(
    "uri", ["trainer", "r-docker.pkg.dev/p/r/trainer:latest", "x@sha256:123", f"X Y@{DIGEST}"]
)
def test_a_uri_without_a_digest_is_refused(uri: str) -> None:
    assert not BY_DIGEST.fullmatch(uri)


def test_a_given_image_is_used_as_it_is(checkout: Path) -> None:
    uri = f"us-docker.pkg.dev/p/r/trainer@{DIGEST}"
    pulumi.runtime.set_mocks(_NoResources())
    args = TrainerImageArgs(
        project="p",
        region="us-central1",
        repository="r",
        source_bucket="b",
        service_account="a@p.iam.gserviceaccount.com",
        uri=uri,
        context=checkout,
    )
    image = TrainerImage("image", args)
    assert image.key == uri


def test_a_domains_project_is_two_parts_of_an_image_s_path() -> None:
    values = {
        "project": "example.com:my-project",
        "region": "us-central1",
        "repository": "r",
        "tag": "t",
        "bucket": "b",
        "service_account": "a",
        "machine_type": "m",
        "timeout_s": 1,
    }
    image = image_build.BuildRequest.of(values).image
    assert image == "us-central1-docker.pkg.dev/example.com/my-project/r/trainer"


class _NoResources(pulumi.runtime.Mocks):
    def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> tuple[str, dict[Any, Any]]:
        assert args.typ == "gemma:infra:TrainerImage", "nothing may be built"
        return "", {}

    def call(self, args: pulumi.runtime.MockCallArgs) -> Any:
        raise AssertionError


class _Bucket:
    """A bucket whose one object grows, as a build log does."""

    def __init__(self) -> None:
        self.text = b""

    def blob(self, _name: str) -> _Bucket:
        return self

    def download_as_bytes(self, start: int) -> bytes:
        if start >= len(self.text):
            raise exceptions.RequestRangeNotSatisfiable("nothing new")
        return self.text[start:]


def test_a_growing_log_is_told_once_and_by_its_milestones() -> None:
    bucket, told = _Bucket(), []
    log = image_build._Log(bucket, "log.txt", told.append)
    for part in (
        b"BUILD\nStep #0: #7 [packages 2/4] RUN pip ins",
        b"tall\nStep #0: #7 12.1 Collecting torch\n",
        b"",
        b"PUSH\n",
    ):
        bucket.text += part
        log.read()
    assert told == ["BUILD", "Step #0: #7 [packages 2/4] RUN pip install", "PUSH"]
    assert log.last[-2:] == ["Step #0: #7 12.1 Collecting torch", "PUSH"]


def test_ctrl_c_reaches_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's Cancel, as Pulumi's plugin for Python resources answers it."""
    plugin = types.ModuleType("__main__")
    exec(
        "from google.protobuf import empty_pb2\n"
        "def Cancel(): return empty_pb2.Empty()\n"
        "def Delete(): return empty_pb2.Empty()\n",
        plugin.__dict__,
    )
    monkeypatch.setitem(sys.modules, "__main__", plugin)
    monkeypatch.setattr(sys, "argv", ["pulumi.dynamic"])
    interrupted = Interrupt()
    plugin.Delete()
    assert not interrupted()
    plugin.Cancel()
    assert interrupted()


def test_an_engine_that_no_longer_listens_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(sys, "argv", ["x", f"127.0.0.1:{server.getsockname()[1]}"])
        interrupted = Interrupt()
        assert not interrupted()
    assert interrupted()


def test_another_endpoint_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_ENDPOINT", "https://cloudbuild-x.p.googleapis.com/v1/")
    assert image_build.endpoint("SOME_ENDPOINT") == {
        "api_endpoint": "https://cloudbuild-x.p.googleapis.com"
    }
    monkeypatch.delenv("SOME_ENDPOINT")
    assert image_build.endpoint("SOME_ENDPOINT") is None


def test_the_commit_is_git_s_own_and_marked_where_the_image_s_files_differ(checkout: Path) -> None:
    def git(*arguments: str) -> str:
        author = ["-c", "user.name=n", "-c", "user.email=e@example.com"]
        command = ["git", "-C", str(checkout), *author, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        return done.stdout.strip()

    assert image_context.commit_of(checkout) == ""
    (checkout / "Pulumi.dev.yaml").write_text("config: {}\n")
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "One"], ["tag", "v1"]):
        git(*command)
    head = git("rev-parse", "HEAD")
    assert image_context.commit_of(checkout) == head
    (checkout / "Pulumi.dev.yaml").write_text("config: {gcp:project: mine}\n")
    assert image_context.commit_of(checkout) == head
    (checkout / "training" / "new.py").write_text("added = 'to the image, not to git'\n")
    assert image_context.commit_of(checkout) == f"{head}-dirty"
    (checkout / "training" / "new.py").unlink()
    (checkout / "requirements" / "training.txt").write_text("torch==0\n")
    assert image_context.commit_of(checkout) == f"{head}-dirty"
