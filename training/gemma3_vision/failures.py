"""Failures that a restart cannot mend end the run at once, instead of after every retry."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ray.train import UserCallback


class Hopeless(RuntimeError):
    """The text of a failure that would come again: it survives Ray's pickling between processes."""


@contextmanager
def named() -> Iterator[None]:
    """Turn the errors that a restart cannot mend into `Hopeless`."""
    # Here, and not above: Ray's controller imports this module, and needs no transformers.
    from training.common.config import ConfigError
    from training.common.metrics import DivergedError
    from training.gemma3_vision.rowcheck import BadRow

    try:
        yield
    except (ConfigError, BadRow, DivergedError) as error:
        raise Hopeless(str(error)) from error
    except ImportError as error:  # of an optimizer, say: every pod has the same image
        raise Hopeless(f"the image lacks a package: {error}") from error


@contextmanager
def refused(section: str) -> Iterator[None]:
    """Turn what a library says of its arguments into `Hopeless` that names the section."""
    from training.common.config import ConfigError
    from training.gemma3_vision.rowcheck import BadRow

    try:
        yield
    except (ConfigError, BadRow):
        raise
    except (TypeError, ValueError) as error:
        raise Hopeless(f"trainer.{section}: {error}") from error


class StopWhenHopeless(UserCallback):
    """Runs in Ray Train's controller: FailureConfig alone would restart the workers each time.

    An exception raised here is a failure of the controller, which Ray Train does not retry.
    """

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        for error in worker_exceptions.values():
            found = hopeless(error)
            if found is not None:
                raise found


def hopeless(error: BaseException | None) -> Hopeless | None:
    """The `Hopeless` inside Ray's wrappers, or None."""
    pending: list[Any] = [error]
    seen: set[int] = set()
    while pending:
        current = pending.pop()
        if not isinstance(current, BaseException) or id(current) in seen:
            continue
        seen.add(id(current))
        if isinstance(current, Hopeless):
            return current
        pending += [current.__cause__, *getattr(current, "worker_failures", {}).values()]
        pending += [getattr(current, name, None) for name in ("controller_failure", "cause")]
        pending += [getattr(current, "_original_exc", None)]
    return None


def stop_own_job(seconds: float = 60) -> None:
    """End the Ray job whose driver this is as STOPPED; returns where there is none.

    A RayJob has no rule for exit codes: KubeRay retries each job that FAILED, on a new cluster, and
    leaves one that was stopped as it is. The job server sends SIGTERM, which is waited for.
    """
    given = json.loads(os.environ.get("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}"))
    job = given.get("metadata", {}).get("job_submission_id")
    if job is None:
        return
    from ray.job_submission import JobSubmissionClient

    JobSubmissionClient().stop_job(job)
    time.sleep(seconds)
