"""The stand-in gcp provider against what the real one was seen to do with one changed input.

gcp_observed.yaml holds observations of the real provider, not of the stand-in: what its preview
refuses and accepts, which change replaces a resource, the ids that it gives.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml
from pulumi.provider.experimental import provider as api

from sandbox.cloud.gcp.errors import CloudError
from sandbox.cloud.gcp.faults import set_faults
from sandbox.cloud.gcp.provider import Google
from sandbox.cloud.gcp.store import Store
from sandbox.cloud.gcp.values import pack, unpack

CLUSTER = "gcp:container/cluster:Cluster"
BUCKET = "gcp:storage/bucket:Bucket"
OBSERVED: dict[str, dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("gcp_observed.yaml").read_text()
)
PROJECT = "proj-sample"


def base(type_: str) -> dict[str, Any]:
    return OBSERVED[type_]["base"]


class Cloud:
    """The provider of one project, called as the engine calls it."""

    def __init__(self, folder: Path) -> None:
        self.google = Google(folder, None)
        args = pack({"project": PROJECT, "region": "us-central1"})
        asyncio.run(self.google.configure(api.ConfigureRequest({}, args, True, False)))

    def check(self, type_: str, inputs: dict[str, Any], name: str = "it") -> api.CheckResponse:
        request = api.CheckRequest(urn(type_, name), {}, pack(inputs), b"seed")
        return asyncio.run(self.google.check(request))

    def failures(self, type_: str, inputs: dict[str, Any]) -> str:
        return "\n".join(f.reason for f in self.check(type_, inputs).failures or [])

    def create(self, type_: str, inputs: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        response = self.check(type_, inputs)
        assert not response.failures, [f.reason for f in response.failures]
        assert response.inputs is not None
        request = api.CreateRequest(urn(type_, "it"), response.inputs, 0, False)
        created = asyncio.run(self.google.create(request))
        assert created.resource_id is not None
        return created.resource_id, created.properties

    def change(self, type_: str, inputs: dict[str, Any], changed: dict[str, Any]) -> str:
        """same, update or replace: what changing some inputs of a new resource does."""
        id_, state = self.create(type_, inputs)
        checked = self.check(type_, {**inputs, **changed})
        if checked.failures:
            return "refuse"
        assert checked.inputs is not None
        request = api.DiffRequest(urn(type_, "it"), id_, state, checked.inputs, [])
        diff = asyncio.run(self.google.diff(request))
        return "replace" if diff.replaces else "update" if diff.changes else "same"


def urn(type_: str, name: str) -> str:
    return f"urn:pulumi:dev::gemma::gemma:infra:Some${type_}::{name}"


@pytest.fixture
def cloud(tmp_path: Path) -> Cloud:
    return Cloud(tmp_path)


def observed(*kinds: str) -> list[Any]:
    """Parameters (type, kind, what was observed), one for each observation of these kinds."""
    return [
        pytest.param(type_, kind, seen, id=f"{type_.split(':')[-1]}-{kind}-{number}")
        for type_, entry in OBSERVED.items()
        for kind in kinds
        for number, seen in enumerate(entry.get(kind, ()))
    ]


@pytest.mark.parametrize(("type_", "kind", "changed"), observed("replace", "update", "same"))
def test_a_change_does_what_it_did_to_the_real_resource(
    cloud: Cloud, type_: str, kind: str, changed: dict[str, Any]
) -> None:
    assert cloud.change(type_, base(type_), changed) == kind


@pytest.mark.parametrize(("type_", "kind", "changed"), observed("conflict"))
def test_a_change_that_contradicts_is_refused(
    cloud: Cloud, type_: str, kind: str, changed: dict[str, Any]
) -> None:
    assert cloud.change(type_, base(type_), changed) == "refuse"


@pytest.mark.parametrize("type_", [type_ for type_ in OBSERVED if base(type_)])
def test_nothing_differs_without_a_change(cloud: Cloud, type_: str) -> None:
    assert cloud.change(type_, base(type_), {}) == "same"


@pytest.mark.parametrize("type_", [type_ for type_, entry in OBSERVED.items() if "id" in entry])
def test_ids_are_google_s(cloud: Cloud, type_: str) -> None:
    assert cloud.create(type_, base(type_))[0] == OBSERVED[type_]["id"]


@pytest.mark.parametrize(("type_", "kind", "seen"), observed("refused"))
def test_preview_refuses(cloud: Cloud, type_: str, kind: str, seen: dict[str, Any]) -> None:
    assert seen["words"] in cloud.failures(type_, {**base(type_), **seen["inputs"]})


@pytest.mark.parametrize(("type_", "kind", "changed"), observed("accepted"))
def test_only_google_refuses(cloud: Cloud, type_: str, kind: str, changed: dict[str, Any]) -> None:
    inputs = {**base(type_), **changed}
    assert not cloud.failures(type_, inputs)
    with pytest.raises(CloudError, match="Error 400"):
        cloud.create(type_, inputs)


@pytest.mark.parametrize("name", ["effectiveLabels", "pulumiLabels"])
def test_label_outputs_are_secret_and_merged(cloud: Cloud, name: str) -> None:
    _, state = cloud.create(
        BUCKET,
        {**base(BUCKET), "labels": {"owner": "bob"}},
    )
    assert state[name].is_secret
    assert unpack(state)[0][name] == {"goog-pulumi-provisioned": "true", "owner": "bob"}


def test_scopes_on_autopilot_replace_the_cluster_on_every_up(cloud: Cloud) -> None:
    inputs = {**base(CLUSTER), "nodeConfig": {"oauthScopes": ["https://x/cloud-platform"]}}
    assert cloud.change(CLUSTER, inputs, {}) == "replace"


def test_a_name_is_made_up_only_once(cloud: Cloud) -> None:
    first, _ = unpack(cloud.check("gcp:compute/network:Network", {}).inputs or {})
    assert first["name"].startswith("it-")
    request = api.CheckRequest(urn("gcp:compute/network:Network", "it"), pack(first), {}, b"other")
    again, _ = unpack(asyncio.run(cloud.google.check(request)).inputs or {})
    assert again["name"] == first["name"]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("quota", "Error 403: Quota exceeded"),
        ("api", "Error 403: container.googleapis.com has not been used in project"),
        ("permission", "Error 403: Required permission"),
        ("unavailable", "Error 503"),
    ],
)
def test_a_fault_hits_as_often_as_asked_and_leaves_nothing(
    cloud: Cloud, tmp_path: Path, fault: str, words: str
) -> None:
    set_faults(tmp_path, {"type": CLUSTER, "operation": "create", "fault": fault, "times": 2})
    for _ in range(2):
        with pytest.raises(CloudError, match=words):
            cloud.create(CLUSTER, base(CLUSTER))
        assert not list(Store(tmp_path).list())
    assert cloud.create(CLUSTER, base(CLUSTER))


def test_a_name_in_use_is_refused(cloud: Cloud) -> None:
    account = "gcp:serviceaccount/account:Account"
    cloud.create(account, base(account))
    with pytest.raises(CloudError, match="Error 409: Service account gemma-tuning already exists"):
        cloud.create(account, base(account))


def test_google_s_order_is_enforced(cloud: Cloud) -> None:
    """An identity pool comes with the first cluster; an API must be on before it is used."""
    account = "gcp:serviceaccount/account:Account"
    id_, _ = cloud.create(account, base(account))
    member = {
        "serviceAccountId": id_,
        "role": "roles/iam.workloadIdentityUser",
        "member": "serviceAccount:proj-sample.svc.id.goog[gemma/trainer]",
    }
    with pytest.raises(CloudError, match="Identity Pool does not exist"):
        cloud.create("gcp:serviceaccount/iAMMember:IAMMember", member)
    cloud.create(CLUSTER, base(CLUSTER))
    cloud.create("gcp:serviceaccount/iAMMember:IAMMember", member)
    cloud.create("gcp:projects/service:Service", {"service": "compute.googleapis.com"})
    with pytest.raises(CloudError, match=r"storage\.googleapis\.com has not been used"):
        cloud.create(BUCKET, base(BUCKET))
