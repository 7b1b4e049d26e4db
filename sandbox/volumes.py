"""The volumes of a pod as folders on disk, with the file modes its spec asks for."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from sandbox.api import Api, ApiError, Json
from sandbox.variables import ConfigurationError, decoded, field, quantity, resource


class VolumeError(RuntimeError):
    """A volume cannot be mounted (yet); the kubelet's FailedMount."""


class Volumes:
    """Makes the volumes of one pod below `root`, one folder for each."""

    def __init__(self, root: Path, client: Api, pod: Json, allocatable: Json) -> None:
        self._root = root
        self._client = client
        self._pod = pod
        self._allocatable = allocatable
        self._namespace: str = pod["metadata"]["namespace"]
        self._mounted: list[Path] = []

    def make(self) -> dict[str, Path]:
        """Fill all volumes; returns name -> folder. Raises VolumeError when one is not there."""
        return {
            volume["name"]: self._one(volume) for volume in self._pod["spec"].get("volumes") or []
        }

    def remove(self) -> None:
        """Unmount what lies in memory; the folder itself stays the caller's."""
        for path in self._mounted:
            subprocess.run(["umount", "--lazy", str(path)], capture_output=True, check=False)
        self._mounted.clear()

    def _one(self, volume: Json) -> Path:
        folder = self._root / volume["name"]
        folder.mkdir(parents=True, exist_ok=True)
        if "emptyDir" in volume:
            self._empty(folder, volume["emptyDir"] or {})
        elif "projected" in volume:
            projected: Json = volume["projected"]
            for source in projected.get("sources") or []:
                self._source(folder, source, int(projected.get("defaultMode", 0o644)))
        else:
            kinds = {"configMap": "name", "secret": "secretName", "downwardAPI": ""}
            kind = next((kind for kind in kinds if kind in volume), None)
            if kind is None:
                what = ", ".join(key for key in volume if key != "name")
                raise VolumeError(f'volume "{volume["name"]}": {what} is not in the sandbox')
            source = dict(volume[kind])
            if kind == "secret":
                source["name"] = source.get("secretName")
            self._source(folder, {kind: source}, int(source.get("defaultMode", 0o644)))
        return folder

    def _empty(self, folder: Path, spec: Json) -> None:
        folder.chmod(0o777)
        if spec.get("medium") != "Memory" or folder in self._mounted:
            return
        options = "mode=777"
        if spec.get("sizeLimit"):
            options += f",size={int(quantity(str(spec['sizeLimit'])))}"
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise VolumeError(done.stderr.strip())
        self._mounted.append(folder)

    def _source(self, folder: Path, source: Json, mode: int) -> None:
        if "serviceAccountToken" in source:
            spec: Json = source["serviceAccountToken"]
            _write(folder, spec["path"], self._token(spec).encode(), mode)
        elif "downwardAPI" in source:
            for item in source["downwardAPI"].get("items") or []:
                if "fieldRef" in item:
                    text = field(item["fieldRef"]["fieldPath"], self._pod)
                else:
                    text = resource(item["resourceFieldRef"], {}, self._pod, self._allocatable)
                _write(folder, item["path"], text.encode(), int(item.get("mode", mode)))
        elif "configMap" in source:
            self._object(folder, "configmaps", source["configMap"], mode)
        elif "secret" in source:
            self._object(folder, "secrets", source["secret"], mode)
        else:
            raise VolumeError(f"projected source {sorted(source)} is not in the sandbox")

    def _object(self, folder: Path, kind: str, spec: Json, mode: int) -> None:
        found = self._client.find(f"/api/v1/namespaces/{self._namespace}/{kind}/{spec['name']}")
        if found is None:
            if spec.get("optional"):
                return
            raise VolumeError(f'{kind[:-1]} "{spec["name"]}" not found')
        entries = decoded(found)
        items: list[Json] = spec.get("items") or [{"key": key, "path": key} for key in entries]
        for item in items:
            if item["key"] in entries:
                path: str = item["path"]
                _write(folder, path, entries[item["key"]], int(item.get("mode", mode)))
            elif not spec.get("optional"):
                raise VolumeError(f"{kind[:-1]} {spec['name']} has no key {item['key']}")

    def _token(self, spec: Json) -> str:
        """A token of the pod's service account, bound to the pod."""
        account = self._pod["spec"].get("serviceAccountName") or "default"
        meta = self._pod["metadata"]
        asked: Json = {
            "expirationSeconds": int(spec.get("expirationSeconds", 3600)),
            "boundObjectRef": {
                "apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"],
            },
        }  # fmt: skip
        if spec.get("audience"):
            asked["audiences"] = [spec["audience"]]
        body: Json = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        path = f"/api/v1/namespaces/{self._namespace}/serviceaccounts/{account}/token"
        try:
            return str(self._client.create(path, {**body, "spec": asked})["status"]["token"])
        except ApiError as error:
            raise VolumeError(str(error)) from error


def mounts(container: Json, volumes: Mapping[str, Path], expand: Callable[[str], str]) -> list[str]:
    """bubblewrap's arguments for a container's volumeMounts, outer paths first."""
    words: list[str] = []
    wanted: list[Json] = sorted(
        container.get("volumeMounts") or [], key=lambda mount: str(mount["mountPath"])
    )
    for mount in wanted:
        source = volumes.get(mount["name"])
        if source is None:
            raise ConfigurationError(f"volume {mount['name']} is not defined")
        inner = mount.get("subPath") or expand(mount.get("subPathExpr") or "")
        if inner:
            source = source / inner
            if not source.exists():
                source.mkdir(parents=True)
        words += ["--ro-bind" if mount.get("readOnly") else "--bind", str(source)]
        words.append(str(mount["mountPath"]))
    return words


def _write(folder: Path, path: str, data: bytes, mode: int) -> None:
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    target.touch(mode=0o600)
    target.write_bytes(data)
    target.chmod(mode)
