"""Runs on simulated machines: where they land, why they wait, what happens when machines go.

Nodes have the shapes, labels and taints of Google's; scheduler, controllers and KubeRay are real.
"""

from __future__ import annotations

import pytest

from tests.engine.workloads.dashboard import RayDashboard
from tests.engine.workloads.simulation import GPUS, gpus, manifests, runs_of, wait_until

RESERVED = {
    "cloud.google.com/reservation-name": "r1",
    "cloud.google.com/reservation-affinity": "specific",
}
SPOT = {"cloud.google.com/gke-spot": "true"}
VISION = {"workload": "gemma3-vision", "nodes": 2}
TEXT = {"workload": "gemma4-text"}


def placed(cluster, run):
    """Bound GPU pods of a run, by node."""
    return {
        pod["spec"]["nodeName"]: gpus(pod)
        for pod in cluster.gpu_pods()
        if pod["metadata"]["labels"]["gemma.run/id"] == run.id
    }


def test_runs_land_whole_on_reserved_machines_only(cluster):
    reserved = cluster.add_nodes(3, labels=RESERVED)
    cluster.add_nodes(
        3, prefix="other", labels={**RESERVED, "cloud.google.com/reservation-name": "x"}
    )
    cluster.add_nodes(3, prefix="unreserved")
    vision, text = runs_of({"vision": VISION, "sql": TEXT})
    cluster.apply(*manifests(vision), *manifests(text))
    wait_until("two machines for vision", lambda: len(placed(cluster, vision)) == 2)
    wait_until("one machine for text", lambda: len(placed(cluster, text)) == 1)
    machines = {**placed(cluster, vision), **placed(cluster, text)}
    assert machines == dict.fromkeys(reserved, GPUS)
    (head,) = cluster.pods(**{"ray.io/node-type": "head"})
    assert gpus(head) == 0
    assert head["spec"]["nodeName"] == "sandbox"


def test_a_full_reservation_leaves_runs_waiting(cluster):
    cluster.add_nodes(2, labels=RESERVED)
    cluster.add_nodes(2, prefix="spot", labels=SPOT)
    first, second = runs_of({"first": VISION, "second": TEXT})
    cluster.apply(*manifests(first))
    wait_until("machines for the first", lambda: len(placed(cluster, first)) == 2)
    cluster.apply(*manifests(second))

    text = wait_until(
        "the reason in words",
        lambda: "no capacity in reservation r1" in (t := cluster.status()) and t,
    )
    assert "8 x nvidia-b200" in text
    assert "Insufficient nvidia.com/gpu" in text
    assert placed(cluster, second) == {}


def test_a_spot_machine_taken_away_is_replaced_and_the_job_goes_on(cluster):
    cluster.add_nodes(2, prefix="spot", labels=SPOT)
    (text,) = runs_of({"sql": {**TEXT, "retries": 0}}, capacity="spot", reservation=None)
    cluster.apply(*manifests(text))
    (before,) = wait_until("a machine", lambda: placed(cluster, text))
    cluster.take_away(before)
    wait_until("another machine", lambda: set(placed(cluster, text)) - {before})
    status = cluster.get("job", text.object_name)["status"]
    assert not any(c["type"] == "Failed" for c in status.get("conditions", []))
    (pod,) = cluster.gpu_pods()
    cluster.finish(pod)
    wait_until(
        "the job's end", lambda: cluster.get("job", text.object_name)["status"].get("succeeded")
    )
    assert cluster.gpu_pods() == []


def test_a_spot_machine_under_a_ray_worker_is_replaced(cluster):
    cluster.add_nodes(3, prefix="spot", labels=SPOT)
    (vision,) = runs_of({"vision": VISION}, capacity="spot", reservation=None)
    cluster.apply(*manifests(vision))
    before = wait_until("machines", lambda: len(p := placed(cluster, vision)) == 2 and set(p))
    gone = sorted(before)[0]
    cluster.take_away(gone)
    wait_until(
        "two machines again",
        lambda: len(p := placed(cluster, vision)) == 2 and gone not in p,
    )


@pytest.mark.parametrize(("code", "pods"), [(78, 1), (1, 2)])
def test_a_config_error_fails_at_once_and_a_crash_is_retried(cluster, code, pods):
    cluster.add_nodes(1, labels=RESERVED)
    (text,) = runs_of({"sql": {**TEXT, "retries": 1}})
    cluster.apply(*manifests(text))

    def failed():
        for pod in cluster.gpu_pods():
            cluster.finish(pod, code)
        status = cluster.get("job", text.object_name)["status"]
        return any(c["type"] == "Failed" for c in status.get("conditions", [])) and status

    status = wait_until("the job's failure", failed)
    reasons = {c["reason"] for c in status["conditions"]}
    assert ("PodFailurePolicy" in reasons) == (code == 78)
    assert status["failed"] == pods
    assert cluster.gpu_pods() == []


