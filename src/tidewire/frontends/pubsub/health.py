"""The gRPC health service: SERVING until the listener closes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc

from tidewire.errors import BodyMalformed
from tidewire.frontends.pubsub.wire import parse_message
from tidewire.schema.proto import health_pb2 as pb

HEALTH_NAME = "grpc.health.v1.Health"


class Health:
    """The health of one listener and its `service_names`."""

    def __init__(self, service_names: tuple[str, ...]) -> None:
        self._names = frozenset(("", HEALTH_NAME, *service_names))
        self._closing = asyncio.Event()

    def close(self) -> None:
        """Report NOT_SERVING from now on, to watchers too."""
        self._closing.set()

    def handlers(self) -> tuple[str, dict[str, Any]]:
        """Return the service and its methods."""
        return HEALTH_NAME, {
            "Check": grpc.unary_unary_rpc_method_handler(self._check),
            "Watch": grpc.unary_stream_rpc_method_handler(self._watch),
        }

    async def _check(self, body: bytes, context: Any) -> bytes:
        name = await _service(body, context)
        if name not in self._names:
            await context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")
        return self._render(name)

    async def _watch(self, body: bytes, context: Any) -> AsyncIterator[bytes]:
        name = await _service(body, context)
        yield self._render(name)
        if not self._closing.is_set():
            await self._closing.wait()
            yield self._render(name)

    def _render(self, name: str) -> bytes:
        if name not in self._names:
            status = pb.HealthCheckResponse.SERVICE_UNKNOWN
        elif self._closing.is_set():
            status = pb.HealthCheckResponse.NOT_SERVING
        else:
            status = pb.HealthCheckResponse.SERVING
        return pb.HealthCheckResponse(status=status).SerializeToString()


async def _service(body: bytes, context: Any) -> str:
    try:
        return parse_message(pb.HealthCheckRequest, body).service
    except BodyMalformed as error:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, error.message)
        raise
