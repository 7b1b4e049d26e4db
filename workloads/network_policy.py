"""Network policy of the runs' namespace: its pods speak to each other and to Google, nobody in.

Ray's dashboard and job server take commands without a password (raycluster.RAY_ENVIRONMENT), so
this is what keeps others from them. Autopilot enforces it (Dataplane V2).
"""

from __future__ import annotations

from typing import Any

import pulumi
import pulumi_kubernetes as k8s

OPERATOR_PORTS = (8265, 52365)  # dashboard and its agent: KubeRay asks them how the job is doing
METRICS_PORT = 8080


def spec() -> dict[str, Any]:
    """The policy's spec: all pods of the namespace, both directions."""
    everywhere: dict[str, Any] = {"ipBlock": {"cidr": "0.0.0.0/0"}}
    # Google does not say from which of its namespaces the Ray add-on calls (the operator's own, or
    # kube-system by way of the control plane), so only users' pods in `default` are kept out.
    named = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["default"]}
    return {
        "podSelector": {},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [
            {"from": [{"podSelector": {}}]},
            {
                "from": [{"namespaceSelector": {"matchExpressions": [named]}}],
                "ports": [_port(port) for port in OPERATOR_PORTS],
            },
            {"from": [{"namespaceSelector": {}}], "ports": [_port(METRICS_PORT)]},
        ],
        "egress": [
            {"to": [{"podSelector": {}}]},
            {"ports": [_port(53, "UDP"), _port(53)]},
            # Hub, Cloud Storage, Logging; the API server for Ray's autoscaler.
            {"to": [everywhere], "ports": [_port(443)]},
            # GKE's metadata server (Workload Identity), at its address and behind it: 80 and 8080
            # with Dataplane V2, 987 and 988 without.
            {
                "to": [
                    {"ipBlock": {"cidr": "169.254.169.252/32"}},
                    {"ipBlock": {"cidr": "169.254.169.254/32"}},
                ],
                "ports": [_port(80), _port(8080), _port(987), _port(988)],
            },
        ],
    }


def _port(port: int, protocol: str = "TCP") -> dict[str, Any]:
    return {"port": port, "protocol": protocol}


def isolate(
    namespace: pulumi.Input[str], opts: pulumi.ResourceOptions | None = None
) -> k8s.networking.v1.NetworkPolicy:
    """Puts the policy on `namespace`."""
    metadata: Any = {"name": "runs", "namespace": namespace}
    rules: Any = spec()
    return k8s.networking.v1.NetworkPolicy("runs", metadata=metadata, spec=rules, opts=opts)
