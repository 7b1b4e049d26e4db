"""The real control plane: etcd, kube-apiserver, kube-scheduler, kube-controller-manager, kwok."""

from __future__ import annotations

import http.client
import threading
from pathlib import Path

from sandbox import certificates
from sandbox.api import Api
from sandbox.certificates import ADDRESS, API_PORT
from sandbox.folder import Folder
from sandbox.processes import Supervisor

SERVICE_RANGE = "10.96.0.0/16"
ETCD_PORT = 2379


def api(folder: Folder, user: str = "admin") -> Api:
    """A client of this sandbox's API server."""
    token = certificates.token_file(folder.pki, user).read_text()
    return Api(f"{ADDRESS}:{API_PORT}", folder.pki / "ca.crt", token)


def start_api_server(folder: Folder, supervisor: Supervisor, binaries: Path) -> Api:
    """etcd and kube-apiserver; returns once the API server says it is ready."""
    certificates.make(folder.pki)
    folder.kubeconfig.write_text(certificates.kubeconfig(folder.pki, "admin").read_text())
    folder.kubeconfig.chmod(0o600)
    supervisor.spawn(
        "etcd",
        [
            binaries / "etcd",
            f"--data-dir={folder.etcd}",
            f"--listen-client-urls=http://127.0.0.1:{ETCD_PORT}",
            f"--advertise-client-urls=http://127.0.0.1:{ETCD_PORT}",
            "--listen-peer-urls=http://127.0.0.1:2380",
            # The state must outlive a killed process, not a power cut.
            "--unsafe-no-fsync",
            "--log-level=warn",
        ],
        ready=lambda: _http_ok("127.0.0.1", ETCD_PORT, "/health"),
    )
    supervisor.progress("etcd is ready")
    pki = folder.pki
    server = supervisor.spawn(
        "kube-apiserver",
        [
            binaries / "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{ETCD_PORT}",
            f"--secure-port={API_PORT}",
            f"--bind-address={ADDRESS}",
            f"--advertise-address={ADDRESS}",
            "--endpoint-reconciler-type=none",
            f"--tls-cert-file={pki / 'server.crt'}",
            f"--tls-private-key-file={pki / 'server.key'}",
            f"--token-auth-file={pki / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-key-file={pki / 'service-accounts.pub'}",
            f"--service-account-signing-key-file={pki / 'service-accounts.key'}",
            f"--service-cluster-ip-range={SERVICE_RANGE}",
            "--kubelet-preferred-address-types=InternalIP",
            # GKE has it: a pod that asks for GPUs tolerates the taint of GPU nodes.
            "--enable-admission-plugins=ExtendedResourceToleration",
            "--enable-priority-and-fairness=false",
            "--profiling=false",
            "--allow-privileged=true",
        ],
        restart=True,
        grace=0.5,  # it waits for the end of all watches, and keeps nothing that etcd has not
    )
    client = api(folder)
    supervisor.wait(server, lambda: client.get("/readyz")["text"] == "ok", timeout=120)
    supervisor.progress("kube-apiserver is ready")
    return client


def start_controllers(
    folder: Folder, supervisor: Supervisor, binaries: Path, kwok_stages: Path | None
) -> None:
    """Scheduler and controller manager; kwok as well when its stage files are given."""
    manager = certificates.kubeconfig(folder.pki, "system:kube-controller-manager")
    scheduler = certificates.kubeconfig(folder.pki, "system:kube-scheduler")
    supervisor.spawn(
        "kube-controller-manager",
        [
            binaries / "kube-controller-manager",
            f"--kubeconfig={manager}",
            f"--service-account-private-key-file={folder.pki / 'service-accounts.key'}",
            f"--root-ca-file={folder.pki / 'ca.crt'}",
            "--bind-address=127.0.0.1",
            "--leader-elect=false",
            # Needs a cloud or a kubelet that does what ours does not.
            "--controllers=*,-node-ipam-controller,-node-route-controller,-service-lb-controller,"
            "-cloud-node-lifecycle-controller,-persistentvolume-binder-controller,"
            "-persistentvolume-attach-detach-controller,-persistentvolume-expander-controller",
        ],
        restart=True,
    )
    supervisor.spawn(
        "kube-scheduler",
        [
            binaries / "kube-scheduler",
            f"--kubeconfig={scheduler}",
            "--bind-address=127.0.0.1",
            "--leader-elect=false",
        ],
        restart=True,
    )
    if kwok_stages is not None:
        stages = [f"--config={path}" for path in sorted(kwok_stages.rglob("*.yaml"))]
        supervisor.spawn(
            "kwok",
            [
                binaries / "kwok",
                f"--kubeconfig={certificates.kubeconfig(folder.pki, 'kwok')}",
                "--manage-all-nodes=false",
                "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
                *stages,
            ],
        )


def wait_for_defaults(client: Api, stop: threading.Event) -> None:
    """Until the controller manager works: it has made the default service account."""
    while not stop.is_set():
        if client.find("/api/v1/namespaces/default/serviceaccounts/default") is not None:
            return
        stop.wait(0.1)


def _http_ok(host: str, port: int, path: str) -> bool:
    connection = http.client.HTTPConnection(host, port, timeout=2)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    finally:
        connection.close()
