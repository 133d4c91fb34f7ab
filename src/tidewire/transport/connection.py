"""One HTTP/1.1 connection: hands requests to their routes and sends the responses in order.

Theory of operation. Reads go to a `RequestReader`, which collects complete requests in `ready`. `_pump`
starts them one at a time: HTTP/1.1 responses carry no id, so they must leave in the order of the requests.
Each gets an exchange, which its handler answers at once or much later.

Invariants: at most one exchange is open. A framing error is sent only after every complete request before it
has been answered, and is the last response. `deadline_s` is always set: the listener's sweep calls `expire`
once it has passed. Back-pressure: reading pauses while the peer does not read its responses, too many
requests wait, or an upload awaits admission.
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
_DISCARD_LIMIT_BYTES = 64 * 1024  # input read and thrown away after the last response
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class ConnectionOwner(Protocol):
    """The listener, as its connections see it."""

    router: Router
    limits: HttpLimits
    scheme: str
    connections: set[Connection]
    is_stopping: bool
    now_s: float
    date_line: bytes

    def forget(self, connection: Connection) -> None:
        """Remove a lost connection."""

    def run(self, handle: AsyncHandler, request: HttpRequest, exchange: Exchange) -> None:
        """Answer a request in a new task."""


class ConnectionExchange:
    """The `Exchange` of one request on one connection."""

    __slots__ = ("_connection", "_is_head", "_tail", "on_close")

    def __init__(self, connection: Connection, is_head: bool, tail: bytes) -> None:
        self._connection: Connection | None = connection  # None once answered or lost: answers nothing twice
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
        """Send a response in chunks; see `Exchange`."""
        connection = self._connection
        if connection is None or response.pieces is None:
            return
        headers = render_header_lines(response)
        connection.begin_stream(response.status, headers, self._tail)
        if not self._is_head:
            try:
                async for piece in response.pieces:
                    await connection.drained()  # a slow reader must not fill our memory
                    if self._connection is None:
                        return
                    connection.send_piece(piece, self._tail)
            except BaseException:
                connection.abort()  # a clean end would make the part that was sent look complete
                raise
        if self._connection is not None:
            self._connection = None
            connection.end_stream(self._tail, self._is_head)

    def drop(self) -> None:
        """Called by the connection when the peer is gone."""
        self._connection = None
        on_close, self.on_close = self.on_close, None
        if on_close is not None:
            on_close(self)


class Admission:
    """The `Exchange` of an upload's head: status 100 admits the body, any other response replaces it."""

    __slots__ = ("_connection", "on_close")

    def __init__(self, connection: Connection) -> None:
        self._connection: Connection | None = connection
        self.on_close: Callable[[Exchange], None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether the upload awaits a decision."""
        return self._connection is not None

    def respond(self, status: int, body: bytes, headers: bytes = JSON_HEADERS) -> bool:
        """Admit the upload with status 100, or answer it."""
        connection, self._connection = self._connection, None
        if connection is None:
            return False
        connection.admit(None if status == 100 else (status, headers, body))
        return True

    def respond_with(self, response: HttpResponse) -> bool:
        """Like `respond`, from a response value."""
        return self.respond(response.status, response.body, render_header_lines(response))

    async def stream_with(self, response: HttpResponse) -> None:
        """Fail: no error response is long enough to be streamed."""
        self.respond(500, b"")


class Connection(asyncio.Protocol):
    """The protocol object of one socket."""

    __slots__ = (
        "_awaits_admission",
        "_denial",
        "_discarded_bytes",
        "_discards_input",
        "_drain_waiter",
        "_exchange",
        "_is_draining",
        "_is_pumping",
        "_is_reading_paused",
        "_is_write_paused",
        "_owner",
        "_reader",
        "_transport",
        "_websocket",
        "deadline_s",
    )

    def __init__(self, owner: ConnectionOwner) -> None:
        self._owner = owner
        self._transport: asyncio.Transport | None = (
            None  # None before the connection is made and after it is lost
        )
        self._reader = RequestReader(owner.router, owner.limits, owner.scheme, "")
        self._exchange: ConnectionExchange | None = None
        # The response to an upload that was not admitted: status, header lines, body. Sent after those before
        # it.
        self._denial: tuple[int, bytes, bytes] | None = None
        self._awaits_admission = False  # a handler decides on the upload being read
        self._discards_input = False  # no further request can be answered; input is read and thrown away
        self._is_pumping = False  # guards `_pump`, which handlers re-enter by responding at once
        self._is_reading_paused = False
        self._is_write_paused = False
        self._is_draining = False  # close after the open exchange
        self._discarded_bytes = 0
        self._drain_waiter: asyncio.Future[None] | None = (
            None  # a streamed response waits for the peer to read
        )
        self._websocket: WebSocket | None = None  # set after an upgrade; then it gets all input
        self.deadline_s = _NEVER

    # called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the deadline of the first request."""
        self._transport = cast("asyncio.Transport", transport)
        owner = self._owner
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):  # not so for Unix sockets
            self._reader = RequestReader(owner.router, owner.limits, owner.scheme, str(peer[0]))
        owner.connections.add(self)
        self.deadline_s = owner.now_s + owner.limits.head_timeout_s
        if owner.is_stopping:  # accepted by the kernel before the listener closed
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Free everything and tell the open exchange that its peer is gone."""
        self._transport = None
        self._discards_input = True
        self._reader.drop()
        self._owner.forget(self)
        self._wake_stream()
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.drop()
        if self._websocket is not None:
            self._websocket.drop()

    def data_received(self, data: bytes) -> None:
        """Parse one read and start the complete requests."""
        if self._discards_input:
            self._discard(len(data))
            return
        if self._websocket is not None:
            # Before feeding: the messages may close the connection or block on a slow peer, which set other
            # deadlines.
            self._restart_deadline()
            self._websocket.feed(data)
            return
        reader = self._reader
        reader.feed(data, self._owner.now_s)
        if reader.error is not None or reader.is_last:
            self._discards_input = (
                True  # see `RequestReader.error`; after `Connection: close` nothing may follow
            )
        # Only a peer that we wait for can be late: while an exchange is open, the next request may take its
        # time.
        if reader.is_reading and self._exchange is None and not reader.ready:
            self.deadline_s = reader.deadline_s()
        if reader.admission is not None and reader.error is None:
            self._ask_admission(*reader.admission)
        if reader.ready or reader.owes_continue or reader.error is not None:
            self._pump()

    def eof_received(self) -> bool:
        """Handle a half-closed connection: the peer has left, but may still read a response under way."""
        reader = self._reader
        is_cut = reader.is_reading and not self._discards_input and self._websocket is None
        self._discards_input = True
        self._is_draining = True
        if is_cut and self._exchange is None and self._owner.scheme == "http" and reader.error is None:
            reader.error = (400, "The request is incomplete")
            self._pump()
            return True
        exchange = self._exchange
        # Keep our side open for a response under way. `on_close` marks a held poll: its handler wants to know
        # now. TLS has no half-closed state, and asyncio warns about the attempt to keep one.
        return exchange is not None and exchange.on_close is None and self._owner.scheme == "http"

    def pause_writing(self) -> None:
        """Called when the send buffer is full: start no request until the peer has caught up."""
        self._is_write_paused = True
        self.deadline_s = self._owner.now_s + self._owner.limits.write_timeout_s
        self._pace_reading()

    def resume_writing(self) -> None:
        """Called when the send buffer has drained."""
        self._is_write_paused = False
        if not self._discards_input or self._exchange is not None:  # otherwise the linger deadline stands
            self._restart_deadline()
        self._wake_stream()
        self._pump()

    # called by the listener

    def drain(self) -> None:
        """Close once the requests under way have been answered."""
        self._is_draining = True
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
        """Called after the deadline: answer 408 to a slow sender, close idle and stuck connections."""
        transport = self._transport
        if transport is None:
            return
        if self._discards_input or self._is_write_paused or transport.is_closing():
            transport.abort()
        elif self._websocket is not None:
            self._websocket.close()
        elif self._reader.is_reading:
            self._reader.error = (408, "The request took too long to arrive")
            self._pump()
        else:
            # `close` flushes first; should the peer not read, the next sweep aborts.
            self.deadline_s = self._owner.now_s + self._owner.limits.linger_s
            transport.close()

    def abort(self) -> None:
        """Cut the connection without flushing."""
        if self._transport is not None:
            self._transport.abort()

    # called by the WebSocket

    def write(self, data: bytes) -> None:
        """Send bytes of the WebSocket."""
        if self._transport is not None:
            if not self._is_write_paused:  # the write deadline of a slow peer must not be extended
                self._restart_deadline()
            self._transport.write(data)

    def finish(self) -> None:
        """Close after the WebSocket's close frame."""
        self._discards_input = True
        self.deadline_s = self._owner.now_s + self._owner.limits.linger_s
        if self._transport is not None:
            self._transport.close()

    # called by the exchange

    def admit(self, denial: tuple[int, bytes, bytes] | None) -> None:
        """Read the body of an upload, or answer it with `denial` and discard the rest."""
        self._awaits_admission = False
        if self._transport is None or self._discards_input:
            return
        reader = self._reader
        if denial is None:
            if self._exchange is None:
                self._restart_deadline()  # the time taken to decide was ours
        else:
            # The body is on its way and cannot be told from a next request, so the connection ends with the
            # answer.
            self._discards_input = True
            self._denial = denial
            reader.abandon_request()
        self._pace_reading()
        self._pump()

    def send(self, status: int, body: bytes, headers: bytes, tail: bytes, is_head: bool) -> None:
        """Write the response of the open exchange and start the next request."""
        self._exchange = None
        transport = self._transport
        if transport is None:
            return
        if self._is_draining:
            tail = CLOSE_LINE
        # Before the write, which may call `pause_writing`, and that sets the write deadline.
        self._restart_deadline()
        transport.write(render_response(status, body, headers, self._owner.date_line, tail, is_head))
        self._continue(transport, tail)

    def begin_stream(self, status: int, headers: bytes, tail: bytes) -> None:
        """Write the head of a streamed response. HTTP/1.0 has no chunks: there, closing marks the end."""
        if self._transport is not None:
            shown_tail = tail if tail == b"" else CLOSE_LINE
            is_chunked = tail == b""
            date_line = self._owner.date_line
            self._transport.write(
                render_stream_head(status, headers, date_line, shown_tail, is_chunked=is_chunked)
            )

    def send_piece(self, piece: bytes, tail: bytes) -> None:
        """Write one piece of the body. An empty one would be the last chunk, so it is skipped."""
        if self._transport is not None and piece:
            self._transport.write(render_chunk(piece) if tail == b"" else piece)

    def end_stream(self, tail: bytes, is_head: bool) -> None:
        """End the streamed response of the open exchange and start the next request."""
        self._exchange = None
        transport = self._transport
        if transport is None:
            return
        self._restart_deadline()
        if tail == b"" and not is_head:
            transport.write(render_chunk(b""))
        self._continue(transport, CLOSE_LINE if tail or self._is_draining else b"")

    async def drained(self) -> None:
        """Return once the send buffer has room or the peer is gone."""
        while self._is_write_paused and self._transport is not None:
            self._drain_waiter = asyncio.get_running_loop().create_future()
            await self._drain_waiter

    def _wake_stream(self) -> None:
        waiter, self._drain_waiter = self._drain_waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _continue(self, transport: asyncio.Transport, tail: bytes) -> None:
        """After a response: close if it was the last one, else start what is waiting."""
        reader = self._reader
        if tail is CLOSE_LINE:
            self._discards_input = True
            # RFC 9112 9.6: after `Connection: close`, further requests must not be processed.
            reader.ready.clear()
            reader.error = None
            self.deadline_s = self._owner.now_s + self._owner.limits.write_timeout_s
            transport.close()
        elif reader.ready or reader.owes_continue or reader.error is not None or self._denial is not None:
            self._pump()

    def _ask_admission(self, handle: AsyncHandler, head: HttpRequest) -> None:
        """Stop reading until a handler has decided on the head of an upload."""
        self._reader.admission = None
        self._awaits_admission = True
        self._pace_reading()
        self._owner.run(handle, head, Admission(self))

    def _pump(self) -> None:
        """Start waiting requests until one stays open; then send whatever must follow them."""
        # A handler that responds at once calls `send`, which calls us: the loop below goes on, without deep
        # recursion.
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
                self.deadline_s = _NEVER  # it is our turn: the peer cannot be late
                if route.park is not None:
                    route.park(request, exchange)
                elif route.handle is not None:
                    self._owner.run(route.handle, request, exchange)
        finally:
            self._is_pumping = False
        # Everything before it has been answered: now an error, or a 100 Continue, is next in order.
        if self._exchange is None and not reader.ready and self._transport is not None:
            if self._denial is not None:
                self._send_last(*self._denial)
            elif reader.error is not None:
                self._send_error(*reader.error)
            elif reader.owes_continue and not self._awaits_admission:
                reader.owes_continue = False
                self._transport.write(_CONTINUE)
        if reader.ready or self._is_reading_paused:
            self._pace_reading()

    def _upgrade(self, route: Route, request: HttpRequest) -> bool:
        """Switch to a WebSocket; returns False if the request does not ask for it properly.

        The request's handler answers it then.
        """
        # Imported late: most servers offer no WebSocket, and start faster without it.
        from tidewire.transport.websocket import WebSocket, is_upgrade, try_render_upgrade

        answer = try_render_upgrade(request) if is_upgrade(request) else None
        if answer is None or self._transport is None:
            return False
        self._reader.drop()
        self._websocket = WebSocket(self, route, request)
        self.write(answer)
        return True

    def _send_error(self, status: int, text: str) -> None:
        if status == 414:  # the original service answers with this page
            page = b"<h1>Bad Message 414</h1><pre>reason: URI Too Long</pre>"
            self._send_last(status, HTML_HEADERS, page)
            return
        response = self._owner.router.render_error(self._reader.rejected_request(), status, text)
        self._send_last(response.status, render_header_lines(response), response.body)

    def _send_last(self, status: int, headers: bytes, body: bytes) -> None:
        """Send a final response to a request that was not read completely, and half-close."""
        transport = self._transport
        reader = self._reader
        self._denial = None
        reader.error = None
        reader.is_reading = False
        self._discards_input = True
        if transport is None or transport.is_closing():
            return
        self.deadline_s = self._owner.now_s + self._owner.limits.linger_s
        date_line = self._owner.date_line
        transport.write(
            render_response(status, body, headers, date_line, CLOSE_LINE, reader.is_head_request())
        )
        # Not `close`: with unread input the kernel would send a reset, and the peer could lose the response.
        # It has `linger_s` to read it.
        if transport.can_write_eof():
            transport.write_eof()

    def _restart_deadline(self) -> None:
        reader = self._reader
        now_s = self._owner.now_s
        if self._exchange is not None or (self._websocket is not None and self._websocket.is_busy):
            self.deadline_s = _NEVER
        elif reader.is_reading:
            reader.begun_s = now_s  # it arrived while we were busy: its time starts now
            self.deadline_s = reader.deadline_s()
        else:
            self.deadline_s = now_s + self._owner.limits.idle_timeout_s

    def _discard(self, size_bytes: int) -> None:
        self._discarded_bytes += size_bytes
        # A while, so that the peer gets to read our response; then the kernel's buffers may fill.
        if self._discarded_bytes > _DISCARD_LIMIT_BYTES:
            self._pace_reading()

    def _pace_reading(self) -> None:
        should_pause = (
            self._is_write_paused
            or self._awaits_admission
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
