"""docs/permissions.md and the program tell the same story."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "permissions.md").read_text()
OPTIONAL = {
    "gemma:huggingFaceSecret": "hugging-face-token",
    "gemma:bucket": {"sources": ["models-of-a-friend"]},
}
PLACES = {
    "gcp:projects/iAMMember:IAMMember": "project",
    "gcp:artifactregistry/repositoryIamMember:RepositoryIamMember": "repository",
    "gcp:secretmanager/secretIamMember:SecretIamMember": "secret",
    "gcp:serviceaccount/iAMMember:IAMMember": "account trainer",
}
BUCKETS = {
    "test-project-gemma-dev": "bucket of runs",
    "test-project-gemma-dev-builds": "bucket of build contexts",
}


def tables(section: str) -> list[tuple[str, ...]]:
    """The rows of the tables below the heading `section`."""
    text = PAGE.split(f"## {section}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (.*) \|$", text, re.MULTILINE)
    return [tuple(cell.strip() for cell in row.split("|")) for row in rows]


def bindings(declaration) -> set[tuple[str, str, str]]:
    found = set()
    for resource in declaration.resources:
        if "iammember" not in resource.type.lower():
            continue
        if resource.type == "gcp:storage/bucketIAMMember:BucketIAMMember":
            place = BUCKETS.get(resource.inputs["bucket"], "source bucket")
        else:
            place = PLACES[resource.type]
        member = re.match(r"serviceAccount:gemma-dev-(\w+)@", resource.inputs["member"])
        account = member[1] if member else "trainer"  # the pods' own account acts as the trainer
        found.add((account, resource.inputs["role"], place))
    return found


def documented(columns: str) -> set[tuple[str, ...]]:
    rows = tables("The accounts that the program makes")
    start = next(i for i, row in enumerate(rows) if row[3] == columns)
    end = next((i for i in range(start + 1, len(rows)) if rows[i][0] == "Account"), len(rows))
    return {row[:3] for row in rows[start + 1 : end]}


def test_every_binding_is_documented_and_every_documented_one_is_made(declare):
    assert bindings(declare()) == documented("Why")


def test_optional_bindings_are_made_when_the_configuration_asks_for_them(declare):
    extra = bindings(declare(changes=OPTIONAL, secrets={})) - bindings(declare())
    assert extra == documented("When")


def test_the_deploying_user_has_a_role_for_every_kind_of_resource(declare):
    purposes = " ".join(row[1] for row in tables("The person or pipeline that deploys"))
    kinds = {r.type.rpartition(":")[0] for r in declare(changes=OPTIONAL, secrets={}).resources}
    for kind in kinds:
        if kind.startswith("gcp:"):
            assert kind in purposes or kind.partition("/")[0] in purposes.split(), kind


@pytest.mark.parametrize("role", ["admin", "editor", "owner"])
def test_no_account_gets_a_sweeping_role(declare, role):
    for _, granted, _ in bindings(declare(changes=OPTIONAL, secrets={})):
        assert not granted.lower().endswith(role)


def test_no_account_gets_a_key(declare):
    assert not [r for r in declare().resources if "key" in r.type.lower()]
