"""The two versions of a program that a review compares: what is copied and what is kept out."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from review import __main__ as command
from review import program

SETTINGS = {
    "encryptionsalt": "v1:salt",
    "secretsprovider": "gcpkms://key",
    "config": {
        "gcp:region": "us-central1",
        "gemma:huggingFaceToken": {"secure": "v1:cipher"},
        "gemma:alerts": {"email": {"secure": "v1:other"}, "minutes": 10},
        "gemma:list": [{"secure": "v1:third"}],
    },
}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository whose branch left `main` before the newest commit of `main`."""
    folder = tmp_path / "repository"
    folder.mkdir()

    def git(*args: str) -> None:
        identity = ["-c", "user.name=n", "-c", "user.email=e@example.com"]
        subprocess.run(["git", "-C", str(folder), *identity, *args], check=True, timeout=60)

    git("init", "-q", "-b", "main")
    (folder / "program.py").write_text("one\n")
    (folder / ".gitignore").write_text("ignored\n")
    git("add", ".")
    git("commit", "-qm", "One")
    git("checkout", "-qb", "change")
    (folder / "program.py").write_text("two\n")
    git("commit", "-qam", "Two")
    git("checkout", "-q", "main")
    (folder / "later.py").write_text("merged meanwhile\n")
    git("add", ".")
    git("commit", "-qm", "Later")
    git("checkout", "-q", "change")
    return folder


def test_base_is_where_the_branch_left(repository: Path, tmp_path: Path) -> None:
    commit = program.fork_point(repository, "main")
    program.copy_commit(repository, commit, tmp_path / "base")
    assert (tmp_path / "base" / "program.py").read_text() == "one\n"
    assert not (tmp_path / "base" / "later.py").exists()


def test_unknown_base_says_what_to_do(repository: Path) -> None:
    with pytest.raises(program.NoSuchBase, match="git fetch"):
        program.fork_point(repository, "origin/nothing")
    with pytest.raises(program.NoSuchBase):
        program.fork_point(repository, "--help")


def test_unknown_base_ends_with_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["no-such-reference"]) == 2
    assert "no-such-reference" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "there is no Pulumi.dev.yaml: make one, or name a stack .*(other)"),
        (
            "config:\n  a: 1\n b: 2\n",
            "Pulumi.dev.yaml, line 3\n.*given: .* b: 2.*\n.*allowed: .*two more than",
        ),
        ("config:\n\ta: 1\n", r"Pulumi.dev.yaml, line 2\n.*given: .*\\ta: 1.*\n.*allowed: spaces"),
        ("config:\n  a: {}\n  a: 1\n", "Pulumi.dev.yaml, line 3\n.*\n.*allowed: each key once"),
        ("- a\n", "Pulumi.dev.yaml\n.*\n.*allowed: a mapping that begins with"),
    ],
)
def test_settings_that_cannot_be_read_are_told_by_line(
    text: str | None, told: str, tmp_path: Path
) -> None:
    (tmp_path / "Pulumi.other.yaml").write_text("config: {}\n")
    if text is not None:
        (tmp_path / "Pulumi.dev.yaml").write_text(text)
    with pytest.raises(program.NoSettings, match=told):
        program.check_settings(tmp_path, "dev")
    program.check_settings(tmp_path, "other")


def test_an_unknown_stack_ends_with_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--stack", "nonesuch"]) == 2
    assert "Pulumi.nonesuch.yaml" in capsys.readouterr().err


def test_working_tree_as_it_is_on_disk(repository: Path, tmp_path: Path) -> None:
    (repository / "program.py").write_text("three, not committed\n")
    (repository / "new.py").write_text("new\n")
    (repository / "ignored").write_text("a password\n")
    (repository / ".gitignore").unlink()
    subprocess.run(["git", "-C", str(repository), "checkout", "-q", "."], check=True, timeout=60)
    (repository / "program.py").write_text("three, not committed\n")
    program.copy_tree(repository, tmp_path / "head")
    assert (tmp_path / "head" / "program.py").read_text() == "three, not committed\n"
    assert (tmp_path / "head" / "new.py").exists()
    assert not (tmp_path / "head" / "ignored").exists()
    assert not (tmp_path / "head" / ".git").exists()


def test_deleted_files_stay_deleted(repository: Path, tmp_path: Path) -> None:
    (repository / "program.py").unlink()
    program.copy_tree(repository, tmp_path / "head")
    assert not (tmp_path / "head" / "program.py").exists()


def test_no_secret_reaches_the_preview(tmp_path: Path) -> None:
    path = tmp_path / "Pulumi.dev.yaml"
    path.write_text(yaml.safe_dump(SETTINGS))
    program.prepare(tmp_path, "dev")
    text = path.read_text()
    for word in ("salt", "cipher", "other", "third", "gcpkms", "secure"):
        assert word not in text
    config = yaml.safe_load(text)["config"]
    assert config["gcp:region"] == "us-central1"
    assert config["gemma:alerts"] == {"email": program.PLACEHOLDER, "minutes": 10}
    assert config["gemma:huggingFaceToken"] == program.PLACEHOLDER
    keys = ["gemma:alerts.email", "gemma:huggingFaceToken", "gemma:list[0]"]
    assert program.placeholders(tmp_path, "dev") == keys


@pytest.mark.parametrize(
    "value",
    [
        "no",
        "on",
        "true",
        "12:30:45",
        "2026-12-20T00:00:00Z",
        "2026-12-20",
        "0123",
        "1_000",
        "1.0",
        "1e-5",
        "0o17",
        "'1'",
        "'true'",
    ],
)
def test_values_stay_as_they_are_written(value: str, tmp_path: Path) -> None:
    # PyYAML would make false of `no` and 45045 of 12:30:45; the engine reads both as text
    path = tmp_path / "Pulumi.dev.yaml"
    path.write_text(f"config:\n  gemma:x:\n    key: {value}\n")
    program.prepare(tmp_path, "dev")
    assert f"    key: {value}\n" in path.read_text()


@pytest.mark.parametrize("deployable", [True, False])
def test_a_token_in_secret_manager_is_one_of_the_settings_where_it_is_deployed(
    deployable: bool, tmp_path: Path
) -> None:
    path = tmp_path / "Pulumi.prod.yaml"
    path.write_text(yaml.safe_dump({"config": {program.TOKEN_ELSEWHERE: "name"}}))
    program.prepare(tmp_path, "prod", deployable=deployable)
    expected = (
        {program.TOKEN: program.PLACEHOLDER} if deployable else {program.TOKEN_ELSEWHERE: "name"}
    )
    assert yaml.safe_load(path.read_text())["config"] == expected


def test_a_token_that_is_not_committed_gets_a_placeholder() -> None:
    found = program.without_secrets({"config": {"gcp:region": "r"}})
    assert found["config"][program.TOKEN] == program.PLACEHOLDER
    elsewhere = {"config": {program.TOKEN_ELSEWHERE: "name"}}
    assert program.without_secrets(elsewhere) == elsewhere
