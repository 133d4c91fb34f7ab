"""The seam between edge and core over a Unix socket: frames, calls in any order, bodies in pieces.

A frame is four bytes of length and a marshalled tuple that begins with its kind. Frames arrive in the order in which
they were sent, and whatever one turn of the loop sends leaves in one write. Therefore a commit reaches an edge before
any answer that follows it: the core sends the batch before it resolves the write. `Wire` is one end of the socket,
`CoreWire` the edge's requests and their answers, `RemoteLink` the calls for one org.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

from tidewire.delivery.link import CoreLink
from tidewire.errors import InternalError, PlatformError, StoreClosed
from tidewire.events import CommittedBatch
from tidewire.server.wire_values import (
    CALLS,
    CallForm,
    ErrorForm,
    dump,
    load,
    unpack_batch,
    unpack_error,
)
from tidewire.tracing import current_trace
from tidewire.transport.http import HttpRequest, HttpResponse

log = logging.getLogger(__name__)

# edge to core
(
    READY,
    REFUSED,
    FIND,
    HOLD,
    RELEASE,
    CALL,
    NOTICE,
    CANCEL,
    HTTP,
    UPLOAD,
    UPLOADED,
    MORE,
    FORWARD,
    REPLY,
    GONE,
    ALIVE,
) = range(16)
# core to edge
(
    HELLO,
    STOP,
    RESULT,
    FAILURE,
    BATCH,
    FLAGS,
    CLOSED,
    RESPONSE,
    PIECE,
    END,
    FORWARDED,
    ANSWERED,
    LEFT,
    ASK_ALIVE,
) = range(20, 34)

PIECES_AHEAD = 8
"""How many pieces of a response body the core sends before the edge has consumed any."""

Message = tuple[Any, ...]
_LENGTH_BYTES = 4
_HIGH_WATER_BYTES = 1 << 20
_UNAVAILABLE = HttpResponse(503, b'[{"errorCode":"SERVER_UNAVAILABLE","message":"The server is stopping"}]')


class Wire(asyncio.Protocol):
    """One end. `receive` gets every message, on the loop; `lost` is called once when the connection is gone."""

    def __init__(self, receive: Callable[[Message], None], lost: Callable[[], None]) -> None:
        self._receive = receive
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._rest = bytearray()  # bytes of a frame that has not arrived in full
        self._out: list[bytes] = []  # frames of this turn of the loop
        self._waiters: list[asyncio.Future[None]] = []
        self._is_paused = False
        self.is_lost = False

    @property
    def unsent_bytes(self) -> int:
        """Bytes that the other end has not taken yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def send(self, message: Message) -> None:
        """Send a message. A no-op if the connection is gone."""
        self.send_frame(frame(message))

    def send_frame(self, data: bytes) -> None:
        """Send a frame made by `frame`."""
        # One write, and one system call, for all frames of this turn; a busy turn sends hundreds.
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(data)

    async def drained(self) -> None:
        """Wait until the other end has caught up.

        Call it before sending much, and never while holding something that the other end waits for.
        """
        if self._is_paused and not self.is_lost:
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            await waiter

    def close(self) -> None:
        """Send what is left, then close the connection."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    # called by the loop

    # Above the mark, `drained` holds back callers that produce much; single frames are sent regardless, because holding
    # back an answer could deadlock two ends that wait for each other.
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = stream = cast("asyncio.Transport", transport)
        stream.set_write_buffer_limits(_HIGH_WATER_BYTES)

    def data_received(self, data: bytes) -> None:
        rest = self._rest
        rest += data
        at, end = 0, len(rest)
        while end - at >= _LENGTH_BYTES:
            begin = at + _LENGTH_BYTES
            after = begin + int.from_bytes(rest[at:begin], "little")
            if after > end:
                break  # the rest of this frame is still to come
            try:
                self._receive(load(rest[begin:after]))
            except Exception:
                # One bad message must not lose the frames behind it.
                log.exception("server.link_message_failed")
            at = after
        del rest[:at]  # once per read, not per frame: deleting from the front moves the rest

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self.resume_writing()  # nobody may wait for a peer that is gone
        self._lost()

    def _flush(self) -> None:
        out, self._out = self._out, []
        if out and self._transport is not None and not self.is_lost:
            self._transport.write(b"".join(out))


def frame(message: Message) -> bytes:
    """Return a message as bytes on the wire. Make it once to send it to several edges."""
    data = dump(message)
    return len(data).to_bytes(_LENGTH_BYTES, "little") + data


class CoreWire:
    """The edge's end: sends requests and matches answers to them. `handlers` take the core's messages, by kind."""

    def __init__(self) -> None:
        self.wire: Wire | None = None
        # Numbers start at the process id, so that an answer to an edge that died is never taken for an answer to the
        # edge that replaced it: forwarded requests outlive the edge that received them.
        self._numbers = itertools.count(os.getpid() << 32)
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._bodies: dict[int, _Body] = {}
        self.handlers: dict[int, Callable[..., None]] = {
            RESULT: self._take_result,
            FAILURE: self._take_failure,
            RESPONSE: self._take_response,
            PIECE: self._take_piece,
            END: self._end_body,
        }

    def next_number(self) -> int:
        """Return a number that no pending request has."""
        return next(self._numbers)

    def send(self, *message: Any) -> None:
        """Send a notice to the core. A no-op while not connected."""
        if self.wire is not None:
            self.wire.send(message)

    async def ask(self, kind: int, *arguments: Any) -> Any:
        """Send a request and return its result. Cancelling it cancels the work in the core. Raises PlatformError."""
        wire = self.wire
        if wire is None or wire.is_lost:
            raise StoreClosed("the server is stopping")
        number = self.next_number()
        future = self._calls[number] = asyncio.get_running_loop().create_future()
        try:
            await wire.drained()  # back-pressure: a core that is behind gets no more requests
            wire.send((kind, number, *arguments))
            return await future
        except asyncio.CancelledError:
            self.send(CANCEL, number)
            raise
        finally:
            self._calls.pop(number, None)

    async def call_http(self, request: HttpRequest) -> HttpResponse:
        """Have the core answer an HTTP request. Never raises. Not cancelled: a write that began is finished."""
        wire = self.wire
        if wire is None or wire.is_lost:
            return _UNAVAILABLE
        number = self.next_number()
        future = self._calls[number] = asyncio.get_running_loop().create_future()
        try:
            await wire.drained()
            upload = request.upload
            wire.send((HTTP, number, *pack_request(request), upload is not None))
            if upload is not None:
                blocks = upload.iter_raw()
                # Read on a thread, because the upload is a file. The head went first, so the core can store the pieces
                # as they come.
                while piece := await asyncio.to_thread(next, blocks, b""):
                    await wire.drained()
                    wire.send((UPLOAD, number, piece))
                wire.send((UPLOADED, number, upload.is_packed))
            status, body, content_type, headers, coming = await future
        except PlatformError:
            return _UNAVAILABLE
        finally:
            self._calls.pop(number, None)
        pieces = None if coming is None else _Pieces(self, number, coming)
        return HttpResponse(status, body, content_type, headers, pieces)

    def forget_body(self, number: int) -> None:
        """Stop a response whose pieces nobody reads any more."""
        if self._bodies.pop(number, None) is not None:
            self.send(CANCEL, number)

    def _take_result(self, number: int, value: Any) -> None:
        future = self._calls.get(number)
        if future is not None and not future.done():
            future.set_result(value)

    def _take_failure(self, number: int, form: ErrorForm) -> None:
        future = self._calls.get(number)
        if future is not None and not future.done():
            future.set_exception(unpack_error(form))

    def _take_response(self, number: int, *response: Any) -> None:
        *head, has_pieces = response
        coming: _Body | None = None
        if has_pieces:
            # Registered before the head is handed on: the pieces of a short body may arrive before its reader runs.
            coming = self._bodies[number] = _Body()
        self._take_result(number, (*head, coming))

    def _take_piece(self, number: int, piece: bytes) -> None:
        body = self._bodies.get(number)
        if body is not None:
            body.queue.put_nowait(piece)

    def _end_body(self, number: int, is_whole: bool) -> None:
        body = self._bodies.pop(number, None)
        if body is not None:
            body.is_whole = is_whole
            body.queue.put_nowait(None)


class _Body:
    """The pieces of one response body that have arrived, at most `PIECES_AHEAD`."""

    def __init__(self) -> None:
        self.is_whole = True
        self.queue: asyncio.Queue[bytes | None] = asyncio.Queue()


class _Pieces:
    """Iterates over a body and asks for one more piece per piece taken. Dropping it cancels the rest."""

    def __init__(self, core: CoreWire, number: int, body: _Body) -> None:
        self._core = core
        self._number = number
        self._body = body

    def __aiter__(self) -> _Pieces:
        return self

    async def __anext__(self) -> bytes:
        piece = await self._body.queue.get()
        if piece is None:
            if not self._body.is_whole:
                raise InternalError("the core ended the response early")
            raise StopAsyncIteration
        self._core.send(MORE, self._number)  # a credit: the core may send one more
        return piece

    def __del__(self) -> None:
        self._core.forget_body(self._number)


class RemoteLink(CoreLink, Protocol):
    """`CoreLink` for one org whose core is another process. Made by `open_remote_link`."""

    def take_batch(self, form: Sequence[Any], /) -> None:
        """Deliver a commit that came over the wire."""


class _RemoteOrg:
    """What all generated stubs share, and the calls that are not generated."""

    def __init__(self, core: CoreWire, org_id: str) -> None:
        self._core = core
        self._org_id = org_id
        self._deliver: Callable[[CommittedBatch], None] | None = None

    def take_batch(self, form: Sequence[Any]) -> None:
        if self._deliver is not None:
            self._deliver(unpack_batch(form))

    def watch_commits(self, deliver: Callable[[CommittedBatch], None]) -> Callable[[], None]:
        self._deliver = deliver
        return self._unwatch

    def _unwatch(self) -> None:
        self._deliver = None


def _make_stub(name: str, form: CallForm) -> Callable[..., Any]:
    """Return the method that sends one declared call. Everything that is the same for each call is bound here."""
    pack, unpack = form.pack_arguments, form.result.unpack

    async def request(self: _RemoteOrg, *arguments: Any) -> Any:
        # The trace goes along, so that the core's spans belong to the client's request.
        trace = str(current_trace() or "")
        result = await self._core.ask(CALL, self._org_id, name, pack(arguments), trace)
        return result if unpack is None else unpack(result)

    def notify(self: _RemoteOrg, *arguments: Any) -> None:
        self._core.send(NOTICE, self._org_id, name, pack(arguments))

    return request if form.is_request else notify


# One class for all orgs of the process: the stubs are made once, when the module is loaded.
_REMOTE_LINK = type(
    "RemoteLink", (_RemoteOrg,), {name: _make_stub(name, form) for name, form in CALLS.items()}
)


def open_remote_link(core: CoreWire, org_id: str) -> RemoteLink:
    """Return the link for one org."""
    return cast("RemoteLink", _REMOTE_LINK(core, org_id))


def pack_request(request: HttpRequest) -> tuple[Any, ...]:
    """Return an HTTP request without its upload, ready to be sent."""
    return request.method, request.target, request.headers, request.body, request.scheme, request.peer
