"""Why a run waits or has failed, in words, from a cluster's objects."""

from __future__ import annotations

import pytest

from tests.unit.objects import PENDING, event, failed, only, pod, ray_job
from training.common.config import ConfigError, Problem, refuse


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([], ["no capacity in reservation r1", "8 x nvidia-b200", "Insufficient nvidia.com/gpu"]),
        ([event("TriggeredScaleUp", "pod triggered scale-up")], ["a new machine is on its way"]),
        (
            [
                event(
                    "FailedScaleUp",
                    "Node scale up in zones us-central1-b failed: GCE quota exceeded",
                )
            ],
            ["quota is used up", "us-central1-b"],
        ),
        (
            [event("FailedScaleUp", "Node scale up in zones z failed: GCE out of resources")],
            ["has none free", "8 x nvidia-b200"],
        ),
        (
            [
                event("FailedScaleUp", "GCE quota exceeded"),
                event("TriggeredScaleUp", "pod triggered scale-up"),
            ],
            ["a new machine is on its way"],
        ),
        ([event("FailedScaleUp", "GCE quota exceeded", uid="another")], ["no capacity"]),
    ],
)
def test_why_there_is_no_machine(events, words):
    run = only(pod(**PENDING), events=events)
    assert run.phase == "Waiting"
    for word in words:
        assert word in run.why


def test_who_holds_the_reservation_is_said_without_the_schedulers_asides():
    pending = {**PENDING, "message": f"{PENDING['message']} no new claims to deallocate, x: y."}
    waiting = pod(**pending)
    labels = {"gemma.run/name": "vision", "gemma.run/id": "b123456789"}
    holders = [pod(f"h{n}", node=f"node-{n}", metadata={"labels": labels}) for n in range(2)]
    holders[0]["status"]["phase"] = "Succeeded"
    assert only(waiting, *holders).why == (
        "no capacity in reservation r1 for a machine with 8 x nvidia-b200; of it vision holds "
        f"1 machine. ({PENDING['message']})"
    )


@pytest.mark.parametrize(
    ("reason", "message", "words"),
    [
        ("ImagePullBackOff", "not found", "cannot pull image host/i@sha256:1"),
        ("ErrImagePull", "403 Forbidden", "403 Forbidden"),
        (
            "CreateContainerConfigError",
            'secret "hugging-face-token" not found',
            "hugging-face-token",
        ),
    ],
)
def test_why_a_container_does_not_start(reason, message, words):
    waiting = {"waiting": {"reason": reason, "message": message}}
    run = only(pod(phase="Pending", state=waiting))
    assert run.phase == "Starting"
    assert words in run.why


@pytest.mark.parametrize(
    ("terminated", "log", "words"),
    [
        ({"exitCode": 1}, "torch.OutOfMemoryError: CUDA out of memory", "per_device_train_batch"),
        ({"exitCode": 78}, "", "configuration"),
        ({"exitCode": 137, "reason": "OOMKilled"}, "", "out of memory"),
        ({"exitCode": 3}, "", "exit code 3"),
    ],
)
def test_why_a_run_failed(terminated, log, words):
    ended = pod(phase="Failed", state={"terminated": terminated})
    run = only(ended, of=failed("BackoffLimitExceeded"), log=log)
    assert run.phase == "Failed"
    assert words in run.why
    assert "BackoffLimitExceeded" in run.why


GATED = Problem(
    "trainer.model.model_name_or_path",
    "google/gemma-3-4b-it",
    "a model whose licence the token's account has accepted: open https://page",
    "pulumi config set --secret gemma:huggingFaceToken",
)


OTHER = Problem("trainer.sft.max_length", 8, "16 or more")


@pytest.mark.parametrize(
    ("problems", "more"), [([GATED], ""), ([GATED, OTHER], ", and 1 more: see the end of its log")]
)
def test_a_refused_configuration_is_told_with_what_mends_it(capsys, problems, more):
    refuse(ConfigError(problems))
    log = f"loading\n{capsys.readouterr().err}Traceback, and what a launcher says of it\n"
    told = (
        "trainer.model.model_name_or_path is 'google/gemma-3-4b-it', allowed: a model whose "
        "licence the token's account has accepted: open https://page "
        "(`pulumi config set --secret gemma:huggingFaceToken`)"
    )
    ended = pod(phase="Failed", state={"terminated": {"exitCode": 78}})
    assert only(ended, of=failed("PodFailurePolicy"), log=log).why == (
        f"{told}{more}; PodFailurePolicy"
    )
    # A Ray job that ends itself looks as if a person had stopped it.
    stopped = {"jobDeploymentStatus": "Complete", "jobStatus": "STOPPED"}
    submitter = pod(
        phase="Succeeded", container="ray-job-submitter", state={"terminated": {"exitCode": 0}}
    )
    message = "Job was intentionally stopped."
    run = only(submitter, of=ray_job(**stopped, message=message), log=log)
    assert run.phase == "Failed"
    assert run.why.startswith(f"{told}{more}; not tried again")
    assert message not in run.why


def test_a_machine_that_was_taken_away_is_said():
    disrupted = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
    run = only(pod(phase="Failed", conditions=[disrupted]))
    assert run.phase == "Starting"
    assert "machine was taken away" in run.why


def test_pods_that_the_cluster_refuses_are_said():
    refusal = event("FailedCreate", "violates PodSecurity", uid="job")
    assert "violates PodSecurity" in only(events=[refusal]).why
    assert "refuses" not in only(events=[refusal, event("SuccessfulCreate", "", uid="job")]).why
