"""Takes a stack up again whose deployment was killed: `python -m infra.recover --stack dev`.

The engine notes what it is about to create, and the id once the provider has answered. Killed in
between, it knows neither whether the resource exists nor its id; the next `up` would then meet
"already exists". Here the id is worked out from the noted inputs and the resource put into the
state under it. A refresh of just these then reads what is really there and drops what is not.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

#: Ids as the provider makes them (its import documentation), from a resource's inputs.
IDS = {
    "gcp:artifactregistry/repository:Repository": (
        "projects/{project}/locations/{location}/repositories/{repositoryId}"
    ),
    "gcp:compute/network:Network": "projects/{project}/global/networks/{name}",
    "gcp:compute/router:Router": "projects/{project}/regions/{region}/routers/{name}",
    "gcp:compute/routerNat:RouterNat": "{project}/{region}/{router}/{name}",
    "gcp:compute/subnetwork:Subnetwork": "projects/{project}/regions/{region}/subnetworks/{name}",
    "gcp:container/cluster:Cluster": "projects/{project}/locations/{location}/clusters/{name}",
    "gcp:logging/metric:Metric": "{name}",
    "gcp:serviceaccount/account:Account": (
        "projects/{project}/serviceAccounts/{accountId}@{project}.iam.gserviceaccount.com"
    ),
    "gcp:storage/bucket:Bucket": "{name}",
}
#: Google chooses the id, and would make a second one beside the first.
NAMED_BY_GOOGLE = {
    "gcp:monitoring/alertPolicy:AlertPolicy": "monitoring/alerting/policies",
    "gcp:monitoring/dashboard:Dashboard": "monitoring/dashboards",
    "gcp:monitoring/notificationChannel:NotificationChannel": "monitoring/alerting/notifications",
}


@dataclasses.dataclass(frozen=True)
class Plan:
    """What to do with the unfinished operations of a deployment.

    Attributes:
        state: the exported state with no unfinished operation left.
        adopted: URNs that were put into the state (now, or by a call that was cut off), to be read
            from the provider.
        unsure: URNs that the operation may or may not have changed, to be read as well.
        again: URNs whose creation can simply be repeated: granting twice grants once.
        by_hand: a sentence for each that a person must look at.
    """

    state: dict[str, Any]
    adopted: list[str]
    unsure: list[str]
    again: list[str]
    by_hand: list[str]

    @property
    def found(self) -> bool:
        """Whether anything was unfinished."""
        return bool(self.adopted or self.unsure or self.again or self.by_hand)


def plan(exported: Mapping[str, Any]) -> Plan:
    """Sorts the unfinished operations of a state as `pulumi stack export` prints it."""
    deployment: dict[str, Any] = dict(exported["deployment"])
    resources: list[dict[str, Any]] = list(deployment.get("resources") or [])
    pending: list[dict[str, Any]] = deployment.pop("pending_operations", None) or []
    done = Plan({**exported, "deployment": deployment}, [], [], [], [])
    known = {item["urn"] for item in resources}
    # Put here by an earlier call that was cut off before anything was read: it may not exist.
    done.adopted.extend(
        item["urn"] for item in resources if item["type"] in IDS and not item.get("outputs")
    )
    for operation in pending:
        resource: dict[str, Any] = operation["resource"]
        urn, kind = str(resource["urn"]), str(resource["type"])
        if operation["type"] != "creating":
            done.unsure.extend([urn] if urn in known else [])
        elif kind in NAMED_BY_GOOGLE:
            done.by_hand.append(_look(resource))
        elif kind in IDS and urn not in known:
            resources.append({**resource, "id": identity(resource), "outputs": {}})
            done.adopted.append(urn)
        else:
            done.again.append(urn)
    deployment["resources"] = resources
    return done


def identity(resource: Mapping[str, Any]) -> str:
    """The id that the provider gives to a resource of these inputs."""
    inputs = dict(resource["inputs"])
    if "router" in inputs:
        inputs["router"] = str(inputs["router"]).rsplit("/", 1)[-1]
    return IDS[resource["type"]].format_map(inputs)


def _look(resource: Mapping[str, Any]) -> str:
    page, inputs = NAMED_BY_GOOGLE[resource["type"]], resource["inputs"]
    title = inputs.get("displayName") or json.loads(inputs["dashboardJson"])["displayName"]
    return (
        f"{title!r} may exist without being known to the stack: delete the older of two at "
        f"https://console.cloud.google.com/{page}?project={inputs.get('project', '')}"
    )


def recover(stack: str, pulumi: Callable[..., str]) -> int:
    """Mends the stack's state; returns an exit status.

    Args:
        stack: its name.
        pulumi: runs `pulumi` with the arguments (and `input`) and returns its output.
    """
    pulumi("cancel", "--yes", stack)
    exported = json.loads(pulumi("stack", "export", "--stack", stack))
    work = plan(exported)
    if not work.found:
        print("The last deployment left nothing unfinished.")
        return 0
    pulumi("stack", "import", "--stack", stack, input=json.dumps(work.state))
    reads = [*work.adopted, *work.unsure]
    if reads:
        targets = [part for urn in reads for part in ("--target", urn)]
        pulumi("refresh", "--yes", "--skip-preview", "--stack", stack, *targets)
        after = plan(json.loads(pulumi("stack", "export", "--stack", stack))).state
        there = {item["urn"] for item in after["deployment"]["resources"]}
        for urn in reads:
            print(f"{'taken over' if urn in there else 'does not exist'}: {_short(urn)}")
    for urn in work.again:
        print(f"will be created again: {_short(urn)}")
    for sentence in work.by_hand:
        print(f"look here: {sentence}")
    print(f"Now go on: make up STACK={stack}")
    return 0


def _short(urn: str) -> str:
    kind, name = urn.split("::")[-2:]
    return f"{kind.rsplit('$', 1)[-1]} {name}"


def run_pulumi(*arguments: str, input: str | None = None) -> str:
    """Output of `pulumi ARGUMENTS` in the current folder; raises CalledProcessError."""
    command = ["pulumi", *arguments, "--non-interactive", "--color", "never"]
    return subprocess.run(
        command, check=True, text=True, input=input, stdout=subprocess.PIPE
    ).stdout


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line and returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m infra.recover", description=__doc__)
    parser.add_argument("--stack", default="dev", help="stack to mend (dev)")
    try:
        return recover(parser.parse_args(arguments).stack, run_pulumi)
    except subprocess.CalledProcessError as error:  # the engine has said why
        return error.returncode
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
