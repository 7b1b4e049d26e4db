"""Runs the program, or a part of it, on Pulumi's mocks and hands back what it declared."""

from __future__ import annotations

import json
import logging
import runpy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pulumi
import pulumi.runtime
import yaml
from google.protobuf import json_format
from pulumi.runtime import config as pulumi_config
from pulumi.runtime import mocks as pulumi_mocks
from pulumi.runtime import settings as pulumi_settings

ROOT = Path(__file__).parents[2]
PROJECT = "test-project"
TOKEN = {"gemma:huggingFaceToken": "hf_example"}
SECRET_SIGNATURE = "4dabf18193072939515e22adb298388d"


@dataclass(frozen=True)
class Declared:
    """One resource as the program registered it."""

    type: str
    name: str
    inputs: dict[str, Any]
    parent: str
    depends_on: frozenset[str]
    request: Any

    @property
    def urn(self) -> str:
        return f"{self.type}::{self.name}"


@dataclass
class Declaration:
    """All that one run of a program registered."""

    resources: list[Declared] = field(default_factory=list)
    outputs: dict[str, dict[str, Any]] = field(default_factory=dict)
    exports: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def of(self, type_: str) -> list[Declared]:
        """Resources whose type ends so: `Bucket`, `container/cluster:Cluster`."""
        return [r for r in self.resources if r.type.endswith(type_)]

    def one(self, type_: str, name: str | None = None) -> Declared:
        found = [r for r in self.of(type_) if name in (None, r.name)]
        assert len(found) == 1, [r.urn for r in found]
        return found[0]


class Monitor(pulumi_mocks.MockMonitor):
    """Keeps what the mocks leave out: options, dependencies, components' outputs."""

    def __init__(self, mocks: pulumi_mocks.Mocks, declaration: Declaration) -> None:
        super().__init__(mocks)
        self.declaration = declaration

    def RegisterResource(self, request: Any) -> Any:
        if request.type != "pulumi:pulumi:Stack":
            self.declaration.resources.append(
                Declared(
                    request.type,
                    request.name,
                    plain(json_format.MessageToDict(request.object)),
                    short(request.parent),
                    frozenset(short(urn) for urn in request.dependencies),
                    request,
                )
            )
        return super().RegisterResource(request)

    def RegisterResourceOutputs(self, request: Any) -> Any:
        outputs = plain(json_format.MessageToDict(request.outputs))
        self.declaration.outputs[short(request.urn)] = outputs
        return super().RegisterResourceOutputs(request)


