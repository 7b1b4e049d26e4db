"""The resource types of the stand-in, by token."""

from __future__ import annotations

from functools import cache

from . import compute, container, iam, project, storage
from .base import Kind

CLASSES: tuple[type[Kind], ...] = (
    compute.Firewall,
    compute.Network,
    compute.Router,
    compute.RouterNat,
    compute.Subnetwork,
    container.Cluster,
    iam.Account,
    iam.AccountMember,
    iam.BucketMember,
    iam.CustomRole,
    iam.ProjectMember,
    iam.RepositoryMember,
    iam.SecretMember,
    iam.WorkloadIdentityPool,
    iam.WorkloadIdentityPoolProvider,
    project.AlertPolicy,
    project.Budget,
    project.Dashboard,
    project.LogBucket,
    project.LogMetric,
    project.NotificationChannel,
    project.Repository,
    project.Secret,
    project.SecretVersion,
    project.Service,
    project.ServiceIdentity,
    storage.Bucket,
    storage.BucketObject,
)
BY_TOKEN = {kind.token: kind for kind in CLASSES}


@cache
def kind(token: str) -> Kind:
    """The behaviour of a resource type. Raises KeyError for one that the stand-in lacks."""
    return BY_TOKEN[token]()
