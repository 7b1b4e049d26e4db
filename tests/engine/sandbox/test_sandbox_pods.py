"""Pods as the sandbox's node runs them, against what a kubelet would do."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from sandbox import Sandbox, SandboxError
from sandbox.folder import REPOSITORY
from tests.engine.sandbox.kit import IMAGE, RESTRICTED, apply, log, look, pod, until, wait_for_phase


def test_a_pod_finds_what_its_spec_says(cloud: Sandbox):
    script = """
        id -u; pwd; python greet.py
        cat /etc/gemma/run.yaml; cat /secret/token; echo; stat -c %a /etc/gemma/..data/token \
            /secret/token 2>/dev/null
        cat /scratch/from-init
        echo "cpu $(CPU) ip $(IP) label $(LABEL) all $X_run.yaml"
        touch /root-is-writable /app/too /etc/gemma/run.yaml || true
        touch /scratch/ok /dev/shm/ok && echo volumes are writable
        test -s /var/run/secrets/kubernetes.io/serviceaccount/token && echo token
        ls -d HOME/.ssh REPOSITORY/infra /var/log 2>&1 | grep -c 'No such file'
        hostname
        timeout 5 bash -c '</dev/tcp/1.1.1.1/53' 2>&1 | grep -o unreachable
    """
    script = script.replace("REPOSITORY", str(REPOSITORY)).replace("HOME", str(Path.home()))
    volumes: list[dict[str, Any]] = [
        {"name": "work", "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}},
        {"name": "config", "configMap": {"name": "config"}},
        {"name": "secret", "secret": {"secretName": "secret", "defaultMode": 0o400}},
    ]
    container = {
        "env": [
            {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "LABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}},
        ],
        "resources": {"limits": {"cpu": "3", "memory": "1Gi"}},
        "volumeMounts": [
            {"name": "work", "mountPath": "/scratch"},
            {"name": "shm", "mountPath": "/dev/shm"},
            {"name": "config", "mountPath": "/etc/gemma"},
            {"name": "secret", "mountPath": "/secret"},
        ],
    }
    first = {
        "name": "first",
        "image": IMAGE,
        "command": ["sh", "-c", "echo init ran > /scratch/from-init"],
        "securityContext": RESTRICTED,
        "volumeMounts": [{"name": "work", "mountPath": "/scratch"}],
    }
    apply(
        cloud,
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "config", "namespace": "t"},
            "data": {"run.yaml": "lr: 1\n"},
        },
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "secret", "namespace": "t"},
            "stringData": {"token": "hf_1"},
        },
        pod("spec", script, container=container, volumes=volumes, initContainers=[first]),
    )
    found = wait_for_phase(cloud, "spec", "Succeeded", "Failed")
    lines = log(cloud, "spec").splitlines()
    address = found["status"]["podIP"]
    for expected in (
        "1000",
        "/app",
        "from the image",
        "lr: 1",
        "hf_1",
        "400",
        "init ran",
        f"cpu 3 ip {address} label spec all $X_run.yaml".replace("$X_run.yaml", ".yaml"),
        "touch: cannot touch '/root-is-writable': Read-only file system",
        "touch: cannot touch '/app/too': Read-only file system",
        "volumes are writable",
        "token",
        "3",
        "spec",
        "unreachable",
    ):
        assert expected in lines, (expected, lines)
    assert found["status"]["phase"] == "Succeeded"
    assert found["status"]["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 0


def test_pod_security_is_enforced(cloud: Sandbox):
    loose = pod("loose", "true", container={"securityContext": {"privileged": True}})
    with pytest.raises(SandboxError, match="violates PodSecurity"):
        apply(cloud, loose)


def test_an_image_that_was_never_built_is_not_pulled(cloud: Sandbox):
    apply(cloud, pod("unbuilt", "true", container={"image": f"r/i@sha256:{'0' * 64}"}))

    def reasons() -> set[str]:
        found = look(cloud, "unbuilt")["status"].get("containerStatuses", [])
        # The pod gets its address, and says so, before its image.
        return {status["state"]["waiting"]["reason"] for status in found} - {"ContainerCreating"}

    (reason,) = until("a reason", reasons)
    assert reason in ("ErrImagePull", "ImagePullBackOff")
    cloud.kubectl("delete", "pod", "unbuilt", "-nt")


def test_a_failing_container_is_restarted_with_a_fresh_root(cloud: Sandbox):
    script = """
        test -e /scratch/again && { ls /tmp/marker; exit 0; }
        touch /scratch/again /tmp/marker; exit 3
    """
    writable = {**RESTRICTED, "readOnlyRootFilesystem": False}
    mounts = [{"name": "work", "mountPath": "/scratch"}]
    container = {"securityContext": writable, "volumeMounts": mounts}
    volumes = [{"name": "work", "emptyDir": {}}]
    apply(
        cloud,
        pod("again", script, container=container, volumes=volumes, restartPolicy="OnFailure"),
    )
    (status,) = wait_for_phase(cloud, "again", "Succeeded")["status"]["containerStatuses"]
    assert status["restartCount"] == 1
    assert status["lastState"]["terminated"]["exitCode"] == 3
    assert "No such file" in log(cloud, "again")
    assert log(cloud, "again", "--previous") == ""


def test_a_job_gives_up_after_its_backoff_limit(cloud: Sandbox):
    template = {"spec": pod("x", "exit 78")["spec"]}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "gives-up", "namespace": "t"},
        "spec": {"backoffLimit": 0, "template": template},
    }
    apply(cloud, job)
    cloud.kubectl("wait", "job/gives-up", "-nt", "--for=condition=Failed", "--timeout=120s")
    (failed,) = cloud.objects("pods", "-nt", "-l", "job-name=gives-up")
    assert failed["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 78


def test_deletion_asks_first_and_kills_later(cloud: Sandbox):
    polite = "trap 'echo asked; exit 0' TERM; echo up; while :; do sleep 0.1; done"
    deaf = "trap '' TERM; echo up; while :; do sleep 0.1; done"
    apply(
        cloud,
        pod("polite", polite, terminationGracePeriodSeconds=60),
        pod("deaf", deaf, terminationGracePeriodSeconds=1),
    )
    for name in ("polite", "deaf"):
        until(
            f"{name} up", lambda name=name: "up" in cloud.kubectl("logs", name, "-nt", check=False)
        )
    before = time.monotonic()
    cloud.kubectl("delete", "pod", "polite", "deaf", "-nt", "--wait=true")
    assert time.monotonic() - before < 55  # the polite one did not use up its minute
    (file,) = cloud.folder.pod_logs.glob("t_polite_*/main/0.log")
    assert file.read_text().splitlines() == ["up", "asked"]


def test_readiness_decides_who_answers_to_a_service(cloud: Sandbox):
    container = {
        "readinessProbe": {"exec": {"command": ["cat", "/scratch/ready"]}, "periodSeconds": 1}
    }
    container |= {"volumeMounts": [{"name": "work", "mountPath": "/scratch"}]}
    server = pod(
        "server",
        "while ! getent hosts client; do sleep 0.2; done; sleep 2; touch /scratch/ready; sleep 600",
        container=container,
        volumes=[{"name": "work", "emptyDir": {}}],
        terminationGracePeriodSeconds=0,
    )
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "namespace": "t"},
        "spec": {"selector": {"app": "server"}, "ports": [{"port": 80}]},
    }
    client = "while ! getent hosts web.t.svc.cluster.local; do sleep 0.2; done"
    apply(cloud, server, service, pod("client", client))
    wait_for_phase(cloud, "client", "Succeeded")
    address = look(cloud, "server")["status"]["podIP"]
    assert log(cloud, "client").split()[0] == address
    cloud.kubectl("delete", "pod", "server", "-nt")


def test_an_idle_pod_costs_no_requests(cloud: Sandbox):
    apply(cloud, pod("idle", "sleep 600", terminationGracePeriodSeconds=0))
    wait_for_phase(cloud, "idle", "Running")
    time.sleep(1)
    before = look(cloud, "idle")["metadata"]["resourceVersion"]
    time.sleep(3)
    assert look(cloud, "idle")["metadata"]["resourceVersion"] == before
    cloud.kubectl("delete", "pod", "idle", "-nt")
