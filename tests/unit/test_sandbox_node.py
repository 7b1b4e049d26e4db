"""What the sandbox's node works out from a pod's spec, held against Kubernetes' own rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sandbox import containers, hosts, images, logs, podstatus, variables

POD: dict[str, Any] = {
    "metadata": {
        "name": "p",
        "namespace": "n",
        "uid": "u",
        "labels": {"a/b": "c"},
        "annotations": {"batch.kubernetes.io/job-completion-index": "3"},
    },
    "spec": {"containers": [], "serviceAccountName": "sa"},
    "status": {"podIP": "10.77.1.9"},
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(A)-$(A)", "1-1"),
        ("$(MISSING)", "$(MISSING)"),
        ("$$(A)", "$(A)"),
        ("$A ${A}", "$A ${A}"),
        ("$$$(A)", "$1"),
    ],
)
def test_references_expand_as_in_a_kubelet(text: str, expected: str):
    assert variables.expand(text, {"A": "1"}) == expected


@pytest.mark.parametrize(
    ("text", "number"),
    [("500m", 0.5), ("2", 2), ("1Gi", 2**30), ("1.5G", 1.5e9), ("1e3", 1000), ("64Ki", 65536)],
)
def test_quantities(text: str, number: float):
    assert variables.quantity(text) == number


def test_variables_refer_to_earlier_ones_fields_resources_and_objects():
    container = {
        "name": "c",
        "resources": {"limits": {"cpu": "1500m", "memory": "2Gi"}},
        "envFrom": [{"prefix": "P_", "configMapRef": {"name": "cm"}}],
        "env": [
            {"name": "FIRST", "value": "1"},
            {"name": "SECOND", "value": "$(FIRST)$(P_x)$(THIRD)"},
            {"name": "THIRD", "value": "late"},
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {
                "name": "INDEX",
                "valueFrom": {
                    "fieldRef": {
                        "fieldPath": "metadata.annotations"
                        "['batch.kubernetes.io/job-completion-index']"
                    }
                },
            },
            {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
            {
                "name": "MB",
                "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}},
            },
            {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "token"}}},
            {
                "name": "NONE",
                "valueFrom": {"secretKeyRef": {"name": "no", "key": "k", "optional": True}},
            },
        ],
    }
    objects = {("configmaps", "cm"): {"x": "y"}, ("secrets", "s"): {"token": "hf"}}
    values = variables.environment(
        container, POD, lambda kind, name: objects.get((kind, name)), {"BASE": "b"}, {"cpu": "64"}
    )
    assert values == {
        "BASE": "b",
        "P_x": "y",
        "FIRST": "1",
        "SECOND": "1y$(THIRD)",
        "THIRD": "late",
        "IP": "10.77.1.9",
        "INDEX": "3",
        "CPU": "2",  # rounded up
        "MB": "2048",
        "TOKEN": "hf",
    }


def test_a_missing_secret_is_the_error_that_kubectl_would_show():
    container = {
        "env": [{"name": "T", "valueFrom": {"secretKeyRef": {"name": "gone", "key": "token"}}}]
    }
    with pytest.raises(variables.ConfigurationError, match='secret "gone" not found'):
        variables.environment(container, POD, lambda kind, name: None, {}, {})


DOCKERFILE = """\
# syntax=docker/dockerfile:1
ARG BASE=python:3.11
FROM ${BASE} AS build
ENV STAGE=build
WORKDIR /src
FROM build AS second
ENV PATH="/opt/venv/bin:$PATH" \\
    # a comment inside an instruction
    GREETING="hello world"
