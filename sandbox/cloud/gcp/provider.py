"""The provider: each request of the engine, answered from the table, the kinds and the store."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from pulumi.provider.experimental import provider as api

from . import invokes, kinds
from .check import Checker
from .diff import Differ
from .errors import CloudError, HalfCreated, api_disabled, bad_request
from .faults import STOCK_OUT, Fault, Faults, Operation
from .kinds.base import Kind
from .store import Record
from .values import DEFAULTS, Values, known, pack, unpack
from .world import World

PREFIX = "1 error occurred:\n\t* "


class Google(api.Provider):
    """The stand-in provider of one Pulumi process.

    folder: `<sandbox>/cloud` (None: previews only). storage: the emulator's address, or None.
    """

    def __init__(self, folder: Path | None, storage: str | None) -> None:
        self.world = World(folder=folder, storage=storage)
        self.faults = Faults(folder)

    @classmethod
    def from_environment(cls) -> Google:
        folder = os.environ.get("GEMMA_SANDBOX_CLOUD")
        return cls(Path(folder) if folder else None, os.environ.get("STORAGE_EMULATOR_HOST"))

    async def check_config(self, request: api.CheckRequest) -> api.CheckResponse:
        return api.CheckResponse(inputs=request.new_inputs)

    async def configure(self, request: api.ConfigureRequest) -> api.ConfigureResponse:
        args, _ = unpack(request.args)
        world = self.world
        world.project = _text(args.get("project"))
        world.region = _text(args.get("region"))
        world.zone = _text(args.get("zone"))
        labels = args.get("defaultLabels") or {}
        world.default_labels = json.loads(labels) if isinstance(labels, str) else dict(labels)
        world.attribution = args.get("addPulumiAttributionLabel") not in (False, "false")
        return api.ConfigureResponse(
            accept_secrets=True, supports_preview=True, accept_outputs=False, accept_resources=False
        )

    async def invoke(self, request: api.InvokeRequest) -> api.InvokeResponse:
        args, _ = unpack(request.args)
        return api.InvokeResponse(return_value=pack(invokes.call(request.tok, args, self.world)))

    async def check(self, request: api.CheckRequest) -> api.CheckResponse:
        kind = self._kind(_token(request))
        news, secrets = unpack(request.new_inputs)
        olds, _ = unpack(request.old_inputs or {})
        checker = Checker(request.name, kind.table, kind.rules)
        inputs = checker.run(news, olds, request.random_seed)
        failures = [api.CheckFailure(property="", reason=reason) for reason in checker.failures]
        secrets |= {n for n, p in kind.table.items() if p.sensitive and n in inputs}
        return api.CheckResponse(inputs=pack(inputs, secrets), failures=failures)

    async def diff(self, request: api.DiffRequest) -> api.DiffResponse:
        kind = self._kind(_token(request))
        old, _ = unpack(request.old_state)
        new, _ = unpack(request.new_inputs)
        differ = Differ(kind.same, kind.immutable)
        differ.block(kind.table, old, new)
        changes = differ.changes
        for name, value in kind.label_outputs(new, self.world).items():
            if old.get(name) != value and kind.labels not in changes.names:  # provider's labels
                changes.paths.setdefault(name, ("update", False))
        # The bridge deletes first where the user chose the name: both could not exist at once.
        explicit = "name" in kind.table and "name" in new and "name" not in new.get(DEFAULTS, ())
        return api.DiffResponse(
            changes=bool(changes.paths),
            replaces=changes.replaces,
            diffs=changes.names,
            delete_before_replace=bool(changes.replaces) and explicit,
            detailed_diff={
                path: api.PropertyDiff(
                    api.PropertyDiffKind[verb.upper() + ("_REPLACE" if replaces else "")], False
                )
                for path, (verb, replaces) in changes.paths.items()
            },
        )

    async def create(self, request: api.CreateRequest) -> api.CreateResponse:
        kind = self._kind(_token(request))
        inputs, secrets = unpack(request.properties)
        inputs.pop(DEFAULTS, None)
        if request.preview:
            planned = kind.preview(inputs, self.world)
            return api.CreateResponse(None, pack(kind.mark(planned), secrets))
        self._require_api(kind, inputs)
        operation = Operation("create", _token(request), request.name, "", kind.service)
        faults = self._refuse(self.faults.take(operation), kind, inputs)
        kind.accept(inputs, self.world)
        id_ = kind.identity(inputs, self.world)
        self._taken(kind, id_, inputs)
        record = Record(_token(request), id_, request.urn, _plain(inputs), {})
        generated = {**kind.generated(inputs, self.world, id_), "deletionPolicy": "DELETE"}
        kept = {k: v for k, v in generated.items() if k in kind.table}
        record.state = _plain(kind.outputs(inputs, self.world, id_, kept))
        kind.created(record, self.world)
        self.world.store.put(record)
        await _slow(faults)
        if late := next((fault for fault in faults if fault.kind == "late"), None):
            reason = f"{PREFIX}{late.message or STOCK_OUT}"
            raise HalfCreated(id_, _marked(kind, record.state, secrets), [reason])
        return api.CreateResponse(id_, _marked(kind, record.state, secrets))

    async def read(self, request: api.ReadRequest) -> api.ReadResponse:
        kind = self._kind(_token(request))
        _, secrets = unpack(request.properties)
        given, hidden = unpack(request.inputs)
        record = self.world.store.get(_token(request), request.resource_id)
        if record is None or record.notes.get("deleted"):
            return api.ReadResponse(resource_id="", properties={}, inputs={})
        inputs = {**record.inputs, DEFAULTS: given.get(DEFAULTS, [])}
        state = _marked(kind, record.state, secrets)
        return api.ReadResponse(record.id, state, pack(inputs, hidden))

    async def update(self, request: api.UpdateRequest) -> api.UpdateResponse:
        kind = self._kind(_token(request))
        old, _ = unpack(request.olds)
        inputs, secrets = unpack(request.news)
        inputs.pop(DEFAULTS, None)
        if request.preview and not known(inputs):
            labels = kind.label_outputs(inputs, self.world)
            return api.UpdateResponse(pack(kind.mark({**old, **inputs, **labels}), secrets))
        id_ = request.resource_id
        state = kind.outputs(inputs, self.world, id_, old)
        if request.preview:
            return api.UpdateResponse(pack(kind.mark(state), secrets))
        self._require_api(kind, inputs)
        operation = Operation("update", _token(request), request.name, id_, kind.service)
        faults = self._refuse(self.faults.take(operation), kind, inputs)
        record = self.world.store.get(_token(request), id_)
        if record is None:
            raise CloudError(f"{PREFIX}googleapi: Error 404: {id_} was not found., notFound")
        kind.accept(inputs, self.world)
        record.inputs, record.state = _plain(inputs), _plain(state)
        kind.changed(record, self.world)
        self.world.store.put(record)
        await _slow(faults)
        return api.UpdateResponse(_marked(kind, record.state, secrets))

    async def delete(self, request: api.DeleteRequest) -> None:
        kind = self._kind(_token(request))
        store = self.world.store
        record = store.get(_token(request), request.resource_id)
        if record is None or record.notes.get("deleted"):
            return  # somebody was faster: the provider takes a 404 for done
        policy = record.inputs.get("deletionPolicy", "DELETE")
        if policy == "ABANDON":
            return
        if policy == "PREVENT":
            raise CloudError(f"{PREFIX}deletion_policy is set to PREVENT: {record.id} stays")
        self._require_api(kind, record.inputs)
        operation = Operation("delete", _token(request), request.name, record.id, kind.service)
        faults = self._refuse(self.faults.take(operation), kind, record.inputs)
        kind.deleting(record, self.world)
        if kind.survives:
            record.notes["deleted"] = True
            store.put(record)
        else:
            store.remove(_token(request), request.resource_id)
        await _slow(faults)

    def _kind(self, token: str) -> Kind:
        try:
            return kinds.kind(token)
        except KeyError:
            known_types = ", ".join(sorted(kinds.BY_TOKEN))
            raise CloudError(
                f"the stand-in gcp provider has no {token}; it has {known_types}"
            ) from None

    def _require_api(self, kind: Kind, inputs: Values) -> None:
        if kind.service:
            self.world.require_service(kind.service, self.world.of(inputs))

    def _taken(self, kind: Kind, id_: str, inputs: Values) -> None:
        kind.taken(self.world.store.get(kind.token, id_), inputs, self.world)

    def _refuse(self, faults: list[Fault], kind: Kind, inputs: Values) -> list[Fault]:
        """Raises the first fault that is a refusal; returns the others."""
        project = self.world.of(inputs)
        number = self.world.number(project)
        for fault in faults:
            if fault.kind == "api":
                raise api_disabled(kind.service, project, number)
            if fault.kind == "account":
                raise bad_request(f"Service account {inputs.get('member')} does not exist.")
            if text := _refusals(kind.service, project).get(fault.kind):
                raise CloudError(fault.message or text)
        return faults


def _token(request: Any) -> str:
    """The resource's own type: the SDK's `request.type` still holds the types of its parents."""
    return str(request.urn).split("::")[2].rpartition("$")[2]


def _refusals(service: str, project: str) -> dict[str, str]:
    return {
        "quota": f"googleapi: Error 403: Quota exceeded for quota metric in service '{service}' of "
        f"project {project}: the limit is lower than what the request needs., quotaExceeded",
        "permission": f"googleapi: Error 403: Required permission on {service} is missing for "
        f"'projects/{project}'., forbidden",
        "unavailable": "googleapi: Error 503: The service is currently unavailable., backendError",
    }


def _marked(kind: Kind, state: Values, secrets: set[str]) -> dict[str, Any]:
    return pack(kind.mark(state), secrets)


def _plain(values: Values) -> Values:
    """A copy without the bookkeeping of defaults, at any depth: what Google would know."""

    def clean(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: clean(v) for k, v in value.items() if k != DEFAULTS}  # type: ignore
        if isinstance(value, list):
            return [clean(item) for item in value]  # type: ignore
        return value

    return clean(values)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


async def _slow(faults: list[Fault]) -> None:
    for fault in faults:
        if fault.kind == "slow":
            await asyncio.sleep(fault.seconds)
