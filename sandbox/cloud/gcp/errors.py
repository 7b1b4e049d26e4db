"""Google's refusals, in Google's words."""

from __future__ import annotations

from typing import Any


class CloudError(Exception):
    """A refusal by Google. Its text is what the real provider prints for it."""


class HalfCreated(Exception):
    """The resource exists at Google, but its creation ended in an error (a late stock-out).

    The engine keeps such a resource in its state, with `reasons` as its init errors.
    """

    def __init__(self, id_: str, state: dict[str, Any], reasons: list[str]) -> None:
        super().__init__("; ".join(reasons))
        self.id, self.state, self.reasons = id_, state, reasons


def bad_request(why: str) -> CloudError:
    return CloudError(f"googleapi: Error 400: {why}, badRequest")


def already_exists(what: str) -> CloudError:
    return CloudError(f"googleapi: Error 409: {what}, alreadyExists")


def api_disabled(service: str, project: str, number: str) -> CloudError:
    return CloudError(
        f"googleapi: Error 403: {service} has not been used in project {number} before or it is "
        f"disabled. Enable it by visiting https://console.developers.google.com/apis/api/{service}"
        f"/overview?project={project} then retry. If you enabled this API recently, wait a few "
        "minutes for the action to propagate to our systems and retry., accessNotConfigured"
    )
