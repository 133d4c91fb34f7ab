"""The core's end of the wire to one edge process: its calls, its HTTP requests, and the orgs it follows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from tidewire.errors import InternalError, PlatformError, StoreClosed
from tidewire.events import CommittedBatch
from tidewire.server import wire_link as kinds
from tidewire.server.link import LocalLink
from tidewire.server.orgs import OpenOrg, Orgs
from tidewire.server.wire_link import PIECES_AHEAD, Message, Wire, frame
from tidewire.server.wire_values import CALLS, pack_batch, pack_error
from tidewire.telemetry import Snapshot
from tidewire.tracing import follow_trace
from tidewire.transport.http import HttpRequest, HttpResponse
from tidewire.transport.routes import AsyncHandler
from tidewire.transport.uploads import Upload

log = logging.getLogger(__name__)

# An edge this far behind would not catch up by being sent more. It is cut off from the org; its clients reconnect and
# read from the log.
_BEHIND_BYTES = 64 << 20
_NO_ROOM = HttpResponse(503, b"The upload cannot be stored now\n", "text/plain;charset=UTF-8")


class Relay(Protocol):
    """Forwards Bayeux requests from the edge that received them to the one that has their client."""

    def forward(self, origin: int, number: int, home: int, request: Message) -> None:
        """Forward a request to its home edge."""

    def reply(self, origin: int, number: int, reply: Message) -> None:
        """Return the home edge's answer to the edge that forwarded the request."""

    def leave(self, origin: int, number: int) -> None:
        """Cancel a request whose client has disconnected."""


