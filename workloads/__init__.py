"""The runs on Kubernetes: what they may ask for, where they land, and the objects that run them."""

from workloads.checks import problems
from workloads.deployment import FineTuning, Surroundings, deploy
from workloads.network_policy import isolate
from workloads.placement import minimum_version
from workloads.run import Run
from workloads.runs import plan

__all__ = [
    "FineTuning",
    "Run",
    "Surroundings",
    "deploy",
    "isolate",
    "minimum_version",
    "plan",
    "problems",
]
