"""Environment and command line of a container, resolved as the kubelet does it."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from sandbox.api import Json
from sandbox.images import Image

_REFERENCE = re.compile(r"\$(\$|\(([-._a-zA-Z][-._a-zA-Z0-9]*)\))")
_SUBSCRIPT = re.compile(r"^(metadata\.(?:labels|annotations))\['(.+)'\]$")
_SUFFIXES = {
    "": 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50,
}  # fmt: skip

# (kind: configmaps or secrets, name) -> its data as text, None when it does not exist
Lookup = Callable[[str, str], dict[str, str] | None]


class ConfigurationError(RuntimeError):
    """The container cannot be made from its spec: the kubelet's CreateContainerConfigError."""


def expand(text: str, values: Mapping[str, str]) -> str:
    """`$(NAME)` replaced where NAME is known; `$$` stands for one dollar sign."""

    def one(match: re.Match[str]) -> str:
        if match[1] == "$":
            return "$"
        return values.get(match[2], match[0])

    return _REFERENCE.sub(one, text)


def quantity(text: str) -> float:
    """A Kubernetes quantity as a number of its base unit (cores or bytes)."""
    match = re.fullmatch(r"([0-9.]+(?:[eE][0-9]+)?)([a-zA-Z]*)", text.strip())
    if match is None or match[2] not in _SUFFIXES:
        raise ConfigurationError(f"{text!r} is not a quantity")
    return float(match[1]) * _SUFFIXES[match[2]]


def environment(
    container: Json, pod: Json, lookup: Lookup, base: Mapping[str, str], allocatable: Json
) -> dict[str, str]:
    """The container's variables, in the kubelet's order: base, envFrom, env."""
    values = dict(base)
    for source in container.get("envFrom") or []:
        values.update(_all_of(source, lookup))
    known = dict(values)
    for entry in container.get("env") or []:
        name: str = entry["name"]
        origin: Json | None = entry.get("valueFrom")
        if origin is None:
            value: str | None = expand(entry.get("value") or "", known)
        else:
            value = _value_from(origin, container, pod, lookup, allocatable)
        if value is not None:
            values[name] = known[name] = value
    return values


def command_line(container: Json, image: Image, values: Mapping[str, str]) -> list[str]:
    """The container's command: a given `command` also switches the image's CMD off."""
    command = cast("Sequence[str]", container.get("command") or [])
    arguments = cast("Sequence[str]", container.get("args") or [])
    if command:
        words = [*command, *arguments]
    else:
        words = [*image.entrypoint, *(arguments or image.command)]
    if not words:
        raise ConfigurationError("no command specified")
    return [expand(word, values) for word in words]


def field(path: str, pod: Json) -> str:
    """The value of a downward API field, as in `fieldRef.fieldPath`."""
    meta, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    if match := _SUBSCRIPT.match(path):
        group = match[1].removeprefix("metadata.")
        return str((meta.get(group) or {}).get(match[2], ""))
    if path in ("metadata.labels", "metadata.annotations"):
        entries: dict[str, str] = meta.get(path.removeprefix("metadata.")) or {}
        return "".join(f'{key}="{value}"\n' for key, value in sorted(entries.items()))
    simple: dict[str, Any] = {
        "metadata.name": meta["name"],
        "metadata.namespace": meta["namespace"],
        "metadata.uid": meta["uid"],
        "spec.nodeName": spec.get("nodeName"),
        "spec.serviceAccountName": spec.get("serviceAccountName"),
        "status.podIP": status.get("podIP"),
        "status.podIPs": status.get("podIP"),
        "status.hostIP": status.get("hostIP"),
        "status.hostIPs": status.get("hostIP"),
    }
    if path not in simple:
        raise ConfigurationError(f"fieldPath {path!r} is not supported")
    return str(simple[path] or "")


def resource(reference: Json, container: Json, pod: Json, allocatable: Json) -> str:
    """The value of a `resourceFieldRef`: unset limits are the node's, as the kubelet has it."""
    name = reference.get("containerName")
    if name:
        everyone = [*(pod["spec"].get("initContainers") or []), *pod["spec"]["containers"]]
        container = next(c for c in everyone if c["name"] == name)
    group, _, what = str(reference["resource"]).partition(".")
    resources: Json = container.get("resources") or {}
    given = (resources.get(group) or {}).get(what)
    if given is None:
        given = allocatable.get(what, "0") if group == "limits" else "0"
    divisor = quantity(str(reference.get("divisor") or "1")) or 1.0
    return str(math.ceil(quantity(str(given)) / divisor - 1e-9))


def decoded(secret: Json) -> dict[str, bytes]:
    """A secret's or a ConfigMap's entries as bytes."""
    if secret.get("kind") == "Secret":
        data: dict[str, str] = secret.get("data") or {}
        return {key: base64.b64decode(value) for key, value in data.items()}
    text: dict[str, str] = secret.get("data") or {}
    binary: dict[str, str] = secret.get("binaryData") or {}
    return {
        **{key: value.encode() for key, value in text.items()},
        **{key: base64.b64decode(value) for key, value in binary.items()},
    }


def _all_of(source: Json, lookup: Lookup) -> dict[str, str]:
    prefix: str = source.get("prefix") or ""
    for key, kind in (("configMapRef", "configmaps"), ("secretRef", "secrets")):
        if key in source:
            data = lookup(kind, source[key]["name"])
            if data is None and not source[key].get("optional"):
                raise ConfigurationError(_missing(kind, source[key]["name"]))
            return {f"{prefix}{name}": value for name, value in (data or {}).items()}
    return {}


def _value_from(
    origin: Json, container: Json, pod: Json, lookup: Lookup, allocatable: Json
) -> str | None:
    if "fieldRef" in origin:
        return field(origin["fieldRef"]["fieldPath"], pod)
    if "resourceFieldRef" in origin:
        return resource(origin["resourceFieldRef"], container, pod, allocatable)
    for key, kind in (("configMapKeyRef", "configmaps"), ("secretKeyRef", "secrets")):
        if key in origin:
            reference: Json = origin[key]
            data = lookup(kind, reference["name"])
            if data is not None and reference["key"] in data:
                return data[reference["key"]]
            if reference.get("optional"):
                return None
            if data is None:
                raise ConfigurationError(_missing(kind, reference["name"]))
            raise ConfigurationError(
                f"couldn't find key {reference['key']} in {kind[:-1]} {reference['name']}"
            )
    raise ConfigurationError(f"valueFrom {sorted(origin)} is not supported")


def _missing(kind: str, name: str) -> str:
    return f'{kind[:-1]} "{name}" not found'
