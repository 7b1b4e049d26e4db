"""Follows a run's log to its end: `python -m workloads.logs RUN [--no-follow]`.

While the run waits, says what for. A restarted run is followed on. Exit code 0 when the run
succeeded, 1 when it failed, 2 when there is no such run.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from workloads.client import NAMESPACE, Cluster, Position, Snapshot, UnreachableError, part
from workloads.overview import FAILED, RunStatus, log_source, overview, pods_of

INTERVAL = 2.0
PATIENCE = 600.0  # seconds without an answer from the API server, once it has given one


def find(runs: Sequence[RunStatus], wanted: str) -> RunStatus | None:
    """The newest run with this name, id or object name."""
    matching = [run for run in runs if wanted in (run.name, run.id, run.object)]
    return matching[-1] if matching else None


def follow(cluster: Cluster, wanted: str, *, to_the_end: bool = True) -> int:
    """Prints the run's log; see the module for the exit code.

    Raises:
        UnreachableError: the cluster cannot be asked, or has not answered for PATIENCE seconds.
    """
    seen: dict[str, Position] = {}
    said = ""
    snapshot = cluster.snapshot()
    while True:
        runs = overview(snapshot)
        run = find(runs, wanted)
        if run is None:
            names = ", ".join(sorted({r.name for r in runs})) or "none"
            missing = f"No run {wanted!r} on the cluster" if wanted else "Which? make logs RUN=NAME"
            print(f"{missing}; there are: {names}", file=sys.stderr)
            return 2
        source = _source(run, snapshot)
        if source is not None and not to_the_end:
            print(cluster.tail(*source, lines=10_000), end="")
            return 0
        if source is not None and (source[0] not in seen or _running(source[0], snapshot)):
            _print(cluster, source, seen)
            snapshot = _again(cluster)
            if not _running(source[0], snapshot):
                _print(cluster, source, seen)  # what it wrote last, had the stream been cut off
            run = find(overview(snapshot), wanted) or run
        if run.ended:
            (final,) = [r for r in overview(snapshot, cluster.tail) if r.object == run.object]
            _say(f"{run.name} ({run.id}): {final.phase}. {final.why}".rstrip(" ."))
            return 1 if run.phase == FAILED else 0
        told = f"{run.name} ({run.id}): {run.phase}. {run.why}"
        if run.why and told != said:
            said = told
            _say(told)
        if not to_the_end:
            return 0
        time.sleep(INTERVAL)
        snapshot = _again(cluster)


def _print(cluster: Cluster, source: tuple[str, str], seen: dict[str, Position]) -> None:
    """The container's log from where we are in it, until its end or that of the stream."""
    for line in cluster.follow(*source, seen.setdefault(source[0], Position())):
        print(line, flush=True)


def _again(cluster: Cluster) -> Snapshot:
    """A new snapshot, however long the API server is away (an upgrade takes minutes)."""
    began = time.monotonic()
    while True:
        try:
            return cluster.snapshot()
        except UnreachableError as error:
            if time.monotonic() - began > PATIENCE:
                raise
            _say(f"{error} Trying again.")
            time.sleep(max(INTERVAL, 10.0))


def _running(pod: str, snapshot: Snapshot) -> bool:
    phases = {p["metadata"]["name"]: part(p, "status").get("phase") for p in snapshot.pods}
    return phases.get(pod) == "Running"


def _source(run: RunStatus, snapshot: Snapshot) -> tuple[str, str] | None:
    (job,) = [job for job in snapshot.jobs if job["metadata"]["name"] == run.object]
    return log_source(pods_of(job, snapshot))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m workloads.logs", description=__doc__)
    parser.add_argument("run", nargs="?", default="", help="its name or id")
    parser.add_argument("--namespace", default=NAMESPACE)
    parser.add_argument("--stack", help="whose cluster; else KUBECONFIG's or the selected stack's")
    parser.add_argument("--no-follow", action="store_true", help="what there is, then end")
    options = parser.parse_args(arguments)
    try:
        cluster = Cluster(options.namespace, options.stack)
        return follow(cluster, options.run, to_the_end=not options.no_follow)
    except UnreachableError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
