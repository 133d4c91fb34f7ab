"""One HTTP/1.1 connection: requests to their routes, responses out in order.

Invariants: at most one exchange is open; complete requests behind it wait in the reader; a refusal is sent
only after every complete request before it has been answered. `deadline_s` always says when the sweep may
close us.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, cast

from tidewire.transport.http import HttpRequest, HttpResponse
from tidewire.transport.request_reader import HttpLimits, RequestReader
from tidewire.transport.responses import (
    CLOSE_LINE,
    HTML_HEADERS,
    JSON_HEADERS,
    render_chunk,
    render_header_lines,
    render_response,
    render_stream_head,
)
from tidewire.transport.routes import AsyncHandler, Exchange, Route, Router

if TYPE_CHECKING:
    from tidewire.transport.websocket import WebSocket

_NEVER = math.inf
_PAUSE_AT_READY = 8  # complete requests waiting behind the open one before we stop reading
_DISCARD_LIMIT_BYTES = 64 * 1024
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class ConnectionOwner(Protocol):
    """What a connection needs from its listener."""

    router: Router
    limits: HttpLimits
    scheme: str
    connections: set[Connection]
    is_stopping: bool
    now_s: float
    date_line: bytes

    def forget(self, connection: Connection) -> None:
        """Drop a lost connection."""

    def run(self, handle: AsyncHandler, request: HttpRequest, exchange: Exchange) -> None:
        """Answer a request in a task of its own."""


class ConnectionExchange:
    """The `Exchange` of one request on one connection."""

    __slots__ = ("_connection", "_is_head", "_tail", "on_close")

    def __init__(self, connection: Connection, is_head: bool, tail: bytes) -> None:
        self._connection: Connection | None = connection
        self._is_head = is_head
        self._tail = tail
        self.on_close: Callable[[Exchange], None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether a response can still be sent."""
        return self._connection is not None

    def respond(self, status: int, body: bytes, headers: bytes = JSON_HEADERS) -> bool:
        """Send the response; see `Exchange`."""
        connection = self._connection
        if connection is None:
            return False
        self._connection = None
        self.on_close = None
        connection.send(status, body, headers, self._tail, self._is_head)
        return True

    def respond_with(self, response: HttpResponse) -> bool:
        """Send a response value; see `Exchange`."""
        return self.respond(response.status, response.body, render_header_lines(response))

    async def stream_with(self, response: HttpResponse) -> None:
        """Send a response in pieces; see `Exchange`."""
        connection = self._connection
        if connection is None or response.pieces is None:
            return
        headers = render_header_lines(response)
        connection.begin_stream(response.status, headers, self._tail)
        if not self._is_head:
            try:
                async for piece in response.pieces:
                    await connection.drained()
                    if self._connection is None:
                        return
                    connection.send_piece(piece, self._tail)
            except BaseException:
                connection.abort()  # what the peer has got so far must not pass for the whole
                raise
        if self._connection is not None:
            self._connection = None
            connection.end_stream(self._tail, self._is_head)

    def drop(self) -> None:
        """The peer is gone. Called by the connection."""
        self._connection = None
        on_close, self.on_close = self.on_close, None
        if on_close is not None:
            on_close(self)


