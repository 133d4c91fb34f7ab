"""The gRPC listener: its ports, and the routing of calls to orgs.

The token names the org that a call claims. The call is routed there unverified, and that org's front end verifies it.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, Self

import grpc

from tidewire.errors import ConfigInvalid, PlatformError, StoreClosed
from tidewire.frontends.pubsub.calls import Requests
from tidewire.frontends.pubsub.headers import try_find_token
from tidewire.frontends.pubsub.health import Health
from tidewire.frontends.pubsub.reflection import Reflection
from tidewire.frontends.pubsub.settings import PubSubOptions, PubSubSettings
from tidewire.frontends.pubsub.wire_errors import render_failure
from tidewire.transport.tls import TlsFiles

log = logging.getLogger(__name__)

# The service has had three names. Stubs of all three are in use, and their messages are the same.
SERVICE_NAMES = ("eventbus.v1.PubSub", "eventbus.v1.PubSubAPIService", "eventbus.v1.EventBusAPIService")
UNARY_CALLS = ("GetTopic", "GetSchema", "Publish")
STREAM_CALLS = ("PublishStream", "Subscribe", "ManagedSubscribe")


class CallAnswerer(Protocol):
    """Answers the calls of one org."""

    async def answer_call(self, rpc: str, requests: Requests, context: Any) -> bytes | None:
        """Answer or abort a call; see `grpc.aio`."""


FindAnswerer = Callable[[str], AbstractAsyncContextManager[CallAnswerer]]
"""Finds who answers a call with this token and keeps their org open meanwhile. A bad token is answered too.

Raises PlatformError if the org is unavailable.
"""


class PubSubListener:
    """The sockets of one edge. Call `close` after the orgs have ended their streams."""

    def __init__(self, find: FindAnswerer, settings: PubSubSettings, *, shares_ports: bool = False) -> None:
        self._find = find
        self._settings = settings
        self._shares_ports = shares_ports
        self._server: Any = None
        self._health = Health(SERVICE_NAMES)

    async def start(self, addresses: Mapping[str, tuple[str, int]], tls: TlsFiles) -> dict[str, int]:
        """Listen on the addresses of the settings `grpc` and `grpc_tls`.

        Returns the ports in use. Raises ConfigInvalid for an address that cannot be bound.
        """
        self._server = grpc.aio.server(
            options=_server_options(self._settings, shares_ports=self._shares_ports)
        )
        handlers = self._handlers()
        services = [(name, handlers) for name in SERVICE_NAMES]
        services += [self._health.handlers(), *Reflection(SERVICE_NAMES).handlers()]
        for name, methods in services:
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, methods),))
        credentials = grpc.ssl_server_credentials([(tls.server_key.read_bytes(), tls.server.read_bytes())])
        ports = {
            "grpc": _bind(addresses["grpc"], "grpc", self._server.add_insecure_port),
            "grpc_tls": _bind(
                addresses["grpc_tls"],
                "grpc-tls",
                lambda address: self._server.add_secure_port(address, credentials),
            ),
        }
        await self._server.start()
        return ports

    async def close(self, grace_s: float) -> None:
        """Give running calls `grace_s` to finish, then cancel them."""
        self._health.close()
        if self._server is not None:
            await self._server.stop(grace_s)

    def _handlers(self) -> dict[str, Any]:
        # Unary calls are served as streams of one request, so that metadata is checked before the body is read.
        unary = {rpc: grpc.stream_unary_rpc_method_handler(self._handler(rpc)) for rpc in UNARY_CALLS}
        streams = {rpc: grpc.stream_stream_rpc_method_handler(self._handler(rpc)) for rpc in STREAM_CALLS}
        return unary | streams

    def _handler(self, rpc: str) -> Callable[[Any, Any], Awaitable[bytes | None]]:
        async def handle(_: Any, context: Any) -> bytes | None:
            token = try_find_token(context.invocation_metadata() or ()) or ""
            try:
                async with self._find(token) as answerer:
                    return await answerer.answer_call(rpc, _Requests(context), context)
            except PlatformError as error:
                log.warning("pubsub.org_unavailable", extra={"code": error.code})
            reason = StoreClosed("the org is temporarily unavailable; retry in a few seconds")
            failure = render_failure(reason, rpc=rpc, rpc_id=str(uuid.uuid4()), tenant="", topic="")
            await context.abort(grpc.StatusCode[failure.status], failure.text, failure.trailers)
            return None

        return handle


class _Requests:
    """The requests of a call. gRPC's own iterator keeps the last one alive until garbage collection."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        request: bytes = await self._context.read()
        if request is grpc.aio.EOF:
            raise StopAsyncIteration
        return request


def open_listener(find: FindAnswerer, options: PubSubOptions, shares_ports: bool) -> PubSubListener:
    """Make the listener of one edge; see `delivery.front_end.EdgeSide`."""
    return PubSubListener(find, PubSubSettings.from_options(options), shares_ports=shares_ports)


def _bind(address: tuple[str, int], setting: str, add_port: Callable[[str], int]) -> int:
    host, port = address
    try:
        return add_port(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    except RuntimeError as error:
        raise ConfigInvalid(f"cannot listen on {host}:{port}", setting=setting) from error


def _server_options(settings: PubSubSettings, *, shares_ports: bool) -> list[tuple[str, int]]:
    return [
        # Two servers on one port would share its clients at random, so the second must fail. Edges of one server may
        # share.
        ("grpc.so_reuseport", int(shares_ports)),
        # Above our own limit, so that a request that is too large gets our error and not a bare transport error.
        ("grpc.max_receive_message_length", settings.received_bytes),
        # Bytes buffered of a stream that is not read. The default is several megabytes per stream.
        ("grpc.http2.lookahead_bytes", 256 << 10),
        ("grpc.http2.bdp_probe", 0),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_concurrent_streams", 1000),
        # Some clients ping every ten seconds without a call. That is no reason to disconnect them.
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
        # Detects a peer that vanished silently within a minute and a half.
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
    ]