WORKDIR app
USER 1000:2000
ENTRYPOINT ["python", "-m"]
CMD ["one", "two"]
"""


def test_an_image_has_what_the_last_stage_of_its_dockerfile_says():
    image = images.parse(DOCKERFILE, Path("/files"))
    assert image.environment["STAGE"] == "build"
    assert image.environment["GREETING"] == "hello world"
    assert image.environment["PATH"].startswith("/opt/venv/bin:/usr/local/sbin:")
    assert "$" not in image.environment["PATH"]
    assert (image.workdir, image.user) == ("/src/app", "1000:2000")
    assert (image.entrypoint, image.command) == (("python", "-m"), ("one", "two"))


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        ({}, ["python", "-m", "one", "two"]),
        ({"args": ["x"]}, ["python", "-m", "x"]),
        ({"command": ["sh"]}, ["sh"]),
        ({"command": ["sh"], "args": ["$(N)"]}, ["sh", "7"]),
    ],
)
def test_command_and_args_override_the_image(container: dict[str, Any], expected: list[str]):
    image = images.parse(DOCKERFILE, Path("/files"))
    assert variables.command_line(container, image, {"N": "7"}) == expected


def test_only_built_images_exist(tmp_path: Path):
    with pytest.raises(images.ImageError, match="not found"):
        images.resolve(tmp_path, f"r/i@sha256:{'0' * 64}")
    with pytest.raises(images.ImageError, match="no sha256 digest"):
        images.resolve(tmp_path, "r/i:latest")


def test_root_is_refused_where_the_pod_forbids_it():
    pod = {"spec": {"securityContext": {"runAsNonRoot": True}}}
    root = images.Image(Path("/"))
    with pytest.raises(variables.ConfigurationError, match="image will run as root"):
        containers.security({}, pod, root)
    given = containers.security({"securityContext": {"runAsUser": 1000}}, pod, root)
    assert (given.user, given.all_capabilities_dropped) == (1000, True)
    named = images.Image(Path("/"), user="trainer")
    with pytest.raises(variables.ConfigurationError, match="non-numeric user"):
        containers.security({}, pod, named)


def pod(name: str, address: str, ready: bool, **spec: Any) -> dict[str, Any]:
    value = "True" if ready else "False"
    return {
        "metadata": {"name": name, "namespace": "n", "labels": {"app": "x"}},
        "spec": spec,
        "status": {
            "podIP": address,
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": value}],
        },
    }


def addresses(text: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for line in text.splitlines():
        address, *names = line.split()
        for name in names:
            found.setdefault(name, set()).add(address)
    return found


def test_services_lead_to_their_ready_pods():
    pods = [pod("a", "10.77.1.1", True), pod("b", "10.77.1.2", False), pod("c", "10.77.1.3", True)]
    service = {"metadata": {"name": "s", "namespace": "n"}, "spec": {"selector": {"app": "x"}}}
    found = addresses(hosts.table([service], pods))
    for name in ("s", "s.n", "s.n.svc", "s.n.svc.cluster.local"):
        assert found[name] == {"10.77.1.1", "10.77.1.3"}
    assert found["kubernetes.default.svc"] == {"10.77.0.1"}
    service["spec"]["publishNotReadyAddresses"] = True
    assert "10.77.1.2" in addresses(hosts.table([service], pods))["s.n.svc"]
    service["metadata"]["namespace"] = "other"
    assert "s.other.svc" not in addresses(hosts.table([service], pods))


def test_pods_of_an_indexed_job_have_names_in_their_service():
    service = {
        "metadata": {"name": "j", "namespace": "n"},
        "spec": {"selector": {"app": "x"}, "publishNotReadyAddresses": True},
    }
    pods = [
        pod(f"j-0-{name}", f"10.77.1.{number}", False, hostname="j-0", subdomain="j")
        for number, name in enumerate(("abc", "ended-before"), start=1)
    ]
    pods[1]["status"]["phase"] = "Failed"
    found = addresses(hosts.table([service], pods))
    for name in ("j-0.j.n.svc.cluster.local", "j-0.j", "j-0"):
        assert found[name] == {"10.77.1.1"}


def test_phases():
    done = {"terminated": {"exitCode": 0}}
    failed = {"terminated": {"exitCode": 3}}
    waiting = podstatus.Condition({"name": "c"})
    running = podstatus.Condition({"name": "c"}, state={"running": {}}, number=0)
    crashed = podstatus.Condition({"name": "c"}, number=0)  # waits for its restart
    good = podstatus.Condition({"name": "c"}, state=done, done=True, number=0)
    bad = podstatus.Condition({"name": "c"}, state=failed, done=True, number=0)
    assert podstatus.phase([], [waiting]) == "Pending"
    assert podstatus.phase([running], [waiting]) == "Pending"
    assert podstatus.phase([], [running, good]) == "Running"
    assert podstatus.phase([], [crashed]) == "Running"
    assert podstatus.phase([], [good, good]) == "Succeeded"
    assert podstatus.phase([], [good, bad]) == "Failed"
    assert podstatus.phase([bad], [waiting]) == "Failed"


def test_conditions_keep_their_times_and_those_of_others():
    old = [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": "then"},
        {"type": "Ready", "status": "False", "lastTransitionTime": "then"},
        {"type": "Initialized", "status": "False", "lastTransitionTime": "then"},
    ]
    shown = {**POD, "status": {"conditions": old}}
    main = podstatus.Condition({"name": "c"}, state={"running": {}}, number=0)
    status = podstatus.status(shown, "10.77.1.1", [], [main], "began")
    by_type = {condition["type"]: condition for condition in status["conditions"]}
    assert by_type["PodScheduled"] == old[0]
    assert by_type["Ready"]["lastTransitionTime"] == "then"  # still false
    assert by_type["Initialized"]["lastTransitionTime"] != "then"  # became true


@pytest.mark.parametrize(
    ("content", "lines", "expected"),
    [("a\nb\nc\n", 2, "b\nc\n"), ("a\nb\nc", 1, "c"), ("a\n", 5, "a\n"), ("a\n", 0, "")],
)
def test_tail(tmp_path: Path, content: str, lines: int, expected: str):
    file = tmp_path / "log"
    file.write_text(content)
    assert content[logs.tail_offset(file, lines) :] == expected
