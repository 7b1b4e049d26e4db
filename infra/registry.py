"""Artifact Registry: where the trainer image lives."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

WEEK = f"{7 * 24 * 3600}s"


@dataclass(frozen=True, kw_only=True)
class RegistryArgs:
    """
    Attributes:
        project, location: of the repository; the location is the cluster's region.
        repository: its id.
        labels: for cost reports.
    """

    project: str
    location: str
    repository: str
    labels: dict[str, str]


class Registry(pulumi.ComponentResource):
    """A Docker repository whose tags never move.

    Every image that a stack uses carries the tag of its content, and a tag that cannot move keeps
    its image tagged. So a policy that deletes untagged images only can never take the one in use;
    deleting by age could, since a stack may stay on one image for months.

    Attributes:
        repository: the repository; `host/project/id` is its path for images.
    """

    repository: gcp.artifactregistry.Repository

    def __init__(
        self, name: str, args: RegistryArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gemma:infra:Registry", name, None, opts)
        self.repository = gcp.artifactregistry.Repository(
            name,
            repository_id=args.repository,
            project=args.project,
            location=args.location,
            format="DOCKER",
            description="Images of the Gemma trainers",
            docker_config=gcp.artifactregistry.RepositoryDockerConfigArgs(immutable_tags=True),
            cleanup_policy_dry_run=False,  # left out, policies may only be tried and never applied
            cleanup_policies=[
                gcp.artifactregistry.RepositoryCleanupPolicyArgs(
                    id="keep-tagged",
                    action="KEEP",
                    condition=gcp.artifactregistry.RepositoryCleanupPolicyConditionArgs(
                        tag_state="TAGGED"
                    ),
                ),
                gcp.artifactregistry.RepositoryCleanupPolicyArgs(
                    id="delete-untagged",
                    action="DELETE",
                    condition=gcp.artifactregistry.RepositoryCleanupPolicyConditionArgs(
                        tag_state="UNTAGGED", older_than=WEEK
                    ),
                ),
            ],
            labels=args.labels,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({"repository": self.repository.id})
