"""Identities and who may do what: accounts, identity pools, members of every resource's policy."""

from __future__ import annotations

from typing import Any, ClassVar

from sandbox.cloud.gcp.check import Rules, matches
from sandbox.cloud.gcp.errors import CloudError, bad_request
from sandbox.cloud.gcp.store import Record, Values
from sandbox.cloud.gcp.world import World

from .base import Kind, must_exist, number

ACCOUNT = "gcp:serviceaccount/account:Account"
POOL = "gcp:iam/workloadIdentityPool:WorkloadIdentityPool"
MEMBER = matches(
    r"(?:allUsers|allAuthenticatedUsers|[a-z][a-zA-Z]*:.+)",
    "invalid value for {name} (IAM members must have one of the values outlined here: "
    "https://cloud.google.com/billing/docs/reference/rest/v1/Policy#Binding)",
)
POOL_ID = matches(
    r"(?!gcp-)[a-z0-9-]{4,32}",
    '"{name}" must contain 4 to 32 of [a-z0-9-] and must not begin with gcp-',
)


def check_member(member: str, world: World, project: str) -> None:
    """Google's check of a policy's member. Raises CloudError."""
    number_ = world.number(project)
    pool = f"{project}.svc.id.goog"
    if f"{pool}[" in member or f"/workloadIdentityPools/{pool}/" in member:
        if pool not in (world.store.fact("identity-pools") or []):
            raise bad_request(
                f"Identity Pool does not exist ({pool}). Please check that you specified a valid "
                "resource name as returned in the `name` attribute in the configuration API."
            )
        if member.startswith("principal") and f"/projects/{number_}/" not in member:
            raise bad_request(f"Invalid principal {member}: it must hold the project's number")
    elif member.startswith("serviceAccount:") and not world.account_exists(member):
        account = member.removeprefix("serviceAccount:")
        raise bad_request(f"Service account {account} does not exist.")


class Account(Kind):
    token = ACCOUNT
    service = "iam.googleapis.com"
    rules: ClassVar[Rules] = {"accountId": matches(r"(?:[a-z](?:[-a-z0-9]{4,28}[a-z0-9]))")}

    def email(self, inputs: Values, world: World) -> str:
        return f"{inputs['accountId']}@{world.of(inputs)}.iam.gserviceaccount.com"

    def identity(self, inputs: Values, world: World) -> str:
        return f"projects/{world.of(inputs)}/serviceAccounts/{self.email(inputs, world)}"

    def title(self, inputs: Values, world: World) -> str:
        return (
            f"Service account {inputs['accountId']} already exists within project "
            f"projects/{world.of(inputs)}."
        )

    def planned(self, inputs: Values, world: World) -> Values:
        if not world.project:
            return {}
        email = self.email(inputs, world)
        return {"email": email, "member": f"serviceAccount:{email}"}

    def computed(self, inputs: Values, world: World, id_: str) -> Values:
        email = self.email(inputs, world)
        return {"email": email, "member": f"serviceAccount:{email}", "name": id_}

    def generated(self, inputs: Values, world: World, id_: str) -> Values:
        return {"uniqueId": number()}


class WorkloadIdentityPool(Kind):
    token = POOL
    service = "iam.googleapis.com"
    rules: ClassVar[Rules] = {"workloadIdentityPoolId": POOL_ID}
    survives = True  # soft-deleted for 30 days

    def identity(self, inputs: Values, world: World) -> str:
        pool = inputs["workloadIdentityPoolId"]
        return f"projects/{world.of(inputs)}/locations/global/workloadIdentityPools/{pool}"

    def title(self, inputs: Values, world: World) -> str:
        return "Requested entity already exists"

    def computed(self, inputs: Values, world: World, id_: str) -> Values:
        project = world.of(inputs)
        name = id_.replace(f"projects/{project}/", f"projects/{world.number(project)}/", 1)
        return {"name": name, "state": "ACTIVE"}


class WorkloadIdentityPoolProvider(WorkloadIdentityPool):
    token = "gcp:iam/workloadIdentityPoolProvider:WorkloadIdentityPoolProvider"
    rules: ClassVar[Rules] = {
        "workloadIdentityPoolId": POOL_ID,
        "workloadIdentityPoolProviderId": POOL_ID,
    }

    def identity(self, inputs: Values, world: World) -> str:
        provider = inputs["workloadIdentityPoolProviderId"]
        return f"{super().identity(inputs, world)}/providers/{provider}"

    def accept(self, inputs: Values, world: World) -> None:
        pool = super().identity(inputs, world)
        must_exist(world, POOL, pool, f"Identity Pool {pool} does not exist")


