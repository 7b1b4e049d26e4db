"""The trainer image: made from this repository by Cloud Build, or one that is there already."""

from __future__ import annotations

import os
import re
import socket
import sys
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pulumi
from pulumi import dynamic

from infra.image_context import ROOT, build_context, commit_of
from infra.imports import ONE_AT_A_TIME

BY_DIGEST = re.compile(r"[a-z0-9][a-z0-9.\-/:_]*@sha256:[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class TrainerImageArgs:
    """
    Attributes:
        project, region: of the registry and of the build.
        repository: id of the Artifact Registry repository.
        source_bucket: name of the bucket for build contexts and build logs.
        service_account: email of the account that the build runs as.
        uri: an image by digest (…@sha256:…) to use as it is; nothing is built then.
        context: folder with training/ and requirements/; this repository.
        machine_type: of the build: E2_MEDIUM, E2_HIGHCPU_8 or E2_HIGHCPU_32.
        timeout_minutes: of the build.
    """

    project: str
    region: str
    repository: pulumi.Input[str]
    source_bucket: pulumi.Input[str]
    service_account: pulumi.Input[str]
    uri: str | None = None
    context: Path = ROOT
    machine_type: str = "E2_HIGHCPU_8"
    timeout_minutes: int = 60


class TrainerImage(pulumi.ComponentResource):
    """One image for both trainers and Ray.

    The tag is the hash of the build context: the same files are never built twice, and a changed
    file gives another `key`, so the runs that use the image are new ones. Nothing is deleted with
    the stack but with the registry: a run that is still going may need to pull again.

    Attributes:
        key: known at preview: the context's tag, or the given uri.
        reference: REGION-docker.pkg.dev/PROJECT/REPOSITORY/trainer@sha256:…
    """

    key: str
    reference: pulumi.Output[str]

    def __init__(
        self, name: str, args: TrainerImageArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gemma:infra:TrainerImage", name, None, opts)
        if args.uri is not None:
            if not BY_DIGEST.fullmatch(args.uri):
                raise ValueError(
                    f"image.uri: {args.uri!r} names no digest; give NAME@sha256:… (a tag may move, "
                    "and a run must know what it ran)"
                )
            self.key = args.uri
            self.reference = pulumi.Output.from_input(args.uri)
        else:
            context = build_context(args.context)
            self.key = context.tag
            built = ImageBuild(
                name,
                {
                    "project": args.project,
                    "region": args.region,
                    "repository": args.repository,
                    "tag": context.tag,
                    "bucket": args.source_bucket,
                    "service_account": args.service_account,
                    "machine_type": args.machine_type,
                    "timeout_s": args.timeout_minutes * 60,
                    "context": os.path.relpath(args.context, ROOT),
                },
                # What a component waits for does not hold back its children by itself.
                pulumi.ResourceOptions(parent=self, depends_on=opts.depends_on if opts else None),
            )
            self.reference = built.reference
        self.register_outputs({"reference": self.reference})


class ImageBuild(dynamic.Resource, module="image", name="Build"):
    """An image in the registry under its content's tag; `reference` is its digest."""

    reference: pulumi.Output[str]

    def __init__(self, name: str, props: dict[str, Any], opts: pulumi.ResourceOptions) -> None:
        super().__init__(ImageProvider(), name, {**props, "reference": None}, opts)


# What decides which image it is. The rest (machine, account, bucket) only says how to make it.
_IDENTITY = ("project", "region", "repository", "tag")


class ImageProvider(dynamic.ResourceProvider):
    """Makes the image in Pulumi's plugin for Python resources.

    It has no state: what is pickled is the name of this class, the same on every machine and in
    every `pulumi up`, so nothing in it can be a secret either.
    """

    serialize_as_secret_always = False

    def create(self, props: dict[str, Any]) -> dynamic.CreateResult:
        """Finds the image by its tag or builds it. Raises with Cloud Build's own words."""
        # The plugin prints errors with a Python traceback, which tells a user nothing.
        sys.tracebacklimit = 0
        with ONE_AT_A_TIME:
            from infra import image_build

        request = image_build.BuildRequest.of(props)
        digest = image_build.find_digest(request)
        if digest is None:
            context = build_context(ROOT / props["context"])
            if context.tag != request.tag:
                raise image_build.BuildFailed(
                    "files of the build context changed during `pulumi up`; run it again"
                )
            context = replace(context, commit=commit_of(ROOT))
            try:
                digest = image_build.build(request, context, _say, Interrupt())
            except image_build.BuildFailed:
                # Two people may build the same content at once; the tag takes only the first image.
                digest = image_build.find_digest(request)
                if digest is None:
                    raise
        reference = f"{request.image}@{digest}"
        return dynamic.CreateResult(reference, {**_without_provider(props), "reference": reference})

    def read(self, id_: str, props: dict[str, Any]) -> dynamic.ReadResult:
        """An image that somebody deleted from the registry is gone: `up` makes it again."""
        with ONE_AT_A_TIME:
            from infra import image_build

        if image_build.find_digest(image_build.BuildRequest.of(props)) is None:
            return dynamic.ReadResult("", {})
        return dynamic.ReadResult(id_, _without_provider(props))

    def diff(self, _id: str, olds: dict[str, Any], news: dict[str, Any]) -> dynamic.DiffResult:
        replaces = [key for key in _IDENTITY if olds.get(key) != news.get(key)]
        return dynamic.DiffResult(changes=bool(replaces), replaces=replaces)

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """Keeps the image: a run may still need it. Registry and its cleanup policy end it."""


class Interrupt:
    """Whether `pulumi up` is being interrupted, asked as a function.

    The engine passes Ctrl-C on as a Cancel call, which Pulumi's plugin for Python resources (3.272)
    answers without telling the providers: its use of `empty_pb2` is watched for that call. A second
    Ctrl-C ends the plugin's main thread; a killed engine no longer listens at the address that it
    gave the plugin as its first argument.
    """

    def __init__(self) -> None:
        self._engine = sys.argv[1] if re.fullmatch(r"[\d.]+:\d+", "".join(sys.argv[1:2])) else ""
        self._cancelled = threading.Event()
        plugin = sys.modules["__main__"]
        empty = getattr(plugin, "empty_pb2", None)
        if empty is not None:
            setattr(plugin, "empty_pb2", _Watched(empty, self._cancelled))  # noqa: B010

    def __call__(self) -> bool:
        alive = threading.main_thread().is_alive()
        return self._cancelled.is_set() or not alive or not self._engine_listens()

    def _engine_listens(self) -> bool:
        if not self._engine:
            return True
        host, port = self._engine.split(":")
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
        except ConnectionRefusedError:
            return False
        except OSError:
            pass  # busy is not gone
        return True


class _Watched:
    """Stands for the module `empty_pb2` and notices who asks it for an Empty."""

    def __init__(self, module: Any, cancelled: threading.Event) -> None:
        self._module, self._set = module, cancelled.set

    def Empty(self) -> Any:
        if sys._getframe(1).f_code.co_name == "Cancel":  # pyright: ignore[reportPrivateUsage]
            self._set()
        return self._module.Empty()


def _without_provider(props: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in props.items() if key != "__provider"}


def _say(line: str) -> None:
    print(line, flush=True)
