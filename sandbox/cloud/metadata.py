"""GKE's metadata server, as far as Google's client libraries ask it: who am I, and a token.

In the cloud it answers with the Google service account that Workload Identity binds to the pod;
here with the trainer's, or with a stand-in before that exists. The token opens nothing.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from .gcp.store import Store

SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]
ACCOUNT = "gcp:serviceaccount/account:Account"
PROJECT = "gemma-sandbox"


def answer(path: str, query: dict[str, str], store: Store) -> tuple[str, str] | None:
    """Body and content type for a path below computeMetadata/v1 (or `/`), or None for a 404."""
    email, project, number = _who(store)
    values = {
        "": "computeMetadata/",
        "project/project-id": project,
        "project/numeric-project-id": number,
        "instance/zone": f"projects/{number}/zones/us-central1-a",
        "instance/id": "1",
        "instance/hostname": "sandbox",
        "instance/attributes/cluster-name": "sandbox",
        "instance/attributes/cluster-location": "us-central1",
        "universe/universe-domain": "googleapis.com",
        "universe/universe_domain": "googleapis.com",
        "instance/service-accounts": f"default/\n{email}/\n",
        "instance/service-accounts/default": "aliases\nemail\nidentity\nscopes\ntoken\n",
        "instance/service-accounts/default/email": email,
        "instance/service-accounts/default/scopes": "\n".join(SCOPES),
    }
    path = path.strip("/").replace(f"service-accounts/{email}", "service-accounts/default")
    account = "instance/service-accounts/default"
    if path == f"{account}/token":
        token = {"access_token": "sandbox", "expires_in": 3599, "token_type": "Bearer"}
        return json.dumps(token), "application/json"
    if path == account and "recursive" in query:
        info: dict[str, Any] = {"aliases": ["default"], "email": email, "scopes": SCOPES}
        return json.dumps(info), "application/json"
    values[f"{account}/identity"] = _identity(email, query.get("audience", ""))
    text = values.get(path)
    return None if text is None else (text, "application/text")


def _who(store: Store) -> tuple[str, str, str]:
    """The trainer's account, its project and the project's number."""
    accounts = list(store.list(ACCOUNT))
    accounts.sort(key=lambda record: "trainer" not in record.id)
    if not accounts:
        return f"sandbox@{PROJECT}.iam.gserviceaccount.com", PROJECT, "100000000001"
    state = accounts[0].state
    return state["email"], state["project"], "100000000001"


def _identity(email: str, audience: str) -> str:
    """A token of the right shape, with no signature that anybody could check."""

    def part(values: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(values).encode()).rstrip(b"=").decode()

    claims = {"aud": audience, "email": email, "iss": "https://accounts.google.com"}
    return f"{part({'alg': 'none', 'typ': 'JWT'})}.{part(claims)}."
