"""The seam between edge and core over a Unix socket: frames, calls that overtake each other, bodies in pieces.

A frame is four bytes of length and a message, a tuple that begins with its kind. Frames arrive in the order they
were sent, and what one turn of the loop sends leaves together; so an edge knows of a commit before it can tell anybody
of an answer that follows it. `Wire` is one end of the socket, `CoreWire` what an edge asks through, `RemoteLink` the
part of it that belongs to one org.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections.abc import Callable, Sequence
from typing import Any, cast

from tidewire.access.principal import Principal
from tidewire.delivery.link import (
    ChannelGrant,
    ManagedStart,
    PublishDraft,
    PublishOutcomes,
    TopicDescription,
)
from tidewire.delivery.link_values import Delivered, DurableClient, StreamState
from tidewire.errors import InternalError, PlatformError, StoreClosed
from tidewire.eventlog.log import LogBounds, LogPage
from tidewire.events import CommittedBatch, Family
from tidewire.server.wire_values import CALLS, ErrorForm, dump, load, unpack_batch, unpack_error
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
    TELL,
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
"""How many pieces of a response may be under way to an edge that has not asked for more."""

Message = tuple[Any, ...]
_LENGTH_BYTES = 4
_HIGH_WATER_BYTES = 1 << 20
_UNAVAILABLE = HttpResponse(503, b'[{"errorCode":"SERVER_UNAVAILABLE","message":"The server is stopping"}]')


class Wire(asyncio.Protocol):
    """One end. `receive` gets every message, on the loop; `lost` is called once when the other end is gone."""

    def __init__(self, receive: Callable[[Message], None], lost: Callable[[], None]) -> None:
        self._receive = receive
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._rest = bytearray()
        self._out: list[bytes] = []
        self._waiters: list[asyncio.Future[None]] = []
        self._is_paused = False
        self.is_lost = False

    @property
    def unsent_bytes(self) -> int:
        """How much the other end has still to take."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def send(self, message: Message) -> None:
        """Send a message; nothing happens if the other end is gone."""
        self.send_frame(frame(message))

    def send_frame(self, data: bytes) -> None:
        """Send what `frame` made."""
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(data)

    async def drained(self) -> None:
        """Wait until the other end keeps up. Before sending much, and never while holding what it waits for."""
        if self._is_paused and not self.is_lost:
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            await waiter

    def close(self) -> None:
        """Send what is left, then hang up."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    # called by the loop

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
                break
            try:
                self._receive(load(rest[begin:after]))
            except Exception:
                # A message that cannot be handled must not cost those behind it.
                log.exception("server.link_message_failed")
            at = after
        del rest[:at]

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
        self.resume_writing()
        self._lost()

    def _flush(self) -> None:
        out, self._out = self._out, []
        if out and self._transport is not None and not self.is_lost:
            self._transport.write(b"".join(out))


def frame(message: Message) -> bytes:
    """A message as it travels; made once for all who are sent it."""
    data = dump(message)
    return len(data).to_bytes(_LENGTH_BYTES, "little") + data


class CoreWire:
    """An edge's way to its core. `handlers` take the messages that answer something asked here, by kind."""

    def __init__(self) -> None:
        self.wire: Wire | None = None
        # What was under way when an edge died must not be taken for something of the one that replaced it.
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
        """A number that nothing under way has."""
        return next(self._numbers)

    def send(self, *message: Any) -> None:
        """Tell core something."""
        if self.wire is not None:
            self.wire.send(message)

    async def ask(self, kind: int, *arguments: Any) -> Any:
        """Ask core something. Raises PlatformError. Who stops waiting stops core from working on it."""
        wire = self.wire
        if wire is None or wire.is_lost:
            raise StoreClosed("the server is stopping")
        number = self.next_number()
        future = self._calls[number] = asyncio.get_running_loop().create_future()
        try:
            await wire.drained()
            wire.send((kind, number, *arguments))
            return await future
        except asyncio.CancelledError:
            self.send(CANCEL, number)
            raise
        finally:
            self._calls.pop(number, None)

    async def call_http(self, request: HttpRequest) -> HttpResponse:
        """Have core answer a request. Never raises; not cancelled by anything: a write begun is finished."""
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
        """Nobody reads a response's pieces any more."""
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
            # Handed on with the head: the end of a short body may be here before anybody has read that.
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
    """What has come of one response's body. Core never sends more than `PIECES_AHEAD` pieces unasked."""

    def __init__(self) -> None:
        self.is_whole = True
        self.queue: asyncio.Queue[bytes | None] = asyncio.Queue()


class _Pieces:
    """Reads a body, and asks for more as fast as it is taken; once it is dropped, core stops making it."""

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
                raise InternalError("the response broke off")
            raise StopAsyncIteration
        self._core.send(MORE, self._number)
        return piece

    def __del__(self) -> None:
        self._core.forget_body(self._number)


