"""The Hugging Face token, as a Kubernetes secret that the runs' pods read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_gcp as gcp
import pulumi_kubernetes as k8s

from infra.problems import StackConfigError
from infra.schema import Settings
from training.common.config import Problem

SECRET = "hugging-face-token"
KEY = "token"


@dataclass(frozen=True, kw_only=True)
class HuggingFaceTokenArgs:
    """
    Attributes:
        project: of a Secret Manager secret that is given by its bare name.
        namespace: where the Kubernetes secret goes.
        service_account: Kubernetes service account that may read the Secret Manager secret.
        account: the Google service account that it acts as.
        token: the token, from Pulumi's encrypted configuration.
        secret: or the name of a Secret Manager secret, which then never meets Pulumi's state.
        opts: of the Kubernetes objects: provider, what must exist before.
    """

    project: str
    namespace: pulumi.Input[str]
    service_account: pulumi.Input[str]
    account: gcp.serviceaccount.Account
    token: pulumi.Output[str] | None
    secret: str | None
    opts: pulumi.ResourceOptions


class HuggingFaceToken(pulumi.ComponentResource):
    """A secret named `hugging-face-token` with the key `token`, or nothing where none is given.

    Pods read it by reference, so neither their arguments nor their specification hold it, and a
    renewed token changes no run.

    Attributes:
        secret_name: name of the Kubernetes secret; None without a token.
        ready: what the runs wait for.
    """

    secret_name: str | None
    ready: list[pulumi.Resource]

    def __init__(
        self, name: str, args: HuggingFaceTokenArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gemma:infra:HuggingFaceToken", name, None, opts)
        self._args = args
        self._inside = pulumi.ResourceOptions.merge(args.opts, pulumi.ResourceOptions(parent=self))
        if args.secret:
            self.ready = self._from_secret_manager(args.secret)
        elif args.token is not None:
            self.ready = [self._from_config(args.token)]
        else:
            self.ready = []
        self.secret_name = SECRET if self.ready else None
        self.register_outputs({"secret": self.secret_name})

    def _from_config(self, token: pulumi.Output[str]) -> pulumi.Resource:
        return k8s.core.v1.Secret(
            SECRET,
            metadata=k8s.meta.v1.ObjectMetaArgs(name=SECRET, namespace=self._args.namespace),
            type="Opaque",
            string_data={KEY: token},
            opts=self._inside,
        )

    def _from_secret_manager(self, secret: str) -> list[pulumi.Resource]:
        """GKE's secret sync copies the newest version; only the trainer's account may read it."""
        path = secret if "/" in secret else f"projects/{self._args.project}/secrets/{secret}"
        access = gcp.secretmanager.SecretIamMember(
            "trainer-secretmanager.secretAccessor",
            project=path.split("/")[1],
            secret_id=path.split("/")[3],
            role="roles/secretmanager.secretAccessor",
            member=self._args.account.member,
            opts=pulumi.ResourceOptions(parent=self),
        )
        metadata = k8s.meta.v1.ObjectMetaArgs(name=SECRET, namespace=self._args.namespace)
        source = k8s.apiextensions.CustomResource(
            f"{SECRET}-source",
            api_version="secrets-store.csi.x-k8s.io/v1",
            kind="SecretProviderClass",
            metadata=metadata,
            spec={
                "provider": "gke",
                "parameters": {
                    "secrets": f'- resourceName: "{path}/versions/latest"\n  path: "{KEY}"\n'
                },
            },
            opts=self._inside,
        )
        sync = k8s.apiextensions.CustomResource(
            SECRET,
            api_version="secret-sync.gke.io/v1",
            kind="SecretSync",
            metadata=metadata,
            spec={
                "serviceAccountName": self._args.service_account,
                "secretProviderClassName": SECRET,
                "secretObject": {
                    "type": "Opaque",
                    "data": [{"sourcePath": KEY, "targetKey": KEY}],
                },
            },
            opts=pulumi.ResourceOptions.merge(
                self._inside, pulumi.ResourceOptions(depends_on=[access, source])
            ),
        )
        return [access, sync]


def require_token(settings: Settings) -> None:
    """Tells of a missing token before a machine costs money.

    A preview only warns, since a pull request is previewed without secrets.

    Raises:
        StackConfigError: in `pulumi up`, when a run takes its model from the Hugging Face Hub.
    """
    if settings.hugging_face_token is not None or settings.hugging_face_secret:
        return
    names = [name for name, run in settings.runs.items() if run.enabled and _uses_hub(run.trainer)]
    if not names:
        return
    problem = Problem(
        "gemma:huggingFaceToken",
        None,
        f"a token for the Hugging Face Hub, from which {', '.join(names)} gets a gated model",
        "pulumi config set --secret {key}",
    )
    if pulumi.runtime.is_dry_run():
        pulumi.log.warn(f"`pulumi up` will stop here.\n\n{problem}")
    else:
        raise StackConfigError([problem])


def _uses_hub(trainer: dict[str, Any]) -> bool:
    """Whether the model is named by a Hub id rather than by a bucket or a folder."""
    model: Any = trainer.get("model") or {}
    name: object = model.get("model_name_or_path")
    return not str(name or "hub").startswith(("gs://", "/", ".", "~"))
