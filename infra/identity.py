"""Who may do what: one Google service account per purpose, roles on the resource, no keys.

docs/permissions.md says the same for people; tests/unit/test_infra_permissions.py holds the two
together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pulumi
import pulumi_gcp as gcp

NODE_ROLES = (
    "roles/autoscaling.metricsWriter",
    "roles/logging.logWriter",
    "roles/monitoring.metricWriter",
    "roles/monitoring.viewer",
    "roles/stackdriver.resourceMetadata.writer",
)
"""What GKE's agents on a node need; Google binds them on projects only."""

BUCKET_ROLES = (
    "roles/storage.objectUser",  # read, write, list and delete: checkpoints are thinned out
    # Both Arrow's GcsFileSystem and Cloud Build ask for storage.buckets.get first.
    "roles/storage.legacyBucketReader",
)
"""Instead of the tutorial's roles/storage.admin, which may also open the bucket to the world."""

Purpose = Literal["nodes", "build", "trainer"]

PURPOSES: dict[Purpose, str] = {
    "nodes": "Runs the cluster's nodes",
    "build": "Builds the trainer image in Cloud Build",
    "trainer": "Reads models and data, writes adapters and checkpoints",
}


@dataclass(frozen=True, kw_only=True)
class IdentityArgs:
    """
    Attributes:
        project: of the accounts.
        name: what their ids begin with.
        bucket: of the runs; the trainer writes there.
        builds: bucket of build contexts and build logs.
        sources: further buckets that the trainer may read.
        location, repository: of the image registry.
    """

    project: str
    name: str
    bucket: pulumi.Input[str]
    builds: pulumi.Input[str]
    sources: tuple[str, ...]
    location: str
    repository: pulumi.Input[str]


class Identity(pulumi.ComponentResource):
    """The three accounts and their roles.

    What is bound elsewhere, beside the resource it needs: Workload Identity in
    infra/namespace.py, one secret in infra/secrets.py.

    Attributes:
        nodes, build, trainer: the accounts.
        bindings: all of their roles, to wait for.
    """

    nodes: gcp.serviceaccount.Account
    build: gcp.serviceaccount.Account
    trainer: gcp.serviceaccount.Account

    def __init__(
        self, name: str, args: IdentityArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gemma:infra:Identity", name, None, opts)
        self._args = args
        self._child = pulumi.ResourceOptions(parent=self)
        self.bindings: dict[Purpose, list[pulumi.Resource]] = {p: [] for p in PURPOSES}
        self.nodes = self._account("nodes")
        self.build = self._account("build")
        self.trainer = self._account("trainer")

        for role in NODE_ROLES:
            self._on_project("nodes", role)
        self._on_repository("nodes", "roles/artifactregistry.reader")

        self._on_repository("build", "roles/artifactregistry.writer")
        for role in BUCKET_ROLES:
            self._on_bucket("build", args.builds, "builds", role)

        for role in BUCKET_ROLES:
            self._on_bucket("trainer", args.bucket, "runs", role)
        for source in args.sources:
            for role in ("roles/storage.objectViewer", "roles/storage.legacyBucketReader"):
                self._on_bucket("trainer", source, source, role)
        self.register_outputs({p: self._of(p).email for p in PURPOSES})

    def _account(self, purpose: Purpose) -> gcp.serviceaccount.Account:
        return gcp.serviceaccount.Account(
            purpose,
            account_id=f"{self._args.name}-{purpose}",
            project=self._args.project,
            display_name=f"{self._args.name} {purpose}",
            description=PURPOSES[purpose],
            opts=self._child,
        )

    def _of(self, purpose: Purpose) -> gcp.serviceaccount.Account:
        return {"nodes": self.nodes, "build": self.build, "trainer": self.trainer}[purpose]

    def _on_project(self, purpose: Purpose, role: str) -> None:
        member = gcp.projects.IAMMember(
            f"{purpose}-{_short(role)}",
            project=self._args.project,
            role=role,
            member=self._of(purpose).member,
            opts=self._child,
        )
        self.bindings[purpose].append(member)

    def _on_repository(self, purpose: Purpose, role: str) -> None:
        member = gcp.artifactregistry.RepositoryIamMember(
            f"{purpose}-{_short(role)}",
            project=self._args.project,
            location=self._args.location,
            repository=self._args.repository,
            role=role,
            member=self._of(purpose).member,
            opts=self._child,
        )
        self.bindings[purpose].append(member)

    def _on_bucket(self, purpose: Purpose, bucket: pulumi.Input[str], what: str, role: str) -> None:
        member = gcp.storage.BucketIAMMember(
            f"{purpose}-{what}-{_short(role)}",
            bucket=bucket,
            role=role,
            member=self._of(purpose).member,
            opts=self._child,
        )
        self.bindings[purpose].append(member)


def _short(role: str) -> str:
    """roles/storage.objectUser -> storage.objectUser."""
    return role.removeprefix("roles/")
