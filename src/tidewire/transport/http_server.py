"""The HTTP/1.1 listener.

Theory of operation. One `Connection` per socket parses with httptools and queues requests in arrival order;
they are answered one at a time. Each request belongs to a route. An async route gets a task. A parking route
gets the `Exchange` and answers it whenever it wants with ready bytes, so a held long poll costs no task,
future or timer. One sweep per listener and second refreshes the Date line and closes late connections; a
connection only stores its deadline.

A rejected request closes its connection, because after bad framing the next byte could belong to anything.
The error is written, our side is shut, and a little more input is discarded, so that the peer can read the
response before a reset reaches it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl as ssl_module
import zlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from tidewire.clock import Clock
from tidewire.transport.connection import Connection
from tidewire.transport.http import HttpRequest, HttpResponse
from tidewire.transport.request_reader import HttpLimits
from tidewire.transport.responses import (
    compress_body,
    render_date_line,
    wants_gzip,
)
from tidewire.transport.routes import AsyncHandler, Exchange, Router

log = logging.getLogger(__name__)

_INLINE_GZIP_BYTES = 64 * 1024  # takes about a millisecond; larger bodies are compressed on a thread
_GZIP_HEADERS = (("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding"))


class HttpListener:
    """One listening socket and its connections. Made by `serve_http`; all calls belong on its loop."""

    def __init__(self, router: Router, clock: Clock, limits: HttpLimits, scheme: str) -> None:
        self.router = router
        self.limits = limits
        self.scheme = scheme
        self.loop = asyncio.get_running_loop()
        self.connections: set[Connection] = set()
        self.is_stopping = False
        self._clock = clock
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._all_gone = asyncio.Event()
        # Refreshed by every sweep: reading the clock for each request would cost more than the precision is
        # worth.
        self.now_s = clock.monotonic_s()
        self.date_line = render_date_line(clock.now_ms())
        self._sweep_timer = self.loop.call_later(limits.sweep_s, self._sweep)

    @property
    def port(self) -> int:
        """The port in use, also if port 0 was requested."""
        return int(self._sockets()[0].getsockname()[1])

    @property
    def host(self) -> str:
        """The address in use."""
        return str(self._sockets()[0].getsockname()[0])

    async def start(self, ssl: ssl_module.SSLContext | None, **where: Any) -> None:
        """Listen on `host` and `port`, or on a listening socket `sock`. Raises OSError."""
        self._server = await self.loop.create_server(
            lambda: Connection(self),
            ssl=ssl,
            backlog=1024,
            ssl_handshake_timeout=self.limits.head_timeout_s if ssl is not None else None,
            **where,
        )

    async def close(self, drain_s: float = 5.0) -> None:
        """Stop accepting, let requests under way finish for up to `drain_s`, cut off the rest. Idempotent."""
        self.is_stopping = True
        if self._server is not None:
            self._server.close()
        for connection in tuple(self.connections):
            connection.drain()
        if self.connections:
            self._all_gone.clear()
            try:
                async with asyncio.timeout(drain_s):
                    await self._all_gone.wait()
            except TimeoutError:
                log.warning("transport.connections_cut", extra={"count": len(self.connections)})
        for connection in tuple(self.connections):
            connection.abort()
        self._sweep_timer.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=drain_s)

    # called by connections

    def forget(self, connection: Connection) -> None:
        """Remove a lost connection."""
        self.connections.discard(connection)
        if not self.connections:
            self._all_gone.set()

    def run(self, handle: AsyncHandler, request: HttpRequest, exchange: Exchange) -> None:
        """Answer a request in a new task, which survives the connection: a write that began is finished."""
        self._tasks.add(self.loop.create_task(self._answer(handle, request, exchange)))

    async def _answer(self, handle: AsyncHandler, request: HttpRequest, exchange: Exchange) -> None:
        try:
            response = await handle(request)
            if response.pieces is not None:
                await exchange.stream_with(_packed(response) if wants_gzip(request, response) else response)
                return
            if wants_gzip(request, response):
                response = await _compressed(response)
            exchange.respond_with(response)
        except asyncio.CancelledError:
            exchange.respond(503, b"")
            raise
        except Exception:
            log.exception("transport.handler_failed")
            exchange.respond(500, b"")
        finally:
            if request.upload is not None:
                request.upload.close()
            task = asyncio.current_task()
            if task is not None:
                self._tasks.discard(task)

    def _sweep(self) -> None:
        self._sweep_timer = self.loop.call_later(self.limits.sweep_s, self._sweep)
        self.now_s = now_s = self._clock.monotonic_s()
        self.date_line = render_date_line(self._clock.now_ms())
        for connection in [c for c in self.connections if c.deadline_s <= now_s]:
            connection.expire()

    def _sockets(self) -> tuple[socket.socket, ...]:
        return tuple(self._server.sockets) if self._server is not None else ()


async def _compressed(response: HttpResponse) -> HttpResponse:
    body = response.body
    packed = (
        compress_body(body)
        if len(body) <= _INLINE_GZIP_BYTES
        else await asyncio.to_thread(compress_body, body)
    )
    return HttpResponse(response.status, packed, response.content_type, response.headers + _GZIP_HEADERS)


def _packed(response: HttpResponse) -> HttpResponse:
    pieces = None if response.pieces is None else _iter_packed(response.pieces)
    return replace(response, headers=response.headers + _GZIP_HEADERS, pieces=pieces)


async def _iter_packed(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    async for piece in pieces:
        if packed := await asyncio.to_thread(packer.compress, piece):
            yield packed
    yield packer.flush()


async def serve_http(
    router: Router,
    host: str | None = None,
    port: int | None = None,
    *,
    sock: socket.socket | None = None,
    clock: Clock,
    ssl: ssl_module.SSLContext | None = None,
    limits: HttpLimits | None = None,
) -> HttpListener:
    """Listen and answer by `router` until `close`.

    Listens on an address, where port 0 picks a free one, or on a listening socket, which other processes may
    share.
    """
    listener = HttpListener(router, clock, limits or HttpLimits(), "https" if ssl is not None else "http")
    await listener.start(ssl, host=host, port=port, sock=sock)
    return listener
