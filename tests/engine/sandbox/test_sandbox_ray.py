"""A RayJob in the sandbox: the real operator, a real Ray cluster, and the end of both."""

from __future__ import annotations

import json
from typing import Any

from sandbox import Sandbox
from tests.engine.sandbox.kit import IMAGE, RESTRICTED, apply, look, pod, until


def test_a_ray_job_runs_to_its_end_through_the_operator(own_cloud: Sandbox):
    cloud = own_cloud
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
