"""infra/services.py: every resource brings its API, waits for it, and is tried again."""

from __future__ import annotations

import asyncio

import pulumi
import pytest

from infra import services
from infra.services import NOT_YET, WAITS, apis_of, retry_not_yet

SERVICE = "gcp:projects/service:Service"


def test_enabled_apis_are_those_that_the_resources_need(declare):
    declared = declare()
    needed = {api for r in declared.resources for api in apis_of(r.type)}
    assert {r.inputs["service"] for r in declared.of(SERVICE)} == {
        f"{api}.googleapis.com" for api in needed
    }
    assert needed >= {"container", "compute", "cloudbuild", "artifactregistry", "iam", "storage"}
    assert "secretmanager" not in needed


def test_an_api_is_enabled_only_when_something_needs_it(declare):
    declared = declare(changes={"gemma:huggingFaceSecret": "token"}, secrets={})
    assert "secretmanager.googleapis.com" in {r.name for r in declared.of(SERVICE)}


def test_every_resource_waits_for_its_apis(declare):
    for resource in declare().resources:
        waited = {f"{SERVICE}::{api}.googleapis.com" for api in apis_of(resource.type)}
        assert waited <= resource.depends_on, resource.urn


def test_every_resource_of_google_is_tried_again(declare):
    for resource in declare().resources:
        if apis_of(resource.type):
            assert list(resource.request.hooks.on_error) == ["not-ready-yet"], resource.urn


def test_destroy_turns_off_an_api_that_others_use(declare):
    for service in declare().of(SERVICE):
        assert service.inputs["disableOnDestroy"] is False


def test_kind_of_resource_whose_api_nobody_wrote_down_is_refused():
    with pytest.raises(LookupError, match=r"gcp:spanner/instance.*infra/services.py"):
        apis_of("gcp:spanner/instance:Instance")
    assert apis_of("kubernetes:core/v1:Secret") == ()


@pytest.mark.parametrize(
    "text",
    [
        "googleapi: Error 403: Kubernetes Engine API has not been used in project 123 before or it "
        "is disabled. Enable it by visiting https://console.developers.google.com/…",
        '{"reason": "SERVICE_DISABLED", "domain": "googleapis.com"}',
        "Error 400: Identity Pool does not exist (p.svc.id.goog). Please check that you specified",
        "Error 400: Service account gemma-dev-trainer@p.iam.gserviceaccount.com does not exist.",
        "Permission 'iam.serviceaccounts.actAs' denied on service account x (or it may not exist)",
    ],
)
def test_answer_of_an_api_or_account_that_is_still_spreading_is_known(text):
    assert NOT_YET.search(text)


@pytest.mark.parametrize(
    "text",
    [
        "Error 403: Required 'container.clusters.create' permission for 'projects/p'",
        "Error 403: Quota exceeded for quota metric 'Nvidia B200 GPUs'",
        "Error 409: Already exists: projects/p/locations/r/clusters/c",
        "Cannot destroy cluster because deletion_protection is set to true",
    ],
)
def test_answer_that_stays_is_not_tried_again(text):
    assert not retry([text])


def retry(errors: list[str]) -> bool:
    args = pulumi.ErrorHookArgs(urn="u", id="", name="n", type="t", errors=errors)
    result = retry_not_yet(args)
    return asyncio.run(result)


def test_waits_grow_and_end(monkeypatch):
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(services.asyncio, "sleep", sleep)
    monkeypatch.setattr(pulumi.log, "info", lambda text: None)
    errors: list[str] = []
    while True:
        errors.insert(0, "SERVICE_DISABLED")
        if not retry(errors):
            break
    assert tuple(waited) == WAITS == tuple(sorted(WAITS))
    assert 240 <= sum(waited) <= 360  # Google says five minutes