class EdgeSession:
    """One edge process. `lost` is set when its connection is gone.

    `silences` counts the unanswered pings of the supervisor in `edges.py`; any message resets it.
    """

    def __init__(
        self, index: int, orgs: Orgs, answer_http: AsyncHandler, feeds: Feeds, relay: Relay, directory: Path
    ) -> None:
        self._index = index
        self._orgs = orgs
        self._answer_http = answer_http
        self._feeds = feeds
        self._directory = directory
        # By request number. Calls and streams are cancelled with the edge; HTTP requests are not, because a write that
        # began is finished.
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._requests: set[asyncio.Task[None]] = set()
        self._streams: dict[int, asyncio.Task[None]] = {}
        self._uploads: dict[int, _Uploading] = {}
        self._credits: dict[int, asyncio.Semaphore] = {}  # pieces that may still be sent unasked
        self._held: dict[str, _Hold] = {}
        self.silences = 0
        self.counted: Snapshot = ({}, {})
        self.wire = Wire(self._receive, self._lose)
        self.lost = asyncio.Event()
        self.ready: asyncio.Future[tuple[str, str]] = asyncio.get_running_loop().create_future()
        self._handlers: dict[int, Callable[..., None]] = {
            kinds.READY: lambda: self._set_ready("", ""),
            kinds.REFUSED: self._set_ready,
            kinds.FIND: self._find,
            kinds.HOLD: self._hold,
            kinds.RELEASE: self._release,
            kinds.CALL: self._call,
            kinds.NOTICE: self._notify,
            kinds.CANCEL: self._cancel,
            kinds.HTTP: self._take_http,
            kinds.UPLOAD: self._take_upload,
            kinds.UPLOADED: self._end_upload,
            kinds.MORE: self._give_credit,
            kinds.FORWARD: lambda number, home, *request: relay.forward(index, number, home, request),
            kinds.REPLY: lambda origin, number, *reply: relay.reply(origin, number, reply),
            kinds.GONE: lambda number: relay.leave(index, number),
            kinds.ALIVE: self._store_counts,
        }

    def _receive(self, message: Message) -> None:
        self.silences = 0
        self._handlers[message[0]](*message[1:])

    def _store_counts(self, counted: Snapshot) -> None:
        self.counted = counted

    def _lose(self) -> None:
        for task in (*self._calls.values(), *self._streams.values()):
            task.cancel()
        for uploading in self._uploads.values():
            uploading.upload.close()
        for hold in self._held.values():
            hold.released.set()
        self._set_ready("the edge ended at once", "edges")
        self.lost.set()

    def _set_ready(self, message: str, setting: str) -> None:
        if not self.ready.done():
            self.ready.set_result((message, setting))

    # calls

    def _spawn_call(self, number: int, call: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
        task = self._calls[number] = asyncio.create_task(self._answer_call(number, call, *arguments))
        task.add_done_callback(lambda _: self._calls.pop(number, None))

    async def _answer_call(self, number: int, call: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
        try:
            self.wire.send((kinds.RESULT, number, await call(*arguments)))
        except PlatformError as error:
            self.wire.send((kinds.FAILURE, number, pack_error(error)))
        except Exception as error:
            log.exception("server.edge_call_failed")
            self.wire.send((kinds.FAILURE, number, pack_error(InternalError(type(error).__name__))))

    def _find(self, number: int, token: str) -> None:
        self._spawn_call(number, self._orgs.find_by_token, token)

    def _call(self, number: int, org_id: str, name: str, arguments: Message, trace: str) -> None:
        self._spawn_call(number, self._ask, org_id, name, arguments, trace)

    async def _ask(self, org_id: str, name: str, arguments: Message, trace: str) -> Any:
        if trace:
            follow_trace(trace)
        hold = self._held.get(org_id)
        if hold is None:
            raise StoreClosed("The org is temporarily unavailable; retry in a few seconds")
        form = CALLS[name]
        result = await getattr(hold.link, name)(*form.unpack_arguments(arguments))
        pack = form.result.pack
        return result if pack is None else pack(result)

    def _notify(self, org_id: str, name: str, arguments: Message) -> None:
        hold = self._held.get(org_id)
        if hold is not None:
            getattr(hold.link, name)(*CALLS[name].unpack_arguments(arguments))

    def _cancel(self, number: int) -> None:
        task = self._calls.get(number) or self._streams.get(number)
        if task is not None:
            task.cancel()

    # orgs

    def _hold(self, number: int, org_id: str) -> None:
        """Keep an org open for the edge and send it the org's commits until it releases it."""
        self._spawn(self._keep(number, org_id))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work that is finished even if the edge is lost."""
        task = asyncio.create_task(work)
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)

    async def _keep(self, number: int, org_id: str) -> None:
        try:
            async with self._orgs.using(org_id) as org:
                if self.lost.is_set():
                    return
                hold = self._held[org_id] = _Hold(LocalLink(org.core))
                close = partial(self.wire.send, (kinds.CLOSED, org_id))
                org.closers.add(close)
                # Joined before the result is sent: the edge must miss no commit after it learns that it has the org.
                leave = self._feeds.join(org, self.wire)
                self.wire.send((kinds.RESULT, number, None))
                try:
                    await hold.released.wait()
                finally:
                    leave()
                    hold.link.close()
                    org.closers.discard(close)
                    del self._held[org_id]
        except PlatformError as error:
            self.wire.send((kinds.FAILURE, number, pack_error(error)))

    def _release(self, org_id: str) -> None:
        hold = self._held.get(org_id)
        if hold is not None:
            hold.released.set()

    # HTTP

    def _take_http(self, number: int, *message: Any) -> None:
        *packed, has_upload = message
        if has_upload:
            upload = Upload(self._directory)
            self._uploads[number] = _Uploading(replace(HttpRequest(*packed), upload=upload), upload)
        else:
            self._spawn(self._answer(number, HttpRequest(*packed)))

    def _take_upload(self, number: int, piece: bytes) -> None:
        uploading = self._uploads[number]
        try:
            uploading.upload.append(piece)
        except OSError:
            # Answered when the upload has ended: the edge is still sending.
            log.exception("server.upload_failed")
            uploading.has_failed = True

    def _end_upload(self, number: int, is_packed: bool) -> None:
        uploading = self._uploads.pop(number)
        if uploading.has_failed:
            uploading.upload.close()
            self._respond(number, _NO_ROOM)
            return
        uploading.upload.is_packed = is_packed
        self._spawn(self._answer(number, uploading.request))

    async def _answer(self, number: int, request: HttpRequest) -> None:
        try:
            response = await self._answer_http(request)
        except Exception:
            log.exception("server.request_failed")
            response = HttpResponse(500)
        finally:
            if request.upload is not None:
                request.upload.close()
        self._respond(number, response)

    def _respond(self, number: int, response: HttpResponse) -> None:
        has_pieces = response.pieces is not None
        # The task starts after this turn of the loop, so the head is sent before the first piece.
        if has_pieces and not self.wire.is_lost:
            self._credits[number] = asyncio.Semaphore(PIECES_AHEAD)
            task = self._streams[number] = asyncio.create_task(self._stream(number, response))
            task.add_done_callback(lambda _: self._streams.pop(number, None))
        head = (response.status, response.body, response.content_type, response.headers)
        self.wire.send((kinds.RESPONSE, number, *head, has_pieces))

    async def _stream(self, number: int, response: HttpResponse) -> None:
        is_whole = False
        try:
            if response.pieces is not None:
                async for piece in response.pieces:
                    await self._credits[number].acquire()
                    self.wire.send((kinds.PIECE, number, piece))
            is_whole = True
        except Exception:
            log.exception("server.response_broken")
        finally:
            del self._credits[number]
            self.wire.send((kinds.END, number, is_whole))

    def _give_credit(self, number: int) -> None:
        credit = self._credits.get(number)
        if credit is not None:
            credit.release()


class Feeds:
    """Sends each org's commits to the edges that follow it, encoded once for all of them."""

    def __init__(self) -> None:
        self._feeds: dict[OpenOrg, _Feed] = {}

    def join(self, org: OpenOrg, wire: Wire) -> Callable[[], None]:
        """Send the org's commits to an edge from now on. Returns a function that stops it."""
        feed = self._feeds.get(org)
        if feed is None:
            feed = self._feeds[org] = _Feed(org)
        feed.join(wire)
        return partial(self._leave, org, wire)

    def _leave(self, org: OpenOrg, wire: Wire) -> None:
        feed = self._feeds.get(org)
        if feed is None:
            return  # this edge was cut off earlier, and the last of the others has left since
        feed.wires.discard(wire)
        if not feed.wires:
            feed.unwatch()
            del self._feeds[org]


class _Feed:
    def __init__(self, org: OpenOrg) -> None:
        self._org = org
        self._needs_https = org.http.needs_https()
        self.wires: set[Wire] = set()
        self.unwatch = org.core.commits.watch(self._send_batch)

    def join(self, wire: Wire) -> None:
        self.wires.add(wire)
        wire.send(self._flags())

    def _flags(self) -> Message:
        return kinds.FLAGS, self._org.org_id, self._needs_https

    def _send_batch(self, batch: CommittedBatch) -> None:
        org_id = self._org.org_id
        # The setting changes by a commit only, so it is compared here instead of being polled.
        if self._needs_https != self._org.http.needs_https():
            self._needs_https = not self._needs_https
            for wire in self.wires:
                wire.send(self._flags())
        data = frame((kinds.BATCH, org_id, pack_batch(batch)))
        for wire in tuple(self.wires):
            if wire.unsent_bytes > _BEHIND_BYTES:
                log.error("server.edge_behind", extra={"org_id": org_id})
                wire.send((kinds.CLOSED, org_id))
                self.wires.discard(wire)
            else:
                wire.send_frame(data)


@dataclass(slots=True)
class _Hold:
    """An org that an edge follows."""

    link: LocalLink
    released: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class _Uploading:
    """A request whose body is still arriving."""

    request: HttpRequest
    upload: Upload
    has_failed: bool = False
