"""One run: what it is called, where it lands, and the configs that its pods mount."""

from __future__ import annotations

from dataclasses import dataclass

import yaml

from workloads.accelerators import Accelerator
from workloads.placement import Placement
from workloads.trainers import TRAINERS, Config


@dataclass(frozen=True)
class Run:
    """One run, ready to be written as Kubernetes objects.

    Attributes:
        name: its key in `gemma:runs`.
        workload: the trainer that it names.
        id: ten hex digits, a hash of its content.
        accelerator: the row of the accelerators table.
        placement: where its worker pods land and what they take.
        nodes: worker machines.
        min_nodes: machines to start with; below `nodes` Ray's autoscaler brings the others.
        workers_per_node: processes on each machine, one a GPU.
        trainer: the resolved config of the trainer, without the section `run`.
        attempt: bumped by hand to run the same content again.
        queue: Kueue's LocalQueue, if any.
        cluster: a RayCluster that stays up and that runs share, if any.
        retries: failures after which it is given up (disruptions are not counted).
        max_hours: how long it may run.
        pending_hours: how long it may wait for machines besides.
        wait: whether `pulumi up` waits for its end.
        source: where its machines come from, in words.
    """

    name: str
    workload: str
    id: str
    accelerator: Accelerator
    placement: Placement
    nodes: int
    min_nodes: int
    workers_per_node: int
    trainer: Config
    attempt: int = 1
    queue: str | None = None
    cluster: str | None = None
    retries: int = 3
    max_hours: float = 24
    pending_hours: float = 24
    wait: bool = False
    source: str = "on-demand"

    @property
    def object_name(self) -> str:
        """Name of its Job or RayJob and of its ConfigMap."""
        return f"{self.name}-{self.id}"

    @property
    def kind(self) -> str:
        """RayJob or Job."""
        return TRAINERS[self.workload].kind

    @property
    def device(self) -> str:
        """What the trainer computes on: cuda or cpu."""
        return "cuda" if self.accelerator.has_gpu else "cpu"

    @property
    def path(self) -> str:
        """Its folder inside the bucket, without slashes at the ends."""
        return f"runs/{self.workload}/{self.id}"

    @property
    def labels(self) -> dict[str, str]:
        """Labels of all its objects and pods.

        No app.kubernetes.io/name: KubeRay sets it on Ray's pods, and the selector of the service
        that it makes for a RayJob's head counts on its own value.
        """
        return {
            "app.kubernetes.io/part-of": "gemma",
            "app.kubernetes.io/component": self.workload,
            "gemma.run/name": self.name,
            "gemma.run/id": self.id,
        }

    @property
    def deadline_seconds(self) -> int:
        """Seconds after its start at which it is ended, waiting included.

        Neither a Job nor KubeRay 1.5 can limit the waiting alone, so both have one limit.
        """
        return round((self.pending_hours + self.max_hours) * 3600)

    @property
    def starts(self) -> int:
        """How often it may start, each time with the whole of `deadline_seconds`.

        A Job's deadline covers its retries; KubeRay 1.5 counts anew when it retries a RayJob.
        """
        return self.retries + 1 if self.kind == "RayJob" and self.cluster is None else 1

    @property
    def demand(self) -> str:
        """Its machines, where they come from and what it may cost, as one line for a preview."""
        hours = self.deadline_seconds / 3600
        few = f"{self.min_nodes} to " if self.min_nodes < self.nodes else ""
        if self.accelerator.has_gpu:
            gpus = self.nodes * self.workers_per_node
            machine = self.accelerator.shapes[self.workers_per_node].machine
            what = f"{machine}, {gpus} x {self.accelerator.name}"
            most = f", at most {gpus * hours * self.starts:,.0f} GPU-hours"
        else:
            what, most = f"{self.placement.cpu} CPUs", ""
        shared = ""
        if self.cluster:
            shared, most = f", on the shared cluster {self.cluster}, which stays up", ""
        after = "its submission" if self.starts == 1 else f"each of at most {self.starts} starts"
        return (
            f"{few}{self.nodes} x {what}, {self.source}{shared}; until it is done, at the latest "
            f"{hours:g} h after {after}{most}"
        )

    def config(self, folder: str, image: str) -> str:
        """The text of run.yaml: the trainer's config and the section `run`.

        Args:
            folder: the run's output folder, gs:// or local.
            image: reference of the container image.
        """
        run = {
            "output_dir": folder,
            "name": self.name,
            "id": self.id,
            "workload": self.workload,
            "device": self.device,
            "nodes": self.nodes,
            "workers_per_node": self.workers_per_node,
            "image": image,
        }
        return yaml.safe_dump({**self.trainer, "run": run}, sort_keys=False, allow_unicode=True)

    def launcher_config(self) -> str | None:
        """The text of accelerate.yaml, or None when the trainer has no launcher."""
        launcher = TRAINERS[self.workload].launcher
        if launcher is None:
            return None
        config = launcher(self.trainer, self.nodes, self.workers_per_node, self.device)
        return yaml.safe_dump(config, sort_keys=False)
