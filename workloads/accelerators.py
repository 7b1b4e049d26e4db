"""Machines that a run can ask for: pure data, one row for each value of `gemma:accelerator`.

Sources (Google's documentation as of 2026-11):
- names, counts and minimum versions: "Deploy GPU workloads in Autopilot", section Limitations;
- vCPU, memory and local SSD: "GPU machine types" of Compute Engine;
- that H100 machines with fewer than 8 GPUs are Spot or flex-start only: "GPU machine types";
- that a GPU request implies the Accelerator compute class: same page, 1.29.4-gke.1427000;
- that B200 needs an R570 driver and gets it by default from 1.32.1-gke.1729000: "GPU driver
  versions". The `latest` driver is never asked for: it changes under a running project.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

# A GPU request alone selects the Accelerator compute class from here on.
IMPLIED_ACCELERATOR_CLASS = "1.29.4-gke.1427000"
FLEX_START_VERSION = "1.33.0-gke.1712000"
# GKE keeps a flex-start node for at most seven days.
FLEX_START_HOURS = 7 * 24

# What a pod may take of a machine. GKE's own agents and the kubelet need the rest; a request above
# Autopilot's maximum is rejected, and the maximum for B200 is not published: 220 CPU, 2800Gi and
# 1000Gi of disk are known to be admitted on a4-highgpu-8g, and these shares stay below them.
CPU_SHARE = 0.9
MEMORY_SHARE = 0.7
DISK_SHARE = 0.7
BOOT_DISK_GIB = 100
MAX_DISK_GIB = 1000


@dataclass(frozen=True)
class Shape:
    """One machine type.

    Attributes:
        machine: Compute Engine's name of the machine type.
        gpus: GPUs on it (0 for the cpu row).
        vcpus: virtual CPUs.
        memory_gib: memory in GiB.
        local_ssd_gib: local SSD in GiB, 0 when there is none.
        interruptible: sold as Spot and flex-start only.
    """

    machine: str
    gpus: int
    vcpus: int
    memory_gib: int
    local_ssd_gib: int
    interruptible: bool = False


@dataclass(frozen=True)
class Accelerator:
    """A row of the table.

    Attributes:
        name: value of the node label cloud.google.com/gke-accelerator, or "cpu".
        shapes: machines by the number of GPUs that a pod asks for, smallest first.
        minimum_version: oldest GKE version whose Autopilot offers it.
        gpu_memory_gib: memory of one GPU in GiB, 0 for cpu.
        capacities: values of `gemma:capacity` that Google sells it under.
        local_ssd_by_selector: the local SSD has to be asked for by a node selector; where it is
            False the SSD comes with the machine and already holds the ephemeral storage.
    """

    name: str
    shapes: Mapping[int, Shape]
    minimum_version: str
    gpu_memory_gib: int
    capacities: tuple[str, ...] = ("reservation", "spot", "flex-start", "on-demand")
    local_ssd_by_selector: bool = False

    @property
    def has_gpu(self) -> bool:
        """Whether its pods ask for GPUs."""
        return self.gpu_memory_gib > 0

    @property
    def counts(self) -> tuple[int, ...]:
        """GPUs that a pod may ask for, ascending; empty for cpu, where any number will do."""
        return tuple(self.shapes)

    def sold_as(self, gpus: int) -> tuple[str, ...]:
        """Values of `gemma:capacity` that its machine with so many GPUs is sold under."""
        if not self.shapes[gpus].interruptible:
            return self.capacities
        return tuple(kind for kind in self.capacities if kind in ("spot", "flex-start"))

    @property
    def whole_node(self) -> int:
        """Workers on one node when the run does not say: all GPUs of the largest machine."""
        return max(self.shapes, default=1)


def _row(
    name: str,
    minimum_version: str,
    gpu_memory_gib: int,
    *shapes: Shape,
    local_ssd_by_selector: bool = False,
) -> Accelerator:
    return Accelerator(
        name=name,
        shapes=MappingProxyType({shape.gpus: shape for shape in shapes}),
        minimum_version=minimum_version,
        gpu_memory_gib=gpu_memory_gib,
        local_ssd_by_selector=local_ssd_by_selector,
    )


ACCELERATORS: Mapping[str, Accelerator] = MappingProxyType(
    {
        row.name: row
        for row in (
            _row(
                "nvidia-b200",
                "1.32.2-gke.1422000",
                180,
                Shape("a4-highgpu-8g", 8, 224, 3968, 12000),
            ),
            _row(
                "nvidia-h200-141gb",
                "1.31.4-gke.1183000",
                141,
                Shape("a3-ultragpu-8g", 8, 224, 2952, 12000),
            ),
            _row(
                "nvidia-h100-mega-80gb",
                "1.29.4-gke.1542000",
                80,
                Shape("a3-megagpu-8g", 8, 208, 1872, 6000),
            ),
            _row(
                "nvidia-h100-80gb",
                "1.31.4-gke.1072000",  # the machines with 1, 2 and 4 GPUs; 8 came before
                80,
                Shape("a3-highgpu-1g", 1, 26, 234, 750, interruptible=True),
                Shape("a3-highgpu-2g", 2, 52, 468, 1500, interruptible=True),
                Shape("a3-highgpu-4g", 4, 104, 936, 3000, interruptible=True),
                Shape("a3-highgpu-8g", 8, 208, 1872, 6000),
            ),
            _row(
                "nvidia-a100-80gb",
                IMPLIED_ACCELERATOR_CLASS,
                80,
                Shape("a2-ultragpu-1g", 1, 12, 170, 375),
                Shape("a2-ultragpu-2g", 2, 24, 340, 750),
                Shape("a2-ultragpu-4g", 4, 48, 680, 1500),
                Shape("a2-ultragpu-8g", 8, 96, 1360, 3000),
                local_ssd_by_selector=True,
            ),
            _row(
                "nvidia-rtx-pro-6000",
                "1.34.1-gke.1829001",
                96,
                Shape("g4-standard-48", 1, 48, 180, 1500),
                Shape("g4-standard-96", 2, 96, 360, 3000),
                Shape("g4-standard-192", 4, 192, 720, 6000),
                Shape("g4-standard-384", 8, 384, 1440, 12000),
                local_ssd_by_selector=True,
            ),
            _row(
                "nvidia-l4",
                IMPLIED_ACCELERATOR_CLASS,
                24,
                Shape("g2-standard-16", 1, 16, 64, 375),
                Shape("g2-standard-24", 2, 24, 96, 750),
                Shape("g2-standard-48", 4, 48, 192, 1500),
                Shape("g2-standard-96", 8, 96, 384, 3000),
                local_ssd_by_selector=True,
            ),
            # No GPU, no reservation: trial runs and the sandbox. Any number of workers.
            Accelerator(
                name="cpu",
                shapes=MappingProxyType({}),
                minimum_version="1.29.4-gke.1427000",
                gpu_memory_gib=0,
                capacities=("on-demand", "spot"),
            ),
        )
    }
)


def version_key(version: str) -> tuple[int, ...]:
    """A GKE version such as 1.32.2-gke.1422000 as numbers that compare in its order."""
    return tuple(int(number) for number in re.findall(r"\d+", version))