class Admission:
    """The `Exchange` of an upload whose head is there: 100 lets its body come, anything else is the answer."""

    __slots__ = ("_connection", "on_close")

    def __init__(self, connection: Connection) -> None:
        self._connection: Connection | None = connection
        self.on_close: Callable[[Exchange], None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether the question is still unanswered."""
        return self._connection is not None

    def respond(self, status: int, body: bytes, headers: bytes = JSON_HEADERS) -> bool:
        """Answer the question."""
        connection, self._connection = self._connection, None
        if connection is None:
            return False
        connection.admit(None if status == 100 else (status, headers, body))
        return True

    def respond_with(self, response: HttpResponse) -> bool:
        """Answer the question with a response value."""
        return self.respond(response.status, response.body, render_header_lines(response))

    async def stream_with(self, response: HttpResponse) -> None:
        """A refusal is never so long that it comes in pieces."""
        self.respond(500, b"")


class Connection(asyncio.Protocol):
    """The protocol object of one socket."""

    __slots__ = (
        "_denial",
        "_discarded_bytes",
        "_drain_waiter",
        "_exchange",
        "_is_asking",
        "_is_deaf",
        "_is_pumping",
        "_is_reading_paused",
        "_is_winding_down",
        "_is_write_paused",
        "_owner",
        "_reader",
        "_transport",
        "_websocket",
        "deadline_s",
    )

    def __init__(self, owner: ConnectionOwner) -> None:
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._reader = RequestReader(owner.router, owner.limits, owner.scheme, "")
        self._exchange: ConnectionExchange | None = None
        self._denial: tuple[int, bytes, bytes] | None = None  # of an upload: status, header lines, body
        self._is_asking = False  # whether the upload being read may come
        self._is_deaf = False  # whatever else arrives is thrown away
        self._is_pumping = False
        self._is_reading_paused = False
        self._is_write_paused = False
        self._is_winding_down = False
        self._discarded_bytes = 0
        self._drain_waiter: asyncio.Future[None] | None = None  # of the stream that waits for the peer
        self._websocket: WebSocket | None = None  # what the connection has become, if anything
        self.deadline_s = _NEVER

    # called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A peer has connected."""
        self._transport = cast("asyncio.Transport", transport)
        owner = self._owner
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self._reader = RequestReader(owner.router, owner.limits, owner.scheme, str(peer[0]))
        owner.connections.add(self)
        self.deadline_s = owner.now_s + owner.limits.head_timeout_s
        if owner.is_stopping:
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone, by whoever's doing."""
        self._transport = None
        self._is_deaf = True
        self._reader.drop()
        self._owner.forget(self)
        self._wake_stream()
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.drop()
        if self._websocket is not None:
            self._websocket.drop()

    def data_received(self, data: bytes) -> None:
        """Parse what came and start what is complete."""
        if self._is_deaf:
            self._discard(len(data))
            return
        if self._websocket is not None:
            # Before it is fed: what it says may end the connection, or wait for a slow peer, for its own time.
            self._restart_deadline()
            self._websocket.feed(data)
            return
        reader = self._reader
        reader.feed(data, self._owner.now_s)
        if reader.refusal is not None or reader.is_last:
            self._is_deaf = True
        if reader.is_reading and self._exchange is None and not reader.ready:
            self.deadline_s = reader.deadline_s()
        if reader.awaits is not None and reader.refusal is None:
            self._ask(*reader.awaits)
        if reader.ready or reader.owes_continue or reader.refusal is not None:
            self._pump()

    def eof_received(self) -> bool:
        """The peer has shut its side: it has left a held poll, but may still read an answer under way."""
        reader = self._reader
        is_cut = reader.is_reading and not self._is_deaf and self._websocket is None
        self._is_deaf = True
        self._is_winding_down = True
        if is_cut and self._exchange is None and self._owner.scheme == "http" and reader.refusal is None:
            reader.refusal = (400, "The request ended before all of it was there")
            self._pump()
            return True
        exchange = self._exchange
        # Under TLS a half-closed stream does not exist, and asyncio warns of the attempt to keep one.
        return exchange is not None and exchange.on_close is None and self._owner.scheme == "http"

    def pause_writing(self) -> None:
        """The peer reads slower than we write: start no further request until it catches up."""
        self._is_write_paused = True
        self.deadline_s = self._owner.now_s + self._owner.limits.write_timeout_s
        self._pace_reading()

    def resume_writing(self) -> None:
        """The peer caught up."""
        self._is_write_paused = False
        if not self._is_deaf or self._exchange is not None:
            self._restart_deadline()
        self._wake_stream()
        self._pump()

    # called by the listener

    def wind_down(self) -> None:
        """Close as soon as the request under way, if any, has been answered."""
        self._is_winding_down = True
        if self._websocket is not None:
            self._websocket.close()
        reader = self._reader
        if (
            self._exchange is None
            and not reader.ready
            and not reader.is_reading
            and self._transport is not None
        ):
            self._transport.close()

    def expire(self) -> None:
        """The deadline has passed: tell a slow sender, close when idle, cut a peer that does not read."""
        transport = self._transport
        if transport is None:
            return
        if self._is_deaf or self._is_write_paused or transport.is_closing():
            transport.abort()
        elif self._websocket is not None:
            self._websocket.close()
        elif self._reader.is_reading:
            self._reader.refusal = (408, "Request took too long")
            self._pump()
        else:
            self.deadline_s = self._owner.now_s + self._owner.limits.linger_s
            transport.close()

    def abort(self) -> None:
        """Cut the connection, finished or not."""
        if self._transport is not None:
            self._transport.abort()

    # called by the WebSocket

    def write(self, data: bytes) -> None:
        """Send what the WebSocket has to say."""
        if self._transport is not None:
            if not self._is_write_paused:
                self._restart_deadline()
            self._transport.write(data)

    def finish(self) -> None:
        """The WebSocket has said its last."""
        self._is_deaf = True
        self.deadline_s = self._owner.now_s + self._owner.limits.linger_s
        if self._transport is not None:
            self._transport.close()

    # called by the exchange

    def admit(self, denial: tuple[int, bytes, bytes] | None) -> None:
        """Read on, or answer the upload being read without the rest of it."""
        self._is_asking = False
        if self._transport is None or self._is_deaf:
            return
        reader = self._reader
        if denial is None:
            if self._exchange is None:
                self._restart_deadline()
        else:
            self._is_deaf = True
            self._denial = denial
            reader.give_up()
        self._pace_reading()
        self._pump()

    def send(self, status: int, body: bytes, headers: bytes, tail: bytes, is_head: bool) -> None:
        """Write the open exchange's response and go on with the next request."""
        self._exchange = None
        transport = self._transport
        if transport is None:
            return
        if self._is_winding_down:
            tail = CLOSE_LINE
        # Before the write, which may call `pause_writing` and with it set a deadline of its own.
        self._restart_deadline()
        transport.write(render_response(status, body, headers, self._owner.date_line, tail, is_head))
        self._go_on(transport, tail)

    def begin_stream(self, status: int, headers: bytes, tail: bytes) -> None:
        """Write the head of a response in pieces. A peer of HTTP/1.0 is told its end by closing."""
        if self._transport is not None:
            shown_tail = tail if tail == b"" else CLOSE_LINE
            is_chunked = tail == b""
            date_line = self._owner.date_line
            self._transport.write(
                render_stream_head(status, headers, date_line, shown_tail, is_chunked=is_chunked)
            )

    def send_piece(self, piece: bytes, tail: bytes) -> None:
        """Write one piece of the body."""
        if self._transport is not None and piece:
            self._transport.write(render_chunk(piece) if tail == b"" else piece)

    def end_stream(self, tail: bytes, is_head: bool) -> None:
        """End the open exchange's response and go on with the next request."""
        self._exchange = None
        transport = self._transport
        if transport is None:
            return
        self._restart_deadline()
        if tail == b"" and not is_head:
            transport.write(render_chunk(b""))
        self._go_on(transport, CLOSE_LINE if tail or self._is_winding_down else b"")

    async def drained(self) -> None:
        """Return once the peer takes more, or has gone."""
        while self._is_write_paused and self._transport is not None:
            self._drain_waiter = asyncio.get_running_loop().create_future()
            await self._drain_waiter

    def _wake_stream(self) -> None:
        waiter, self._drain_waiter = self._drain_waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _go_on(self, transport: asyncio.Transport, tail: bytes) -> None:
        """After a response: close if it was the last one, or start what waits."""
        reader = self._reader
        if tail is CLOSE_LINE:
            self._is_deaf = True
            reader.ready.clear()
            reader.refusal = None
            self.deadline_s = self._owner.now_s + self._owner.limits.write_timeout_s
            transport.close()
        elif reader.ready or reader.owes_continue or reader.refusal is not None or self._denial is not None:
            self._pump()

    def _ask(self, handle: AsyncHandler, head: HttpRequest) -> None:
        """Stop reading until somebody has looked at the head."""
        self._reader.awaits = None
        self._is_asking = True
        self._pace_reading()
        self._owner.run(handle, head, Admission(self))

    def _pump(self) -> None:
        """Start waiting requests until one stays open; what responds at once comes back to this loop."""
        if self._is_pumping:
            return
        reader = self._reader
        self._is_pumping = True
        try:
            while (
                reader.ready
                and self._exchange is None
                and not self._is_write_paused
                and self._transport is not None
            ):
                route, request, tail = reader.ready.pop(0)
                if route.websocket is not None and self._upgrade(route, request):
                    return
                exchange = self._exchange = ConnectionExchange(self, request.method == "HEAD", tail)
                self.deadline_s = _NEVER
                if route.park is not None:
                    route.park(request, exchange)
                elif route.handle is not None:
                    self._owner.run(route.handle, request, exchange)
        finally:
            self._is_pumping = False
        if self._exchange is None and not reader.ready and self._transport is not None:
            if self._denial is not None:
                self._send_last(*self._denial)
            elif reader.refusal is not None:
                self._send_refusal(*reader.refusal)
            elif reader.owes_continue and not self._is_asking:
                reader.owes_continue = False
                self._transport.write(_CONTINUE)
        if reader.ready or self._is_reading_paused:
            self._pace_reading()

    def _upgrade(self, route: Route, request: HttpRequest) -> bool:
        """Become a WebSocket; says whether that was asked for and possible.

        If not, the request's handler answers.
        """
        # Servers that offer none, which is usual, start sooner without it.
        from tidewire.transport.websocket import WebSocket, is_upgrade, try_render_upgrade

        answer = try_render_upgrade(request) if is_upgrade(request) else None
        if answer is None or self._transport is None:
            return False
        self._reader.drop()
        self._websocket = WebSocket(self, route, request)
        self.write(answer)
        return True

    def _send_refusal(self, status: int, text: str) -> None:
        if status == 414:  # clients know the words of the original's page
            page = b"<h1>Bad Message 414</h1><pre>reason: URI Too Long</pre>"
            self._send_last(status, HTML_HEADERS, page)
            return
        response = self._owner.router.render_error(self._reader.refused_request(), status, text)
        self._send_last(response.status, render_header_lines(response), response.body)

    def _send_last(self, status: int, headers: bytes, body: bytes) -> None:
        """Answer what was not read to its end; the peer gets a while to read that."""
        transport = self._transport
        reader = self._reader
        self._denial = None
        reader.refusal = None
        reader.is_reading = False
        self._is_deaf = True
        if transport is None or transport.is_closing():
            return
        self.deadline_s = self._owner.now_s + self._owner.limits.linger_s
        date_line = self._owner.date_line
        transport.write(
            render_response(status, body, headers, date_line, CLOSE_LINE, reader.is_head_request())
        )
        if transport.can_write_eof():
            transport.write_eof()

    def _restart_deadline(self) -> None:
        reader = self._reader
        now_s = self._owner.now_s
        if self._exchange is not None or (self._websocket is not None and self._websocket.is_busy):
            self.deadline_s = _NEVER
        elif reader.is_reading:
            reader.begun_s = now_s
            self.deadline_s = reader.deadline_s()
        else:
            self.deadline_s = now_s + self._owner.limits.idle_timeout_s

    def _discard(self, size_bytes: int) -> None:
        self._discarded_bytes += size_bytes
        if self._discarded_bytes > _DISCARD_LIMIT_BYTES:
            self._pace_reading()

    def _pace_reading(self) -> None:
        should_pause = (
            self._is_write_paused
            or self._is_asking
            or len(self._reader.ready) >= _PAUSE_AT_READY
            or self._discarded_bytes > _DISCARD_LIMIT_BYTES
        )
        transport = self._transport
        if should_pause is self._is_reading_paused or transport is None or transport.is_closing():
            return
        self._is_reading_paused = should_pause
        if should_pause:
            transport.pause_reading()
        else:
            transport.resume_reading()