class RemoteLink:
    """`CoreLink` for one org, whose core is another process."""

    def __init__(self, core: CoreWire, org_id: str) -> None:
        self._core = core
        self._deliver: Callable[[CommittedBatch], None] | None = None
        self.org_id = org_id

    def take_batch(self, form: Sequence[Any]) -> None:
        """A commit has come over the wire."""
        if self._deliver is not None:
            self._deliver(unpack_batch(form))

    async def authenticate(self, token: str) -> Principal:
        found: Principal = await self._call("authenticate", token)
        return found

    def touch_sessions(self, session_ids: frozenset[str]) -> None:
        self._tell("touch_sessions", session_ids)

    async def admit_client(self, client_id: str, is_durable: bool, user_id: str) -> int:
        surplus: int = await self._call("admit_client", client_id, is_durable, user_id)
        return surplus

    def renew_clients(self, client_ids: frozenset[str]) -> None:
        self._tell("renew_clients", client_ids)

    def release_client(self, client_id: str) -> None:
        self._tell("release_client", client_id)

    async def admit_subscription(
        self, client_id: str, channel: str, family: Family, is_durable: bool
    ) -> bool:
        return bool(await self._call("admit_subscription", client_id, channel, family, is_durable))

    def release_subscription(self, client_id: str, channel: str) -> None:
        self._tell("release_subscription", client_id, channel)

    def count_delivered(self, deliveries: tuple[Delivered, ...]) -> None:
        self._tell("count_delivered", deliveries)

    async def store_client(self, client: DurableClient) -> None:
        await self._call("store_client", client)

    def store_positions(self, clients: tuple[DurableClient, ...]) -> None:
        self._tell("store_positions", clients)

    def forget_client(self, client_id: str) -> None:
        self._tell("forget_client", client_id)

    async def find_client(self, client_id: str) -> DurableClient | None:
        found: DurableClient | None = await self._call("find_client", client_id)
        return found

    async def call_http(self, request: HttpRequest) -> HttpResponse:
        return await self._core.call_http(request)

    async def open_channel(self, principal: Principal, channel: str, api_version: float) -> ChannelGrant:
        grant: ChannelGrant = await self._call("open_channel", principal, channel, api_version)
        return grant

    async def renew_channel(
        self, principal: Principal, grant: ChannelGrant, api_version: float
    ) -> ChannelGrant:
        renewed: ChannelGrant = await self._call("renew_channel", principal, grant, api_version)
        return renewed

    async def begin_listening(self, topic: str, user_id: str) -> None:
        await self._call("begin_listening", topic, user_id)

    def end_listening(self, topic: str, user_id: str) -> None:
        arguments = CALLS["end_listening"].pack_arguments((topic, user_id))
        self._core.send(TELL, self.org_id, "end_listening", arguments)

    async def visible_record_ids(
        self, principal: Principal, entity: str, record_ids: tuple[str, ...]
    ) -> frozenset[str]:
        visible: frozenset[str] = await self._call("visible_record_ids", principal, entity, record_ids)
        return visible

    async def enrich_page(self, grant: ChannelGrant, page: LogPage) -> LogPage:
        completed: LogPage = await self._call("enrich_page", grant, page)
        return completed

    async def read_log_head(self) -> int:
        head: int = await self._call("read_log_head")
        return head

    async def read_log_bounds(self, family: Family) -> LogBounds:
        bounds: LogBounds = await self._call("read_log_bounds", family)
        return bounds

    async def is_position_known(self, position: int) -> bool:
        is_known: bool = await self._call("is_position_known", position)
        return is_known

    async def read_log(
        self, family: Family, topics: frozenset[str], after: int, max_events: int, max_bytes: int
    ) -> LogPage:
        page: LogPage = await self._call("read_log", family, topics, after, max_events, max_bytes)
        return page

    async def find_position_at(self, family: Family, time_ms: int) -> int:
        position: int = await self._call("find_position_at", family, time_ms)
        return position

    async def open_managed(
        self, principal: Principal, subscription_id: str, name: str, holder: str
    ) -> ManagedStart:
        start: ManagedStart = await self._call("open_managed", principal, subscription_id, name, holder)
        return start

    async def check_managed(self, principal: Principal, subscription_id: str, holder: str) -> None:
        await self._call("check_managed", principal, subscription_id, holder)

    async def commit_managed(
        self, principal: Principal, subscription_id: str, holder: str, position: int
    ) -> None:
        await self._call("commit_managed", principal, subscription_id, holder, position)

    def release_managed(self, subscription_id: str, holder: str) -> None:
        self._tell("release_managed", subscription_id, holder)

    def report_streams(self, streams: tuple[StreamState, ...]) -> None:
        self._tell("report_streams", streams)

    async def describe_topic(self, principal: Principal, topic: str) -> TopicDescription:
        description: TopicDescription = await self._call("describe_topic", principal, topic)
        return description

    async def schema_json(self, schema_id: str) -> str:
        text: str = await self._call("schema_json", schema_id)
        return text

    async def publish(
        self, principal: Principal, topic: str, drafts: Sequence[PublishDraft]
    ) -> PublishOutcomes:
        outcomes: PublishOutcomes = await self._call("publish", principal, topic, drafts)
        return outcomes

    def watch_commits(self, deliver: Callable[[CommittedBatch], None]) -> Callable[[], None]:
        self._deliver = deliver
        return self._unwatch

    def _unwatch(self) -> None:
        self._deliver = None

    def _tell(self, name: str, *arguments: Any) -> None:
        self._core.send(TELL, self.org_id, name, CALLS[name].pack_arguments(arguments))

    async def _call(self, name: str, *arguments: Any) -> Any:
        form = CALLS[name]
        trace = str(current_trace() or "")
        result = await self._core.ask(CALL, self.org_id, name, form.pack_arguments(arguments), trace)
        unpack = form.result.unpack
        return result if unpack is None else unpack(result)


def pack_request(request: HttpRequest) -> tuple[Any, ...]:
    """A request without its upload, ready to be sent."""
    return request.method, request.target, request.headers, request.body, request.scheme, request.peer