class CustomRole(Kind):
    token = "gcp:projects/iAMCustomRole:IAMCustomRole"
    service = "iam.googleapis.com"
    rules: ClassVar[Rules] = {"roleId": matches(r"[a-zA-Z0-9_\.]{3,64}")}

    def identity(self, inputs: Values, world: World) -> str:
        return f"projects/{world.of(inputs)}/roles/{inputs['roleId']}"

    def computed(self, inputs: Values, world: World, id_: str) -> Values:
        return {"name": id_, "deleted": False}


class Member(Kind):
    """One member with one role on one resource. Adding one that is there already is no error."""

    rules: ClassVar[Rules] = {"member": MEMBER}
    target = ""  # the property that names the resource
    owner = ""  # the resource's type, which must exist

    def full(self, inputs: Values, world: World) -> str:
        """The id of the resource whose policy gets the member."""
        return str(inputs[self.target])

    def identity(self, inputs: Values, world: World) -> str:
        condition = inputs.get("condition")
        suffix = f"/{condition.get('title', '')}" if condition else ""
        return f"{self.full(inputs, world)}/{inputs['role']}/{inputs['member']}{suffix}"

    def computed(self, inputs: Values, world: World, id_: str) -> Values:
        return {self.target: self.full(inputs, world)} if self.target else {}

    def generated(self, inputs: Values, world: World, id_: str) -> Values:
        return {"etag": f"BwY{number(digits=8)}="}

    def same(self, path: str, old: Any, new: Any) -> bool:
        return (path == self.target and _short(old) == _short(new)) or super().same(path, old, new)

    def accept(self, inputs: Values, world: World) -> None:
        if not str(inputs["role"]).startswith(("roles/", "projects/", "organizations/")):
            raise bad_request(
                f"Invalid value for field 'role': '{inputs['role']}'. It must start with roles/, "
                "projects/ or organizations/"
            )
        if self.owner:
            full = self.full(inputs, world)
            must_exist(world, self.owner, full, f"The resource '{full}' was not found")
        check_member(inputs["member"], world, self.project(inputs, world))

    def project(self, inputs: Values, world: World) -> str:
        full = self.full(inputs, world).split("/")
        return full[full.index("projects") + 1] if "projects" in full else world.project

    def taken(self, record: Record | None, inputs: Values, world: World) -> None:
        pass


def _short(value: Any) -> str:
    return str(value).removeprefix("b/").rstrip("/").rsplit("/", 1)[-1]


class ProjectMember(Member):
    token = "gcp:projects/iAMMember:IAMMember"
    service = "cloudresourcemanager.googleapis.com"
    target = "project"

    def project(self, inputs: Values, world: World) -> str:
        return str(inputs["project"])


class AccountMember(Member):
    token = "gcp:serviceaccount/iAMMember:IAMMember"
    service = "iam.googleapis.com"
    target = "serviceAccountId"
    owner = ACCOUNT

    def accept(self, inputs: Values, world: World) -> None:
        if not str(inputs["serviceAccountId"]).startswith("projects/"):
            raise CloudError(
                f'"{inputs["serviceAccountId"]}" is not a service account: it must have the form '
                "projects/PROJECT/serviceAccounts/EMAIL"
            )
        super().accept(inputs, world)


class BucketMember(Member):
    token = "gcp:storage/bucketIAMMember:BucketIAMMember"
    service = "storage.googleapis.com"
    target = "bucket"
    owner = "gcp:storage/bucket:Bucket"

    def full(self, inputs: Values, world: World) -> str:
        return "b/" + str(inputs["bucket"]).removeprefix("b/")

    def accept(self, inputs: Values, world: World) -> None:
        name = self.full(inputs, world).removeprefix("b/")
        must_exist(world, self.owner, name, "The specified bucket does not exist.")
        check_member(inputs["member"], world, world.project)


class RepositoryMember(Member):
    token = "gcp:artifactregistry/repositoryIamMember:RepositoryIamMember"
    service = "artifactregistry.googleapis.com"
    target = "repository"
    owner = "gcp:artifactregistry/repository:Repository"

    def full(self, inputs: Values, world: World) -> str:
        repository = str(inputs["repository"])
        if repository.startswith("projects/"):
            return repository
        location = world.location(inputs)
        return f"projects/{world.of(inputs)}/locations/{location}/repositories/{repository}"

    def computed(self, inputs: Values, world: World, id_: str) -> Values:
        full = self.full(inputs, world)
        return {"repository": full, "location": full.split("/")[3]}


class SecretMember(Member):
    token = "gcp:secretmanager/secretIamMember:SecretIamMember"
    service = "secretmanager.googleapis.com"
    target = "secretId"
    owner = "gcp:secretmanager/secret:Secret"

    def full(self, inputs: Values, world: World) -> str:
        secret = str(inputs["secretId"])
        if secret.startswith("projects/"):
            number_ = world.number(world.project)
            return secret.replace(f"projects/{number_}/", f"projects/{world.project}/", 1)
        return f"projects/{world.of(inputs)}/secrets/{secret}"
