"""The stack's configuration as one frozen model; its descriptions are the reference page.

All of it is known at preview. infra/settings.py reads it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pulumi
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from infra.fields import (
    BucketName,
    Cidr,
    ClusterName,
    Days,
    Email,
    ImageReference,
    Instant,
    LabelKey,
    LabelValue,
    NetworkName,
    OwnRange,
    QueueName,
    RangeName,
    Recurrence,
    RunName,
    SecretName,
    SubnetworkName,
)

MOST_NODES = 5000  # of a GKE cluster without a request for more
MOST_HOURS = 365 * 24  # seconds of a deadline must fit 32 bits


class Group(BaseModel):
    """Base of all groups of keys: camelCase outside, snake_case inside, nothing unknown."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        arbitrary_types_allowed=True,
        coerce_numbers_to_str=True,  # `pulumi config set --path` makes a number of 1234
    )


class AuthorizedNetwork(Group):
    """Addresses that may reach the control plane's IP endpoint."""

    name: str = Field(description="Who this is, as shown in the console.")
    cidr: Cidr = Field(description="Their address range.", examples=["203.0.113.0/24"])


class Network(Group):
    """Where the nodes live."""

    name: NetworkName | None = Field(
        default=None,
        description="An existing VPC to use. Unset: a dedicated one is made.",
        examples=["projects/host-project/global/networks/shared"],
    )
    subnetwork: SubnetworkName | None = Field(
        default=None,
        description="Its subnetwork in the stack's region, with Private Google Access.",
        examples=["projects/host-project/regions/us-central1/subnetworks/gke"],
    )
    pods_range: RangeName | None = Field(
        default=None,
        description="Secondary range for pods in that subnetwork. Unset: GKE makes one.",
        examples=["pods"],
    )
    services_range: RangeName | None = Field(
        default=None,
        description="Secondary range for services in that subnetwork. Unset: GKE makes one.",
        examples=["services"],
    )
    cidr: OwnRange = Field(default="10.20.0.0/20", description="Nodes of the dedicated VPC.")
    pods_cidr: OwnRange = Field(default="10.24.0.0/16", description="Pods of the dedicated VPC.")
    services_cidr: OwnRange = Field(
        default="10.28.0.0/20", description="Services of the dedicated VPC."
    )
    private_nodes: bool = Field(
        default=True,
        description="Nodes get no public address; the dedicated VPC then gets a Cloud NAT.",
    )


class Exclusion(Group):
    """A span of time in which GKE leaves the cluster alone."""

    name: str = Field(description="Its name, as shown in the console.", examples=["release-week"])
    start: Instant = Field(description="Its beginning.", examples=["2026-12-20T00:00:00Z"])
    end: Instant | None = Field(
        default=None,
        description="Its end. Unset: the end of the minor version's support.",
        examples=["2027-01-04T00:00:00Z"],
    )
    scope: Literal["NO_UPGRADES", "NO_MINOR_UPGRADES", "NO_MINOR_OR_NODE_UPGRADES"] = Field(
        default="NO_MINOR_OR_NODE_UPGRADES",
        description="What stays away. NO_UPGRADES needs an end at most 30 days later.",
    )


class Maintenance(Group):
    """When GKE may upgrade the control plane and the nodes."""

    start: Instant = Field(
        default="2026-01-03T02:00:00Z", description="Beginning of the first window."
    )
    end: Instant = Field(default="2026-01-03T14:00:00Z", description="End of the first window.")
    recurrence: Recurrence = Field(
        default="FREQ=WEEKLY;BYDAY=SA,SU",
        description="How the window repeats (RFC 5545); GKE wants 48 hours in every 32 days.",
    )
    exclusions: tuple[Exclusion, ...] = Field(
        default=(Exclusion(name="runs", start="2026-01-01T00:00:00Z"),),
        description="Spans without upgrades. The default keeps node upgrades from evicting a run "
        "for as long as the minor version is supported.",
    )


class Cluster(Group):
    """The GKE Autopilot cluster."""

    release_channel: Literal["RAPID", "REGULAR", "STABLE"] = Field(
        default="REGULAR", description="GKE release channel."
    )
    deletion_protection: bool = Field(
        default=False, description="Refuse `pulumi destroy` until this is set to false."
    )
    control_plane: Literal["dns", "ip"] = Field(
        default="dns",
        description="How clients reach the API server: its DNS endpoint (IAM decides, no open "
        "address) or its IP endpoint.",
    )
    authorized_networks: tuple[AuthorizedNetwork, ...] = Field(
        default=(),
        description="Address ranges that may use the IP endpoint. With `dns` and none given, the "
        "IP endpoint is off.",
    )
    maintenance: Maintenance = Field(
        default=Maintenance(), description="Maintenance window and exclusions."
    )


class Bucket(Group):
    """Where adapters, reports and checkpoints go."""

    name: BucketName | None = Field(
        default=None,
        description="Name of the bucket, unique in all of Google Cloud. "
        "Unset: PROJECT-gemma-STACK.",
        examples=["my-team-gemma"],
    )
    force_destroy: bool = Field(
        default=True, description="`pulumi destroy` deletes the bucket with what is in it."
    )
    checkpoint_days: Days = Field(
        default=14, description="Checkpoints are deleted after so many days; nothing else ever is."
    )
    soft_delete_days: Annotated[int, Field(ge=0, le=90)] = Field(
        default=7, description="Deleted objects can be restored for so many days (0: not at all)."
    )
    sources: tuple[BucketName, ...] = Field(
        default=(),
        description="Existing buckets with models or data that the trainer may read.",
    )


class Image(Group):
    """The container image of both trainers."""

    uri: ImageReference | None = Field(
        default=None,
        description="An image by digest to use as it is. Unset: Cloud Build makes it.",
        examples=["us-central1-docker.pkg.dev/p/gemma/trainer@sha256:" + "0" * 64],
    )


