"""The sandbox itself: a real control plane, pods as processes, and an end that leaves nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox import Sandbox, SandboxBusyError, SandboxError
from sandbox.folder import REPOSITORY

DIGEST = "5" * 64
IMAGE = f"registry/trainer@sha256:{DIGEST}"
DOCKERFILE = 'FROM python:3.11\nWORKDIR /app\nENV GREETING="from the image"\nCOPY . .\n'
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}


def give_image(folder: Path) -> None:
    """What the Cloud Build stand-in leaves for an image."""
    files = folder / "images" / f"sha256-{DIGEST}"
    files.mkdir(parents=True)
    (files / "Dockerfile").write_text(DOCKERFILE)
    (files / "greet.py").write_text("import os; print(os.environ['GREETING'])")


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A sandbox that runs pods, with an image and the namespace `t`."""
    folder = tmp_path_factory.mktemp("cloud")
    give_image(folder)
    with Sandbox(folder) as running:
        make_namespace(running)
        yield running


def make_namespace(cloud: Sandbox) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    apply(
        cloud,
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "t", "labels": labels}},
    )
    until("the service account", lambda: cloud.kubectl("get", "sa", "default", "-nt", check=False))


def apply(cloud: Sandbox, *manifests: dict[str, Any]) -> None:
    items = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
    # Without kubectl's own validation: the schema of a CRD is slow to be had after its creation.
    cloud.kubectl("apply", "--validate=false", "-f", "-", input=json.dumps(items))


