"""How the runs' objects fare at scale: 64 machines, 512 GPUs, 16 runs on simulated nodes.

    make bench            or    pytest -q -s tests/bench/scale.py

Prints the time until every GPU is held, what a further run is told, the time until all are free
again, and the memory of each server. The API server, scheduler, controllers and operator are real.
"""

from __future__ import annotations

import time
from pathlib import Path

from tests.engine.workloads.simulation import GPUS, Simulation, manifests, runs_of, wait_until

NODES = 64
RUNS = 16
PER_RUN = NODES // RUNS
RESERVED = {
    "cloud.google.com/reservation-name": "r1",
    "cloud.google.com/reservation-affinity": "specific",
}


def test_scale(tmp_path):
    with Simulation(tmp_path / "scale") as cluster:
        started = time.monotonic()
        cluster.add_nodes(NODES, labels=RESERVED)
        print(f"\n{NODES} machines with {NODES * GPUS} GPUs ready in {since(started)}")
        vision = {"workload": "gemma3-vision", "nodes": PER_RUN}
        text = {"workload": "gemma4-text", "nodes": PER_RUN}
        runs = runs_of({f"run-{n}": text if n % 2 else vision for n in range(RUNS)})
        started = time.monotonic()
        cluster.apply(*(body for run in runs for body in manifests(run)))
        print(f"{len(runs)} runs submitted in {since(started)}")
        wait_until("all machines held", lambda: held(cluster) == NODES, seconds=600)
        print(f"{NODES * GPUS} GPUs held by {len(runs)} runs after {since(started)}")
        assert all(len(nodes) == PER_RUN for nodes in by_run(cluster).values())
        assert len(by_run(cluster)) == RUNS

        (late,) = runs_of({"late": {"workload": "gemma4-text"}})
        cluster.apply(*manifests(late))
        wait_until("the reason", lambda: "no capacity in reservation r1" in cluster.status())
        started = time.monotonic()
        cluster.status()
        print(f"`make status` with {RUNS + 1} runs takes {since(started)}")
        for name, megabytes in memory(cluster).items():
            print(f"  {name:24} {megabytes:6.0f} MB")

        started = time.monotonic()
        cluster.kubectl("delete", "rayjob,job", "--all", "-n", "gemma", "--wait=false")
        wait_until("all machines free", lambda: not cluster.gpu_pods(), seconds=600)
        print(f"all GPUs free {since(started)} after the runs' deletion")


def since(started: float) -> str:
    return f"{time.monotonic() - started:.1f} s"


def by_run(cluster: Simulation) -> dict[str, set[str]]:
    """Machines of each run, by its id."""
    found: dict[str, set[str]] = {}
    for pod in cluster.gpu_pods():
        run = pod["metadata"]["labels"]["gemma.run/id"]
        found.setdefault(run, set()).add(pod["spec"]["nodeName"])
    return found


def held(cluster: Simulation) -> int:
    return len({pod["spec"]["nodeName"] for pod in cluster.gpu_pods()})


def memory(cluster: Simulation) -> dict[str, float]:
    """Resident memory in MB of the servers."""
    names = ("kube-apiserver", "etcd", "kube-scheduler", "kube-controller-manager",
             "kuberay-operator", "kwok")  # fmt: skip
    found: dict[str, float] = {}
    for pid in cluster.sandbox.processes():
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()
            resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / 1e6
        except OSError:
            continue
        if Path(command).name in names:
            found[Path(command).name] = resident
    return found
