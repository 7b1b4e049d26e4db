"""What the containers of one pod share: its network, its volumes, its folder."""

from __future__ import annotations

import shutil
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox import containers, images, variables
from sandbox.api import Json
from sandbox.hosts import host_name
from sandbox.probes import Prober
from sandbox.volumes import Volumes, mounts

if TYPE_CHECKING:
    from sandbox.node import Node


@dataclass
class Running:
    """A container that was started, and its probes."""

    container: containers.Container
    prober: Prober


class PodSpace:
    """Made as the pod's containers need it, taken away at the pod's end."""

    def __init__(self, node: Node, pod: Json) -> None:
        meta = pod["metadata"]
        self._node = node
        self._namespace: str = meta["namespace"]
        self._root = node.folder.pods / meta["uid"]
        self._logs = node.folder.pod_logs / f"{self._namespace}_{meta['name']}_{meta['uid']}"
        self._volumes = Volumes(self._root / "volumes", node.client, pod, node.allocatable)
        self._paths: dict[str, Path] | None = None
        self._network = ""
        self.address: str | None = None

    def connect(self) -> None:
        """Give the pod its network."""
        if self.address is None:
            self._network, self.address = self._node.networks.add()

    def launch(
        self, pod: Json, spec: Json, number: int, report: Callable[[str, bool], None]
    ) -> Running:
        """Start instance `number` of a container; `report` hears of its probes.

        Raises ImageError, VolumeError, ConfigurationError, ApiError or OSError when something
        that it needs is not there.
        """
        assert self.address is not None
        image = images.resolve(self._node.folder.images, spec["image"])
        if self._paths is None:
            self._paths = self._volumes.make()
        pod = {**pod, "status": {**(pod.get("status") or {}), "podIP": self.address}}
        limits = containers.security(spec, pod, image)
        base = containers.base_environment(image, limits.user, host_name(pod))
        base |= self._node.pod_environment
        values = variables.environment(spec, pod, self._lookup, base, self._node.allocatable)
        values = self._node.finish_environment(values)
        container = containers.start(
            command=variables.command_line(spec, image, values),
            environment=values,
            image=image,
            container=spec,
            limits=limits,
            network=self._network,
            host_name=host_name(pod),
            hosts=self._node.folder.hosts,
            mounts=mounts(spec, self._paths, lambda text: variables.expand(text, values)),
            scratch=self._root / "containers" / spec["name"],
            log=self.log(spec["name"], number),
        )
        return Running(container, Prober(spec, container, self.address, report))

    def log(self, container: str, number: int) -> Path:
        """The file with the output of instance `number`."""
        return self._logs / container / f"{number}.log"

    def close(self) -> None:
        """Nothing of the pod runs any more."""
        self._volumes.remove()
        if self._network:
            try:
                self._node.networks.remove(self._network)
            except OSError:
                traceback.print_exc()
        shutil.rmtree(self._root, ignore_errors=True)

    def _lookup(self, kind: str, name: str) -> dict[str, str] | None:
        found = self._node.client.find(f"/api/v1/namespaces/{self._namespace}/{kind}/{name}")
        if found is None:
            return None
        return {key: data.decode() for key, data in variables.decoded(found).items()}
