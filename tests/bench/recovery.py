"""Runs that are disturbed and go on: real trainers, tiny models, the sandbox's own node.

    pytest -q -s tests/bench/recovery.py        (about ten minutes each on two cores)

A killed worker process, a killed rank 0 or Ray head, a deleted pod (SIGTERM, the grace period, a
checkpoint), a restarted API server: after each the run resumes from its newest complete checkpoint
and ends well, every step counted once in its metrics. A configuration that no retry can mend is
tried once.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from functools import partial

import pytest

from tests.bench.lab import Lab, text, vision
from tests.engine.workloads.simulation import NAMESPACE, wait_until
from workloads.run import Run

STEPS = {"text": 60, "vision": 240}


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with Lab(tmp_path_factory.mktemp("recovery")) as running:
        yield running


def disturb(
    lab: Lab, run: Run, what: str, action: Callable[[], None], *, restarts: bool = True
) -> None:
    """Do something to a run that trains, then wait until its next attempt trains, or it goes on."""
    wait_until("its steps", lambda: [steps for steps in lab.attempts(run)[-1:] if steps[2:]], 300)
    before, began = lab.attempts(run), time.monotonic()
    action()
    gone = time.monotonic() - began

    def again() -> bool:
        now = lab.attempts(run)
        return len(now) > len(before) if restarts else len(now[-1]) > len(before[-1]) + 5

    wait_until(f"training after: {what}", again, 300)
    now = lab.attempts(run)
    assert restarts or len(now) == len(before)
    then = f"attempt {len(now)} from step {now[-1][0]}"
    print(
        f"{what} after step {before[-1][-1]} ({gone:.0f} s): {then} "
        f"after {time.monotonic() - began:.0f} s",
        flush=True,
    )


def delete(lab: Lab, **labels: str) -> None:
    """Delete the newest running pod with these labels, and wait until it is gone."""
    pod = [p for p in lab.pods(**labels) if p["status"]["phase"] == "Running"][-1]
    lab.kubectl("delete", "pod", pod["metadata"]["name"], "-n", NAMESPACE)


def kill_api_server(lab: Lab) -> None:
    lab.kill(r"/kube-apiserver ")
    ready = ("get", "--raw", "/readyz")
    wait_until("the next one", lambda: lab.sandbox.kubectl(*ready, check=False) == "ok")


def test_text_job(lab):
    (run,) = lab.submit(text=text(STEPS["text"], workers_per_node=2))
    trainer = r"python.* -m training\.gemma4_text\.train"
    disturb(lab, run, "a worker process killed", lambda: lab.kill(trainer, "RANK=1"))
    disturb(lab, run, "rank 0 killed", lambda: lab.kill(trainer, "RANK=0"))
    disturb(lab, run, "the pod deleted (SIGTERM)", lambda: delete(lab, **run.labels))
    disturb(lab, run, "the API server killed", partial(kill_api_server, lab), restarts=False)
    lab.check_end(run, STEPS["text"])


def ray(run: Run, kind: str) -> dict[str, str]:
    return {"ray.io/node-type": kind, **run.labels}


def test_vision_loses_workers(lab):
    (run,) = lab.submit(workers=vision(STEPS["vision"]))
    disturb(lab, run, "a training process killed", lambda: lab.kill(r"^ray::\S*TrainWorker"))
    leave = partial(delete, lab, **ray(run, "worker"))
    disturb(lab, run, "a worker pod deleted (SIGTERM)", leave)
    assert "Source: preemption" in "".join(lab.logs(run))
    lab.check_end(run, STEPS["vision"])
    wait_until("the Ray cluster's end", lambda: not lab.pods(**ray(run, "worker")))


def test_vision_loses_its_head(lab):
    (run,) = lab.submit(head=vision(STEPS["vision"]))
    disturb(lab, run, "the head's process killed", lambda: lab.kill(r"gcs_server "))
    disturb(lab, run, "the head pod deleted", partial(delete, lab, **ray(run, "head")))
    disturb(lab, run, "the API server killed", partial(kill_api_server, lab), restarts=False)
    lab.check_end(run, STEPS["vision"])


def test_what_no_retry_can_mend_is_tried_once(lab):
    runs = lab.submit(text=text(2, "nowhere", workers_per_node=2), vision=vision(2, "nowhere"))
    status = wait_until(
        "both ends", lambda: (said := lab.status()).count(" Failed ") == len(runs) and said, 300
    )
    print(status)
    told = re.sub(r"\s+", " ", status)
    key = "trainer.model.model_name_or_path is 'gs://gemma-samples/models/nowhere', allowed: "
    assert told.count(key + "a folder of a bucket that holds objects") == len(runs)
    sql, ray_job = (lab.get(run.kind.lower(), run.object_name)["status"] for run in runs)
    assert sql["failed"] == 1
    assert not ray_job.get("failed")
