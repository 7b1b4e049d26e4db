"""What the demo shows of pulumi's output and of the runs' logs, as they were once written."""

from __future__ import annotations

from sandbox.screen import of_pulumi, of_run

STACK = " +  pulumi:pulumi:Stack gemma-sandbox creating"
PULUMI = f"""\
Updating (sandbox):
 +  pulumi:pulumi:Stack gemma-sandbox creating (0s)
 +  gcp:storage:Bucket runs creating (0s)
 +  gcp:storage:Bucket runs created (0.05s)
 @ updating....
{STACK} (3s) image ctx-1: build started, https://page
{STACK} (4s) #1 [1/2] FROM base
 ++ kubernetes:ray.io/v1:RayJob vision creating replacement (0s) [diff: ~spec]; Skipping await logic
 -- kubernetes:ray.io/v1:RayJob vision deleting original (0s)
 ++ kubernetes:ray.io/v1:RayJob vision created replacement (0.09s) [diff: ~spec];
 +  pulumi:pulumi:Stack gemma-sandbox created (21s) 2 messages
Diagnostics:
  pulumi:pulumi:Stack (gemma-sandbox):
    image ctx-1: build started, https://page
    #1 [1/2] FROM base
"""
END = """\

Resources:
    + 63 created

Duration: 33s
"""


def test_a_deployment_is_shown_by_what_came_of_it_and_each_message_once():
    assert [line.strip() for line in of_pulumi((PULUMI + END).splitlines())] == [
        "Updating (sandbox):",
        "+  gcp:storage:Bucket runs created (0.05s)",
        "image ctx-1: build started, https://page",
        "#1 [1/2] FROM base",
        "++ kubernetes:ray.io/v1:RayJob vision created replacement (0.09s) [diff: ~spec];",
        "Resources:",
        "+ 63 created",
        "Duration: 33s",
    ]


def test_an_error_of_a_deployment_is_shown_below_its_resource():
    failure = "  gcp:storage:Bucket (runs):\n    error: denied\n    line two\n"
    for text in (PULUMI + failure + END, PULUMI + failure):
        shown = list(of_pulumi(text.splitlines()))
        at = shown.index("  gcp:storage:Bucket (runs):")
        assert shown[at + 1 : at + 3] == ["    error: denied", "    line two"]
        assert shown.count("#1 [1/2] FROM base") == 1


RAY = """\
2026-11-30 18:45:49,604\tSUCC cli.py:67 -- Job 'vision-1' submitted successfully
2026-11-30 18:45:49,604\tINFO cli.py:333 -- ray job logs vision-1
\x1b[36m(TrainController pid=628)\x1b[0m Requesting resources: {'CPU': 1} * 2
(TrainController pid=628) [2026-11-30 18:46:32,730 E 628 661] core_worker.cc:2465: Actor with \
class name: 'PreemptionWatcher' and ID: '29b0' has constructor arguments
Loading weights:   0%|          | 0/72\rLoading weights: 100%|#| 72/72 [00:00<00:00, 1it/s]
\x1b[36m(RayTrainWorker pid=115, ip=10.77.1.3)\x1b[0m step 9/60  loss 7.048  lr 2.0e-04
(RayTrainWorker pid=180, ip=10.77.1.2) Reporting training result 2: TrainingReport(checkpoint=None)
2026-11-30 18:52:01,100\tERR cli.py:74 -- Job 'vision-1' failed
(TrainController pid=628) [FailurePolicy] RETRY
"""


def test_a_runs_log_is_shown_without_its_libraries_chatter_but_with_what_failed():
    assert list(of_run(RAY.splitlines())) == [
        "step 9/60  loss 7.048  lr 2.0e-04",
        "2026-11-30 18:52:01,100\tERR cli.py:74 -- Job 'vision-1' failed",
        "[FailurePolicy] RETRY",
    ]
