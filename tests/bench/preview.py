"""`pulumi preview` of the whole stack against a bare program of the same resources.

    make bench

The bare program declares the same resources of the same types with the values that the whole one
arrived at, in one flat loop: no settings, no build context to hash, no component, no order, no
transformation. So the ratio shows what all of that costs. The target is 1.5.
"""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path
from typing import Any

import yaml

from review import engine, program
from sandbox import Sandbox

ROOT = Path(__file__).parents[2]
ROUNDS = 5
SECRET = "4dabf18193072939515e22adb298388d"
BARE = """
import json, re
import pulumi, pulumi_gcp as gcp, pulumi_kubernetes as k8s
from pulumi import dynamic

class Nothing(dynamic.ResourceProvider):
    pass

class Bare(dynamic.Resource):
    pass

found = json.load(open("resources.json"))
provider = k8s.Provider("k8s", kubeconfig=found["kubeconfig"])
inside = pulumi.ResourceOptions(provider=provider)
for n in range(found["components"]):
    pulumi.ComponentResource("bare:index:Component", f"component-{n}")
for n in range(found["dynamic"]):
    Bare(Nothing(), f"dynamic-{n}", {"a": "b"})
for kind, name, inputs in found["resources"]:
    package, module, title = kind.split(":")
    arguments = {re.sub(r"(?=[A-Z])", "_", k).lower(): v for k, v in inputs.items()}
    if package == "gcp":
        getattr(getattr(gcp, module.split("/")[0]), title)(name, **arguments)
    elif module == "ray.io/v1":
        k8s.apiextensions.CustomResource(name, opts=inside, **arguments)
    else:
        group, version = module.split("/")
        made = getattr(getattr(getattr(k8s, group.split(".")[0]), version), title)
        arguments.pop("api_version", None), arguments.pop("kind", None)
        made(name, opts=inside, **arguments)
"""


def plain(value: Any) -> Any:
    """Inputs as a program would write them: no marks of secrets and defaults."""
    if isinstance(value, dict):
        if SECRET in value:
            return plain(json.loads(value["plaintext"]))
        return {k: plain(v) for k, v in value.items() if k != "__defaults"}
    return [plain(item) for item in value] if isinstance(value, list) else value


def bare_program(folder: Path, resources: list[dict[str, Any]], kubeconfig: str) -> int:
    """Writes the bare program for a deployed stack's resources; returns how many it declares."""
    declared = [r for r in resources if r["type"].startswith(("gcp:", "kubernetes:"))]
    found = {
        "kubeconfig": kubeconfig,
        "components": sum(not r["custom"] for r in resources) - 1,  # one is the stack itself
        "dynamic": sum(r["type"].startswith("pulumi-python:") for r in resources),
        "resources": [
            [r["type"], r["urn"].split("::")[-1], plain(r.get("inputs") or {})] for r in declared
        ],
    }
    folder.mkdir()
    (folder / "resources.json").write_text(json.dumps(found))
    (folder / "__main__.py").write_text(BARE)
    settings = {"name": "bare", "runtime": "python"}
    (folder / "Pulumi.yaml").write_text(yaml.safe_dump(settings))
    program.prepare(folder, "dev")
    return len(declared)


def seconds(sandbox: Sandbox, folder: Path) -> float:
    """Time of one preview of a stack with nothing deployed."""
    start = time.monotonic()
    found = engine.preview(sandbox, folder, "dev")
    assert not found.errors, found.errors
    return time.monotonic() - start


def test_preview_against_a_bare_program(tmp_path: Path) -> None:
    whole, bare = tmp_path / "whole", tmp_path / "bare"
    program.copy_tree(ROOT, whole)
    program.prepare(whole, "dev")
    with Sandbox(tmp_path / "sandbox", run_pods=False) as sandbox:
        assert engine.deploy(sandbox, whole, "dev") is None
        export = ["stack", "export", "--show-secrets", "--stack", "dev"]
        state = json.loads(engine.pulumi(sandbox, whole, *export, check=True).stdout)
        kubeconfig = Path(sandbox.environment()["KUBECONFIG"]).read_text()
        declared = bare_program(bare, state["deployment"]["resources"], kubeconfig)
        destroy = ["destroy", "--yes", "--skip-preview", "--stack", "dev"]
        engine.pulumi(sandbox, whole, *destroy, check=True)
        assert len(engine.preview(sandbox, bare, "dev").changes) >= declared
        times: dict[Path, list[float]] = {whole: [], bare: []}
        for _ in range(ROUNDS):  # in turn, so that a busy moment meets both
            for folder, measured in times.items():
                measured.append(seconds(sandbox, folder))
    medians = {folder.name: round(statistics.median(t), 2) for folder, t in times.items()}
    ratio = medians["whole"] / medians["bare"]
    print(f"\npreview, {declared} resources: {json.dumps(medians)} s, ratio {ratio:.2f}")
