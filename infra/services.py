"""Google's APIs: enabled because a resource needs them, not because somebody remembered.

A stack transformation sees every resource before it is registered. It looks up the APIs of the
resource's type, enables each once, makes the resource wait for them, and lets the engine retry the
errors that Google answers with while an enabled API or a new identity is still spreading.
"""

from __future__ import annotations

import asyncio
import re

import pulumi
import pulumi_gcp as gcp

APIS: dict[str, tuple[str, ...]] = {
    "gcp:artifactregistry/": ("artifactregistry",),
    "gcp:compute/": ("compute",),
    # A cluster makes virtual machines, and its pods take tokens through Workload Identity.
    "gcp:container/": ("container", "compute", "iamcredentials", "logging", "monitoring"),
    "gcp:logging/": ("logging",),
    "gcp:monitoring/": ("monitoring",),
    "gcp:projects/iAMMember:": ("cloudresourcemanager",),
    "gcp:projects/service:": (),  # Service Usage itself is on in every project
    "gcp:secretmanager/": ("secretmanager",),
    "gcp:serviceaccount/": ("iam",),
    "gcp:storage/": ("storage",),
    "pulumi-python:dynamic/image:": ("cloudbuild", "artifactregistry", "storage"),
}
"""APIs by the beginning of a resource's type; `.googleapis.com` is left out."""

NOT_YET = re.compile(
    "|".join(
        (
            r"SERVICE_DISABLED",
            r"has not been used in project .* before or it is disabled",
            r"Identity Pool does not exist",
            r"Service account .* does not exist",
            r"Permission 'iam\.service[aA]ccounts\.actAs' denied",
        )
    )
)
"""What Google answers in the first minutes after an API was enabled or an account was made."""

WAITS = (2, 5, 10, 10, 15, 15, 30, 30, 30, 60, 60)
"""Seconds before each retry: about five minutes, which is what Google says it may take."""


def apis_of(type_: str) -> tuple[str, ...]:
    """The APIs that a resource of this type needs, such as `container`.

    Raises:
        LookupError: for a type of the gcp provider that the table does not know.
    """
    for prefix, apis in APIS.items():
        if type_.startswith(prefix):
            return apis
    if type_.startswith("gcp:"):
        raise LookupError(f"{type_}: add the API that it needs to infra/services.py")
    return ()


class Services(pulumi.ComponentResource):
    """The project's enabled APIs. Make it first: it sees what is declared after it."""

    def __init__(self, name: str, project: str, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gemma:infra:Services", name, None, opts)
        self._project = project
        self._enabled: dict[str, gcp.projects.Service] = {}
        self._not_yet = pulumi.ErrorHook("not-ready-yet", retry_not_yet)
        pulumi.runtime.register_stack_transformation(self._transform)
        self.register_outputs({})

    def _transform(
        self, args: pulumi.ResourceTransformationArgs
    ) -> pulumi.ResourceTransformationResult | None:
        apis = apis_of(args.type_)
        if not apis:
            return None
        waits = pulumi.ResourceOptions(
            depends_on=[self._enable(api) for api in apis],
            hooks=pulumi.ResourceHookBinding(on_error=[self._not_yet]),
        )
        opts = pulumi.ResourceOptions.merge(args.opts, waits)
        return pulumi.ResourceTransformationResult(props=args.props, opts=opts)

    def _enable(self, api: str) -> gcp.projects.Service:
        if api not in self._enabled:
            self._enabled[api] = gcp.projects.Service(
                f"{api}.googleapis.com",
                service=f"{api}.googleapis.com",
                project=self._project,
                disable_on_destroy=False,  # others in the project may rely on it
                opts=pulumi.ResourceOptions(parent=self),
            )
        return self._enabled[api]


async def retry_not_yet(args: pulumi.ErrorHookArgs) -> bool:
    """Whether the engine tries again, after a wait that grows with the errors seen so far."""
    tries = len(args.errors)
    if not args.errors or not NOT_YET.search(args.errors[0]) or tries > len(WAITS):
        return False
    wait = WAITS[tries - 1]
    pulumi.log.info(f"Google says that {args.name} cannot be made yet; once more in {wait} s")
    await asyncio.sleep(wait)
    return True
