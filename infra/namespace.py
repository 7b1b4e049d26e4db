"""The namespace of the runs and the identity of their pods."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp
import pulumi_kubernetes as k8s

POD_SECURITY = "pod-security.kubernetes.io"
LABELS = {
    # `restricted` is what our own pods pass, but GKE adds a log collector of its own to Ray pods,
    # and refusing that would refuse the run.
    f"{POD_SECURITY}/enforce": "baseline",
    f"{POD_SECURITY}/warn": "restricted",
    f"{POD_SECURITY}/audit": "restricted",
}


@dataclass(frozen=True, kw_only=True)
class NamespaceArgs:
    """
    Attributes:
        project: of the cluster, which names its identity pool.
        namespace: its name.
        service_account: name of the pods' Kubernetes service account.
        account: the Google service account that the pods act as.
        cluster: the identity pool exists once the project's first cluster does.
        provider: makes the Kubernetes objects.
    """

    project: str
    namespace: str
    service_account: str
    account: gcp.serviceaccount.Account
    cluster: gcp.container.Cluster
    provider: pulumi.ProviderResource


class Namespace(pulumi.ComponentResource):
    """Namespace, Kubernetes service account and its Workload Identity binding.

    Attributes:
        namespace, service_account: the Kubernetes objects.
        binding: without it pods get no token for Google's APIs.
    """

    namespace: k8s.core.v1.Namespace
    service_account: k8s.core.v1.ServiceAccount
    binding: gcp.serviceaccount.IAMMember

    def __init__(
        self, name: str, args: NamespaceArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gemma:infra:Namespace", name, None, opts)
        inside = pulumi.ResourceOptions(
            parent=self, provider=args.provider, deleted_with=args.cluster
        )
        self.namespace = k8s.core.v1.Namespace(
            name,
            metadata=k8s.meta.v1.ObjectMetaArgs(name=args.namespace, labels=LABELS),
            opts=inside,
        )
        self.service_account = k8s.core.v1.ServiceAccount(
            args.service_account,
            metadata=k8s.meta.v1.ObjectMetaArgs(
                name=args.service_account,
                namespace=self.namespace.metadata.name,
                annotations={"iam.gke.io/gcp-service-account": args.account.email},
            ),
            automount_service_account_token=False,  # GKE's metadata server needs no token file
            opts=inside,
        )
        self.binding = gcp.serviceaccount.IAMMember(
            "workload-identity",
            service_account_id=args.account.name,
            role="roles/iam.workloadIdentityUser",
            member=f"serviceAccount:{args.project}.svc.id.goog"
            f"[{args.namespace}/{args.service_account}]",
            opts=pulumi.ResourceOptions(parent=self, depends_on=[args.cluster]),
        )
        self.register_outputs({"namespace": self.namespace.metadata.name})