def until(what: str, true: Callable[[], Any], seconds: float = 120, every: float = 0.2) -> Any:
    deadline = time.monotonic() + seconds
    while not (value := true()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(every)
    return value


def pod(name: str, script: str, **spec: Any) -> dict[str, Any]:
    """A pod that runs a shell script under the `restricted` profile."""
    container = {
        "name": "main",
        "image": IMAGE,
        "command": ["bash", "-c", script],
        "securityContext": RESTRICTED,
        **spec.pop("container", {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "t", "labels": {"app": name}},
        "spec": {
            "restartPolicy": "Never",
            "securityContext": {
                "runAsUser": 1000,
                "runAsGroup": 1000,
                "runAsNonRoot": True,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
            **spec,
        },
    }


def look(cloud: Sandbox, name: str, kind: str = "pod") -> dict[str, Any]:
    (found,) = cloud.objects(kind, name, "-nt")
    return found


def wait_for_phase(cloud: Sandbox, name: str, *phases: str) -> dict[str, Any]:
    return until(
        f"pod {name} {phases}",
        lambda: (found := look(cloud, name))["status"]["phase"] in phases and found,
    )


def log(cloud: Sandbox, name: str, *options: str) -> str:
    return cloud.kubectl("logs", name, "-nt", *options)


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
    reason = until(
        "a reason",
        lambda: [
            status["state"]["waiting"]["reason"]
            for status in look(cloud, "unbuilt")["status"].get("containerStatuses", [])
        ],
    )
    assert reason[0] in ("ErrImagePull", "ImagePullBackOff")
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


def test_two_sandboxes_side_by_side_do_not_meet(cloud: Sandbox, sandbox: Sandbox):
    namespaces = sandbox.kubectl("get", "namespaces", "-o", "name").split()
    assert "namespace/t" not in namespaces
    assert not set(cloud.processes()) & set(sandbox.processes())


def test_held_pods_run_without_a_process(sandbox: Sandbox):
    make_namespace(sandbox)
    apply(sandbox, pod("held", "exit 1"))
    wait_for_phase(sandbox, "held", "Running")
    sandbox.kubectl("delete", "pod", "held", "-nt")


def test_a_running_folder_is_not_started_twice(cloud: Sandbox):
    with pytest.raises(SandboxBusyError):
        Sandbox(cloud.folder.root).start()
    joined = Sandbox.join(cloud.folder.root)
    assert "namespace/t" in joined.kubectl("get", "namespaces", "-o", "name").split()


def test_a_server_that_cannot_start_shows_its_log(tmp_path: Path):
    (tmp_path / "etcd").write_text("not a folder")
    with pytest.raises(SandboxError, match=r"(?s)etcd ended with exit code 1.*not a directory"):
        Sandbox(tmp_path).start()


def test_state_outlives_a_kill_and_lost_pods_are_seen_as_lost(tmp_path: Path):
    give_image(tmp_path)
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
    )
    try:
        assert starter.stdout is not None
        assert starter.stdout.readline() == "ready\n"
        first = Sandbox.join(tmp_path)
        make_namespace(first)
        always, never = pod("always", "echo up; sleep 600"), pod("never", "echo up; sleep 600")
        always["spec"]["restartPolicy"] = "Always"
        apply(first, always, never)
        for name in ("always", "never"):
            wait_for_phase(first, name, "Running")
        inside = first.processes()
        assert len(inside) > 8  # the servers and two pods
    finally:
        starter.kill()
        starter.wait()
    until("all processes to end", lambda: not [pid for pid in inside if alive(pid)], seconds=10)

    with Sandbox(tmp_path) as second:
        assert second.was_killed
        lost = wait_for_phase(second, "never", "Failed")["status"]["containerStatuses"][0]
        assert lost["state"]["terminated"]["exitCode"] == 137
        until(
            "the other one's second start",
            lambda: (
                [
                    status["restartCount"]
                    for status in look(second, "always")["status"]["containerStatuses"]
                    if "running" in status["state"]
                ]
                == [1]
            ),
        )
        inside = second.processes()
    assert not [pid for pid in inside if alive(pid)]
    assert second.folder.clean_end.exists()


STARTER = """
import sys, time
from sandbox import Sandbox
sandbox = Sandbox(sys.argv[1])
sandbox.start()
print("ready", flush=True)
time.sleep(600)
"""


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    return state != "Z"


def test_an_interrupted_command_ends_the_sandbox_it_started(tmp_path: Path):
    command = [sys.executable, "-m", "sandbox", "--folder", str(tmp_path), "exec", "--"]
    process = subprocess.Popen(
        [*command, "sh", "-c", "echo up; exec sleep 600"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    inside = Sandbox.join(tmp_path).processes()
    os.killpg(process.pid, signal.SIGINT)  # what Ctrl-C does
    assert process.wait(60) != 0
    assert not [pid for pid in inside if alive(pid)]


def test_a_ray_job_runs_to_its_end_through_the_operator(cloud: Sandbox):
    marker = cloud.folder.cloud / "cluster.json"
    marker.write_text(json.dumps({"name": "c", "ray": True}))
    until("KubeRay's CRDs", lambda: "rayjobs" in cloud.kubectl("api-resources", check=False))

    def template(name: str) -> dict[str, Any]:
        spec = pod("x", "")["spec"]
        spec["restartPolicy"] = "Never" if name == "submitter" else "Always"
        spec["containers"] = [
            {
                "name": name,
                "image": IMAGE,
                "securityContext": {**RESTRICTED, "readOnlyRootFilesystem": False},
                "resources": {"limits": {"cpu": "1", "memory": "2Gi"}},
            }
        ]
        spec["terminationGracePeriodSeconds"] = 1
        return {"spec": spec}

    code = "import ray; ray.init(); print('CPUs:', ray.cluster_resources()['CPU'])"
    ray_job = {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": "tiny", "namespace": "t"},
        "spec": {
            "entrypoint": f'python -c "{code}"',
            "shutdownAfterJobFinishes": True,
            "submitterPodTemplate": template("submitter"),
            "rayClusterSpec": {
                "headGroupSpec": {
                    "rayStartParams": {"num-cpus": "0"},
                    "template": template("head"),
                },
                "workerGroupSpecs": [
                    {
                        "groupName": "w",
                        "replicas": 1,
                        "minReplicas": 1,
                        "maxReplicas": 1,
                        "rayStartParams": {},
                        "template": template("worker"),
                    }
                ],
            },
        },
    }
    apply(cloud, ray_job)
    status = until(
        "the RayJob's end",
        lambda: (
            (found := look(cloud, "tiny", "rayjob").get("status", {})).get("jobDeploymentStatus")
            in ("Complete", "Failed")
            and found
        ),
        seconds=400,
        every=3,
    )
    assert status["jobStatus"] == "SUCCEEDED"
    output = cloud.kubectl("logs", "-nt", "-l", "job-name=tiny", "--tail=-1")
    assert "CPUs: 1.0" in output

    # The cluster's end takes along all that was in it.
    marker.unlink()
    until("the namespace's end", lambda: not cloud.kubectl("get", "ns", "t", check=False))
    assert "ray.io" not in cloud.kubectl("get", "crd", check=False)