class Alerts(Group):
    """Cloud Monitoring alerts."""

    enabled: bool = Field(
        default=True,
        description="Make the alert policies: a run failed, stalled or is idle. Of a Ray run each "
        "failed attempt is told; that its deadline passed is not, `make status` alone shows it.",
    )
    emails: tuple[Email, ...] = Field(
        default=(), description="Who is told. None: incidents are seen in the console only."
    )
    stalled_minutes: Annotated[int, Field(ge=0, le=1410)] = Field(
        default=30,
        description="A run that held its GPUs and logged no step for so long; longer than its "
        "evaluation takes. A cluster that runs share is not watched. 0: no alert.",
    )
    idle_minutes: Annotated[int, Field(ge=0, le=1410)] = Field(
        default=20, description="GPUs allocated and idle for so long. 0: no alert."
    )


class Run(Group):
    """One fine-tuning. Its id is a hash of what it is made of: same inputs, same run."""

    workload: Literal["gemma3-vision", "gemma4-text"] = Field(
        description="Gemma 3 vision QLoRA on Ray, or Gemma 4 text LoRA with FSDP."
    )
    enabled: bool = Field(default=True, description="false: no cluster objects for this run.")
    nodes: Annotated[int, Field(ge=1, le=MOST_NODES)] = Field(
        default=1,
        description="Worker machines. They reach each other over TCP, without RDMA "
        "(docs/adr/0008-tcp-between-machines.md).",
    )
    min_nodes: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="Ray may start with so many and grow to `nodes`.", examples=[1]
    )
    workers_per_node: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="Processes, and GPUs, a machine. Unset: all that the accelerator's node has.",
        examples=[8],
    )
    attempt: Annotated[int, Field(ge=1)] = Field(
        default=1, description="Raise it to train the very same thing again on purpose."
    )
    queue: QueueName | None = Field(
        default=None, description="Kueue LocalQueue.", examples=["gpus"]
    )
    cluster: ClusterName | None = Field(
        default=None,
        description="Name of a RayCluster that stays up and is shared by the runs that name it "
        "(its GPUs stay allocated). Unset: the run has its own, gone when it ends.",
        examples=["shared"],
    )
    retries: Annotated[int, Field(ge=0, le=1000)] = Field(
        default=3, description="Times that a failed run is started again from its checkpoint."
    )
    max_hours: Annotated[float, Field(ge=0.01, le=MOST_HOURS)] = Field(
        default=24,
        description="Hours that the run may take. It is ended maxHours + pendingHours after its "
        "submission: what it did not wait, it may train. A Ray run has them anew at each retry.",
    )
    pending_hours: Annotated[float, Field(ge=0, le=MOST_HOURS)] = Field(
        default=24, description="Hours that the run may wait for its machines."
    )
    wait: bool = Field(default=False, description="`pulumi up` returns when the run has ended.")
    trainer: dict[str, Any] = Field(
        default={},
        description="Overrides of training/WORKLOAD/config.yaml, key by key.",
    )


class Settings(Group):
    """One stack. Attributes that are no config keys: `project`, `region`, `stack`,
    `hugging_face_token` (a secret output, or None)."""

    project: str = Field(exclude=True)
    region: str = Field(exclude=True)
    stack: str = Field(exclude=True)
    hugging_face_token: pulumi.Output[str] | None = Field(default=None, exclude=True)

    environment: Literal["dev", "prod"] = Field(
        default="dev",
        description="Picks the defaults for deletion protection, force-destroy, retention, "
        "release channel and private nodes.",
    )
    accelerator: str = Field(
        default="nvidia-b200",
        description="The GPU of every run, or `cpu`: docs/accelerators.md lists all, with "
        "machines and memory.",
        examples=["nvidia-h100-80gb"],
    )
    capacity: Literal["reservation", "spot", "flex-start", "on-demand"] = Field(
        default="reservation", description="Where the machines come from."
    )
    reservation: str | None = Field(
        default=None,
        description="The reservation to use: NAME, or projects/PROJECT/reservations/NAME, with "
        "/reservationBlocks/BLOCK at its end where one block is meant.",
        examples=["my-reservation"],
    )
    hugging_face_secret: SecretName | None = Field(
        default=None,
        description="An existing Secret Manager secret that holds the Hugging Face token; the "
        "token then never passes through Pulumi's state.",
        examples=["hugging-face-token"],
    )
    labels: dict[LabelKey, LabelValue] = Field(
        default={}, description="Labels for every Google Cloud resource, for cost reports."
    )
    network: Network = Field(default=Network(), description=Network.__doc__)
    cluster: Cluster = Field(default=Cluster(), description=Cluster.__doc__)
    bucket: Bucket = Field(default=Bucket(), description=Bucket.__doc__)
    image: Image = Field(default=Image(), description=Image.__doc__)
    dashboard: bool = Field(default=True, description="Make the Cloud Monitoring dashboard.")
    alerts: Alerts = Field(default=Alerts(), description=Alerts.__doc__)
    runs: dict[RunName, Run] = Field(
        default={}, description="The fine-tunings, by name; several may share a workload."
    )

    @property
    def name(self) -> str:
        """Prefix of all names in Google Cloud."""
        return f"gemma-{self.stack}"

    @property
    def bucket_name(self) -> str:
        return self.bucket.name or f"{self.project.replace(':', '-')}-gemma-{self.stack}"

    @property
    def all_labels(self) -> dict[str, str]:
        """The user's labels and ours; ours win, since cost reports and alerts filter by them."""
        ours = {"app": "gemma", "environment": self.environment, "stack": self.stack}
        return {**self.labels, **ours}
