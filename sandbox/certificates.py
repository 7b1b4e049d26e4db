"""Keys, certificates, tokens and kubeconfigs of one sandbox, made once in its folder."""

from __future__ import annotations

import datetime
import ipaddress
import json
import secrets
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

ADDRESS = "10.77.0.1"
API_PORT = 6443
SERVER_NAMES = (
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "localhost",
)
# user name -> groups. The controllers and the operator are given the cluster-admin group: their
# narrow roles are what GKE sets up for them, and nothing of ours.
USERS = {
    "admin": "system:masters",
    "gcp": "system:masters",  # what gke-gcloud-auth-plugin hands out
    "node": "system:masters",
    "system:kube-scheduler": "system:masters",
    "system:kube-controller-manager": "system:masters",
    "kuberay-operator": "system:masters",
    "kwok": "system:masters",
}


def token_file(pki: Path, user: str) -> Path:
    """The file that holds the bearer token of `user`."""
    return pki / f"{user.removeprefix('system:')}.token"


def kubeconfig(pki: Path, user: str) -> Path:
    """The kubeconfig of `user`."""
    return pki / f"{user.removeprefix('system:')}.kubeconfig"


def make(pki: Path) -> None:
    """Fill `pki` unless it is complete; its last file is written last."""
    if (pki / "complete").exists():
        return
    pki.mkdir(parents=True, exist_ok=True)
    pki.chmod(0o700)
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca = _certificate("sandbox-ca", ca_key.public_key(), ca_key, None)
    (pki / "ca.crt").write_bytes(_pem(ca))
    server_key = ec.generate_private_key(ec.SECP256R1())
    server = _certificate("kube-apiserver", server_key.public_key(), ca_key, ca)
    (pki / "server.crt").write_bytes(_pem(server))
    _write_key(pki / "server.key", server_key)
    # Signs the tokens of service accounts; RS256 is what the API server's issuer prefers.
    accounts = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    _write_key(pki / "service-accounts.key", accounts)
    public = accounts.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    (pki / "service-accounts.pub").write_bytes(public)
    rows: list[str] = []
    for number, (user, group) in enumerate(USERS.items()):
        token = secrets.token_hex(16)
        token_file(pki, user).write_text(token)
        kubeconfig(pki, user).write_text(_kubeconfig(pki, user, token))
        rows.append(f'{token},{user},{number},"{group}"\n')
    (pki / "tokens.csv").write_text("".join(rows))
    for secret in (*pki.glob("*.token"), *pki.glob("*.kubeconfig"), pki / "tokens.csv"):
        secret.chmod(0o600)
    (pki / "complete").touch()


def _certificate(
    name: str,
    key: ec.EllipticCurvePublicKey,
    signer: ec.EllipticCurvePrivateKey,
    issuer: x509.Certificate | None,
) -> x509.Certificate:
    """A certificate for `key`, signed by `signer`; without an issuer it is its own authority."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer else subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=3650))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )
    if issuer is None:  # Python 3.13 and later insist on it
        builder = builder.add_extension(_SIGNS_CERTIFICATES, critical=True)
    if issuer is not None:
        names = [x509.DNSName(host) for host in SERVER_NAMES]
        addresses = [x509.IPAddress(ipaddress.ip_address(host)) for host in (ADDRESS, "127.0.0.1")]
        builder = builder.add_extension(
            x509.SubjectAlternativeName([*names, *addresses]), critical=False
        ).add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    return builder.sign(signer, hashes.SHA256())


_SIGNS_CERTIFICATES = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )


def _kubeconfig(pki: Path, user: str, token: str) -> str:
    """YAML's subset JSON."""
    server = {
        "server": f"https://{ADDRESS}:{API_PORT}",
        "certificate-authority": str(pki / "ca.crt"),
    }
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "sandbox", "cluster": server}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": user}}],
        "current-context": "sandbox",
    }
    return json.dumps(config, indent=1)
