"""The plugin's process: a gRPC server that the Pulumi engine starts and talks to."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from typing import Any

import grpc
import grpc.aio
from google.protobuf import any_pb2
from pulumi.provider.experimental.property_value import PropertyValue
from pulumi.provider.experimental.server import ProviderServicer
from pulumi.runtime._grpc_settings import _GRPC_CHANNEL_OPTIONS
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc, status_pb2

from .errors import CloudError, HalfCreated
from .provider import PREFIX, Google

ORPHANED_AFTER_S = 1.0


class Servicer(ProviderServicer):
    """Pulumi's servicer, except that refusals reach the engine as such.

    The base class turns every exception into one text with a Python traceback; Google's refusals
    need neither, and a half-made resource must reach the engine with its id and state.
    """

    async def _answer(self, method: Any, request: Any, context: Any) -> Any:
        try:
            return await method(request, context)
        except Exception as error:
            cause = error.__context__ or error
            if isinstance(cause, HalfCreated):
                await context.abort_with_status(_initialisation_failed(cause))
            if isinstance(cause, CloudError):
                text = str(cause)
                text = text if text.startswith(PREFIX) else PREFIX + text
                await context.abort(grpc.StatusCode.UNKNOWN, text)
            raise

    async def Create(self, request: Any, context: Any) -> Any:
        return await self._answer(super().Create, request, context)

    async def Update(self, request: Any, context: Any) -> Any:
        return await self._answer(super().Update, request, context)

    async def Delete(self, request: Any, context: Any) -> Any:
        return await self._answer(super().Delete, request, context)

    async def Read(self, request: Any, context: Any) -> Any:
        return await self._answer(super().Read, request, context)

    async def Check(self, request: Any, context: Any) -> Any:
        return await self._answer(super().Check, request, context)

    async def Invoke(self, request: Any, context: Any) -> Any:
        return await self._answer(super().Invoke, request, context)


class _Status(grpc.Status):
    def __init__(self, code: Any, details: str, trailing_metadata: Any) -> None:
        self.code, self.details, self.trailing_metadata = code, details, trailing_metadata


def _initialisation_failed(error: HalfCreated) -> grpc.Status:
    """The gRPC status by which a provider says: it exists, but it did not come up."""
    detail = provider_pb2.ErrorResourceInitFailed(
        id=error.id, properties=PropertyValue.marshal_map(error.state), reasons=error.reasons
    )
    packed = any_pb2.Any()
    packed.Pack(detail)
    status = status_pb2.Status(
        code=grpc.StatusCode.UNKNOWN.value[0], message=str(error), details=[packed]
    )
    trailing = (("grpc-status-details-bin", status.SerializeToString()),)
    return _Status(grpc.StatusCode.UNKNOWN, str(error), trailing)


async def _end_with_engine() -> None:
    """A killed engine cannot stop its plugins: one without a parent ends by itself."""
    parent = os.getppid()
    while os.getppid() == parent:
        await asyncio.sleep(ORPHANED_AFTER_S)
    os._exit(0)


async def _serve(arguments: list[str], version: str) -> None:
    server = grpc.aio.server(options=_GRPC_CHANNEL_OPTIONS)
    engine = arguments[0] if arguments else ""
    servicer = Servicer(arguments, version, Google.from_environment(), engine_address=engine)
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)  # how the engine learns where to connect
    watch = asyncio.create_task(_end_with_engine())
    await server.wait_for_termination()
    watch.cancel()


def main(version: str) -> None:
    """Serves the engine until it ends. version: that of the SDK's package, such as 10.2.0."""
    arguments = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    # The engine is interrupted with us, and will ask us to finish.
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(arguments, version))