def test_a_queued_run_holds_nothing_until_it_is_admitted(cluster):
    """As Kueue does it: its webhook suspends what carries its label, its controller lifts that."""
    cluster.add_nodes(3, labels=RESERVED)
    runs = runs_of({"vision": {**VISION, "queue": "gpus"}, "sql": {**TEXT, "queue": "gpus"}})
    bodies = [body for run in runs for body in manifests(run)]
    labelled = [b for b in bodies if "kueue.x-k8s.io/queue-name" in b["metadata"]["labels"]]
    assert [body["kind"] for body in labelled] == ["RayJob", "Job"]
    for body in labelled:
        body["spec"]["suspend"] = True
    cluster.apply(*bodies)
    words = "waiting for its turn in Kueue's queue gpus"
    wait_until("both in the queue", lambda: cluster.status().count(words) == 2)
    assert cluster.pods() == []
    for run in runs:
        lift = ["--type=merge", '-p={"spec": {"suspend": false}}']
        cluster.kubectl("patch", run.kind.lower(), run.object_name, "-n", "gemma", *lift)
    wait_until("all machines", lambda: [len(placed(cluster, run)) for run in runs] == [2, 1])


def end_ray_job(cluster, run, status):
    """Ray says that the run's job has come to `status`; its submitter ends as its CLI does."""
    # Asked before anything ends: a failed job's retry gets a cluster of another name.
    before = wait_until(
        "the run's cluster",
        lambda: cluster.get("rayjob", run.object_name).get("status", {}).get("rayClusterName"),
    )
    with RayDashboard(cluster, before) as dashboard:
        dashboard.serve("RUNNING")
        (submitter,) = wait_until(
            "the submitter",
            lambda: [
                pod
                for pod in cluster.pods(**{"batch.kubernetes.io/job-name": run.object_name})
                if pod["status"]["phase"] != "Succeeded"  # that of the try before may linger
            ],
        )
        assert gpus(submitter) == 0
        assert len(placed(cluster, run)) == 2
        dashboard.serve(status)
        # `ray job logs --follow` ends with 0 however the job does.
        over = {"name": "ray-job-submitter", "state": {"terminated": {"exitCode": 0}}}
        image = {"image": "i", "imageID": "", "ready": False, "restartCount": 0}
        cluster.patch_status(
            submitter, {"phase": "Succeeded", "containerStatuses": [{**over, **image}]}
        )
        wait_until(
            "that cluster's end",
            lambda: (
                before not in cluster.kubectl("get", "rayclusters", "-n", "gemma")
                and not cluster.pods(**{"ray.io/cluster": before})
            ),
        )


def test_a_finished_ray_run_lets_go_of_its_machines(cluster):
    cluster.add_nodes(2, labels=RESERVED)
    (vision,) = runs_of({"vision": VISION})
    cluster.apply(*manifests(vision))
    end_ray_job(cluster, vision, "SUCCEEDED")
    wait_until("no GPU held", lambda: not cluster.gpu_pods())
    assert cluster.get("rayjob", vision.object_name)["status"]["jobStatus"] == "SUCCEEDED"
    assert "Succeeded" in cluster.status()


def test_a_ray_job_that_stopped_itself_is_not_retried_and_a_failed_one_is(cluster):
    cluster.add_nodes(2, labels=RESERVED)
    (vision,) = runs_of({"vision": VISION})
    cluster.apply(*manifests(vision))
    end_ray_job(cluster, vision, "FAILED")
    wait_until("two machines again", lambda: len(placed(cluster, vision)) == 2)
    end_ray_job(cluster, vision, "STOPPED")
    wait_until("no GPU held", lambda: not cluster.gpu_pods())
    status = cluster.get("rayjob", vision.object_name)["status"]
    assert (status["jobDeploymentStatus"], status["failed"]) == ("Complete", 1)
    assert "Failed" in cluster.status()


def test_a_ray_run_past_its_deadline_lets_go_of_its_machines(cluster):
    cluster.add_nodes(2, labels=RESERVED)
    (vision,) = runs_of({"vision": {**VISION, "pending_hours": 1, "max_hours": 2}})
    cluster.apply(*manifests(vision))
    wait_until("two machines", lambda: len(placed(cluster, vision)) == 2)
    assert cluster.get("rayjob", vision.object_name)["spec"]["activeDeadlineSeconds"] == 3 * 3600
    sooner = ["--type=merge", '-p={"spec": {"activeDeadlineSeconds": 1}}']
    cluster.kubectl("patch", "rayjob", vision.object_name, "-n", "gemma", *sooner)
    wait_until("no GPU held", lambda: not cluster.gpu_pods())
    status = cluster.get("rayjob", vision.object_name)["status"]
    assert status["reason"] == "DeadlineExceeded"


def test_pods_of_several_machines_get_ranks_and_names(cluster):
    cluster.add_nodes(2, labels=RESERVED)
    (text,) = runs_of({"sql": {**TEXT, "nodes": 2}})
    cluster.apply(*manifests(text))
    wait_until("two machines", lambda: len(placed(cluster, text)) == 2)
    names = {pod["spec"]["hostname"] for pod in cluster.gpu_pods()}
    assert names == {f"{text.object_name}-0", f"{text.object_name}-1"}
    assert {pod["spec"]["subdomain"] for pod in cluster.gpu_pods()} == {text.object_name}
    for pod in cluster.gpu_pods():
        cluster.finish(pod)
    wait_until(
        "completion",
        lambda: cluster.get("job", text.object_name)["status"].get("completedIndexes") == "0,1",
    )
