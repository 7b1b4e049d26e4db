"""The buckets: one for what runs leave behind, one for build contexts."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from infra import schema

DAY = 24 * 3600


@dataclass(frozen=True, kw_only=True)
class StorageArgs:
    """
    Attributes:
        project, location: of the buckets; the location is the cluster's region.
        name: of the bucket of runs; build contexts go to NAME-builds.
        labels: for both.
        settings: retention.
    """

    project: str
    location: str
    name: str
    labels: dict[str, str]
    settings: schema.Bucket


class Storage(pulumi.ComponentResource):
    """Both closed to the public and ruled by IAM alone.

    Attributes:
        runs: `runs/WORKLOAD/RUN_ID/` for each run.
        builds: tarballs that Cloud Build builds from, gone after a week.
    """

    runs: gcp.storage.Bucket
    builds: gcp.storage.Bucket

    def __init__(
        self, name: str, args: StorageArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gemma:infra:Storage", name, None, opts)
        self.runs = gcp.storage.Bucket(
            "runs",
            name=args.name,
            project=args.project,
            location=args.location,
            uniform_bucket_level_access=True,
            public_access_prevention="enforced",
            force_destroy=args.settings.force_destroy,
            soft_delete_policy=gcp.storage.BucketSoftDeletePolicyArgs(
                retention_duration_seconds=args.settings.soft_delete_days * DAY
            ),
            lifecycle_rules=_lifecycle(args.settings.checkpoint_days),
            labels=args.labels,
            # Results outlive a mistaken `pulumi destroy` wherever the environment keeps them.
            opts=pulumi.ResourceOptions(parent=self, protect=not args.settings.force_destroy),
        )
        self.builds = gcp.storage.Bucket(
            "builds",
            name=f"{args.name}-builds",
            project=args.project,
            location=args.location,
            uniform_bucket_level_access=True,
            public_access_prevention="enforced",
            force_destroy=True,  # every object can be made again from the repository
            soft_delete_policy=gcp.storage.BucketSoftDeletePolicyArgs(retention_duration_seconds=0),
            lifecycle_rules=[
                gcp.storage.BucketLifecycleRuleArgs(
                    action=gcp.storage.BucketLifecycleRuleActionArgs(type="Delete"),
                    condition=gcp.storage.BucketLifecycleRuleConditionArgs(age=7),
                )
            ],
            labels=args.labels,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({"runs": self.runs.url, "builds": self.builds.url})


def _lifecycle(checkpoint_days: int) -> list[gcp.storage.BucketLifecycleRuleArgs]:
    """Deletes checkpoints and the remains of broken uploads, and can match nothing else.

    A rule's prefix is literal, so it cannot say `runs/*/*/checkpoints/`. The trainers set the
    custom time of checkpoint objects only, and an object without one never matches
    `daysSinceCustomTime`: adapters and reports stay for good.
    """
    return [
        gcp.storage.BucketLifecycleRuleArgs(
            action=gcp.storage.BucketLifecycleRuleActionArgs(type="Delete"),
            condition=gcp.storage.BucketLifecycleRuleConditionArgs(
                days_since_custom_time=checkpoint_days
            ),
        ),
        gcp.storage.BucketLifecycleRuleArgs(
            action=gcp.storage.BucketLifecycleRuleActionArgs(type="AbortIncompleteMultipartUpload"),
            condition=gcp.storage.BucketLifecycleRuleConditionArgs(age=1),
        ),
    ]