class Google(pulumi_mocks.Mocks):
    """Answers as Google does: what it was given, and the outputs that the program reads."""

    def new_resource(self, args: pulumi_mocks.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        state = dict(args.inputs)
        kind = args.typ.rpartition(":")[2]
        if kind == "Account":
            email = f"{state['accountId']}@{PROJECT}.iam.gserviceaccount.com"
            name = f"projects/{PROJECT}/serviceAccounts/{email}"
            state |= {"email": email, "member": f"serviceAccount:{email}", "name": name}
        elif kind == "Cluster":
            state |= {
                "endpoint": "203.0.113.1",
                "masterAuth": {"clusterCaCertificate": "Q0E="},
                "controlPlaneEndpointsConfig": {"dnsEndpointConfig": {"endpoint": "gke-1.goog"}},
            }
        elif kind == "Repository":
            state |= {"name": state["repositoryId"]}
        elif kind == "Bucket":
            state |= {"url": f"gs://{state['name']}"}
        elif kind == "Build":
            state |= {"reference": f"host/p/r/trainer@sha256:{'0' * 64}"}
        return f"{args.name}-id", state

    def call(self, args: pulumi_mocks.MockCallArgs) -> dict[str, Any]:
        raise AssertionError(f"{args.token}: a preview must ask Google nothing")


def short(urn: str) -> str:
    """TYPE::NAME of a URN, the type without its parents'."""
    parts = urn.split("::")
    return f"{parts[2].rpartition('$')[2]}::{parts[3]}" if len(parts) == 4 else urn


def plain(value: Any) -> Any:
    """The value without secret wrappers; a secret becomes Secret(value)."""
    if isinstance(value, dict):
        if value.get(SECRET_SIGNATURE) == "1b47061264138c4ac30d75fd1eb44270":
            return Secret(plain(value["value"]))
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


@dataclass(frozen=True)
class Secret:
    """A value that the program marked as secret."""

    value: Any


def stack_config(stack: str) -> dict[str, Any]:
    """The keys of Pulumi.STACK.yaml, with a project that the tests know."""
    text = (ROOT / f"Pulumi.{stack}.yaml").read_text()
    return {**yaml.safe_load(text)["config"], "gcp:project": PROJECT}


def set_config(values: Mapping[str, Any], secrets: Mapping[str, str] | None = None) -> None:
    """Sets the stack's configuration as the engine hands it over: text, and JSON for groups."""
    flat = {k: v if isinstance(v, str) else json.dumps(v) for k, v in values.items()}
    pulumi_config.set_all_config({**flat, **(secrets or {})}, list(secrets or {}))


def run(
    stack: str = "dev",
    changes: Mapping[str, Any] | None = None,
    secrets: Mapping[str, str] | None = None,
    *,
    program: Callable[[], object] | None = None,
    preview: bool = False,
) -> Declaration:
    """Runs __main__.py, or `program`, with a stack's configuration and changes to it.

    A change to None takes the key out. Stack `dev` has a token unless `secrets` says otherwise.
    What __main__.py declares is kept: asked for the same again, it is handed out again.
    """
    if program is not None:
        return _run(stack, changes, secrets, program, preview)
    key = json.dumps([stack, changes, secrets, preview], sort_keys=True)
    if key not in _RUNS:
        _RUNS[key] = _run(stack, changes, secrets, _main, preview)
    return _RUNS[key]


_RUNS: dict[str, Declaration] = {}


def _main() -> None:
    runpy.run_path(str(ROOT / "__main__.py"))


def _run(
    stack: str,
    changes: Mapping[str, Any] | None,
    secrets: Mapping[str, str] | None,
    program: Callable[[], object],
    preview: bool,
) -> Declaration:
    config = {**stack_config(stack), **(changes or {})}
    given = TOKEN if secrets is None and stack == "dev" else secrets
    set_config({k: v for k, v in config.items() if v is not None}, given)
    pulumi_settings.ROOT.set(None)
    google, declaration = Google(), Declaration()
    monitor = Monitor(google, declaration)
    logger = logging.getLogger(f"{__name__}.engine")
    logger.addHandler(handler := _Warnings(declaration))
    pulumi.runtime.set_mocks(
        google, project="gemma", stack=stack, preview=preview, monitor=monitor, logger=logger
    )

    def body() -> pulumi.Output[None]:
        program()
        exports = getattr(pulumi_settings.get_root_resource(), "outputs", {})
        kept = {k: pulumi.Output.from_input(v) for k, v in exports.items()}
        secret = pulumi.Output.from_input({k: v.is_secret() for k, v in kept.items()})
        return pulumi.Output.all(kept, secret).apply(
            lambda both: declaration.exports.update(
                {k: Secret(v) if both[1][k] else v for k, v in both[0].items()}
            )
        )

    try:
        pulumi.runtime.test(body)()
    finally:
        logger.removeHandler(handler)
        pulumi_settings.ROOT.set(None)
        pulumi_config.set_all_config({}, [])
    return declaration


class _Warnings(logging.Handler):
    def __init__(self, declaration: Declaration) -> None:
        super().__init__(logging.WARNING)
        self.declaration = declaration

    def emit(self, record: logging.LogRecord) -> None:
        self.declaration.warnings.append(record.getMessage())
