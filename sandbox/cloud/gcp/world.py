"""One Google project as the plugin sees it: the provider's configuration and what exists."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from .errors import CloudError, api_disabled
from .store import Store, Values

ATTRIBUTION = {"goog-pulumi-provisioned": "true"}  # the provider adds it to all labels by default


@dataclass
class World:
    """The provider's settings (`gcp:project`, ...) and the resources that exist.

    folder: `<sandbox>/cloud`, or None for an offline preview. storage: base address of the Cloud
    Storage emulator (STORAGE_EMULATOR_HOST), or None: then buckets exist on paper only.
    """

    folder: Path | None = None
    storage: str | None = None
    project: str = ""
    region: str = ""
    zone: str = ""
    default_labels: dict[str, str] = field(default_factory=dict[str, str])
    attribution: bool = True
    store: Store = field(init=False)

    def __post_init__(self) -> None:
        self.store = Store(self.folder)

    def of(self, inputs: Values) -> str:
        """The project that a resource belongs to. Raises CloudError where none is set."""
        project = inputs.get("project") or self.project
        if not project:
            raise CloudError(
                "project: required field is not set. Set it with `pulumi config set gcp:project`"
            )
        return str(project)

    def number(self, project: str) -> str:
        """The project's number: Google gives one at random, here it follows from the name."""
        return str(10**11 + int(hashlib.sha256(project.encode()).hexdigest(), 16) % (9 * 10**11))

    def location(self, inputs: Values) -> str:
        return str(inputs.get("location") or inputs.get("region") or self.region or self.zone)

    def labels(self, given: dict[str, str] | None) -> dict[str, str]:
        """All labels that the resource gets: the program's, the provider's, Pulumi's own."""
        own = ATTRIBUTION if self.attribution else {}
        return {**own, **self.default_labels, **(given or {})}

    def require_service(self, service: str, project: str) -> None:
        """Raises CloudError unless the API is enabled.

        Only once some program has managed APIs in this sandbox: a test of a single resource need
        not enable anything.
        """
        enabled = self.services(project)
        if enabled is not None and service not in enabled:
            raise api_disabled(service, project, self.number(project))

    def services(self, project: str) -> list[str] | None:
        """The project's enabled APIs, or None where no program ever managed them."""
        return self.store.fact(f"services-{project}")

    def set_services(self, project: str, enabled: list[str]) -> None:
        self.store.set_fact(f"services-{project}", enabled)

    def account_exists(self, member: str) -> bool:
        """Whether a service account named by an IAM member exists (others are not ours to know)."""
        email = member.removeprefix("serviceAccount:")
        if not email.endswith(".iam.gserviceaccount.com"):
            return True
        project = email.split("@")[1].split(".")[0]
        id_ = f"projects/{project}/serviceAccounts/{email}"
        return self.store.get("gcp:serviceaccount/account:Account", id_) is not None
