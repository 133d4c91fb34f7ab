"""Subscriptions that outlive their calls: events in order, each once, over lost connections and ended logins.

Theory of operation: one task per subscription reads. Events that have come wait in memory until they are taken; demand
is what is left of `max_requested` beside them, so the server never sends more than fits. Whatever ends a call, the next
one goes on where the last received event was. How it says so is up to the cursor: an ordinary one names a replay id, a
managed one relies on what was committed, and leaves out what it has had already.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Self

from tidewire.client.login import Login
from tidewire.client.pubsub_connection import PubSubConnection, Retry, iter_queue, read_response
from tidewire.client.pubsub_cursors import Cursor, ManagedCursor
from tidewire.client.pubsub_messages import DecodedEvent
from tidewire.errors import (
    InternalError,
    ManagedActive,
    PlatformError,
    ProtocolViolation,
    ReplayIdExpired,
    ReplayIdInvalid,
)
from tidewire.schema.proto import pubsub_pb2 as pb

Decode = Callable[[pb.ConsumerEvent], Awaitable[DecodedEvent]]

LONGEST_SILENCE_S = 300.0  # servers promise a sign of life within 270 s


class Subscription:
    """Events of one subscription: `async for event in subscription`. Ends when closed; raises what no retry mends.

    For one consumer, on one event loop. `failure` says why there will be no further event.
    """

    def __init__(
        self,
        connection: PubSubConnection,
        decode: Decode,
        cursor: Cursor,
        *,
        max_requested: int,
        metadata: Sequence[tuple[str, str]],
        retry: Retry,
    ) -> None:
        self._connection = connection
        self._decode = decode
        self._cursor = cursor
        self._max_requested = max_requested
        self._metadata = tuple(metadata)
        self._retry = retry
        self._waiting: deque[DecodedEvent] = deque()
        self._changed = asyncio.Event()
        self.failure: PlatformError | None = None
        self._answered = asyncio.Event()
        self._is_closed = False
        self._last: bytes | None = None
        self._calls = 0
        # per call
        self._requests: asyncio.Queue[Any] | None = None
        self._granted = max_requested
        self._owed = 0
        self._task = asyncio.create_task(self._run(), name="pubsub-subscription")
        self._task.add_done_callback(self._note_end)

    @property
    def calls(self) -> int:
        """How many calls have been opened so far."""
        return self._calls

    @property
    def last_replay_id(self) -> bytes | None:
        """The last event taken from this subscription: what a later program resumes after."""
        return self._last

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> DecodedEvent:
        """Wait for the next event. Raises a PlatformError once all that came before it have been taken."""
        while not self._waiting:
            if self._is_closed:
                raise StopAsyncIteration
            if self.failure is not None:
                raise self.failure
            self._changed.clear()
            await self._changed.wait()
        event = self._waiting.popleft()
        self._last = event.replay_id
        self._ask_for_more()
        return event

    async def wait_answered(self, timeout_s: float) -> bool:
        """Whether the server has begun to answer, or failed, within the time. Some keep silent until there is an
        event."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._answered.wait()
        return self._answered.is_set()

    async def close(self) -> None:
        """End the subscription; what has come and was not taken is dropped. Idempotent."""
        self._is_closed = True
        self._waiting.clear()
        self._task.cancel()
        await asyncio.wait({self._task})
        self._changed.set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    def send(self, request: Any) -> None:
        """Put a request of the cursor's on the wire. Without a call it is left to the next one's first requests."""
        if self._requests is not None:
            self._requests.put_nowait(request)
        else:
            self._changed.set()

    def _note_end(self, task: asyncio.Task[None]) -> None:
        failure = ProtocolViolation("the subscription was closed") if task.cancelled() else task.exception()
        if not isinstance(failure, PlatformError):
            failure = InternalError(f"the subscription failed: {failure!r}")
        self.failure = failure
        self._cursor.fail(failure)
        self._answered.set()
        self._changed.set()

    async def _run(self) -> None:
        while True:
            login: Login | None = None
            try:
                login = await self._connection.login()
                is_alive = await self._read_call(login)
            except (ReplayIdExpired, ReplayIdInvalid, ManagedActive) as error:
                if not self._cursor.can_recover(error):
                    raise
                await self._retry.pause()
            except PlatformError as error:
                await self._retry.failed(error, login)
            else:
                # The server ended the call, as it does with one that asks for nothing.
                if not is_alive:
                    await self._retry.pause()
                while len(self._waiting) >= self._max_requested and not self._cursor.has_commits():
                    self._changed.clear()
                    await self._changed.wait()

    async def _read_call(self, login: Login) -> bool:
        """One call to its end, whether or not that is a failure; whether the server answered at all."""
        self._calls += 1
        self._granted = self._max_requested
        self._owed = max(1, self._max_requested - len(self._waiting))
        requests: asyncio.Queue[Any] = asyncio.Queue()
        for request in self._cursor.first_requests(self._owed):
            requests.put_nowait(request)
        call = self._connection.open_stream(
            self._cursor.rpc,
            iter_queue(requests),
            self._cursor.parse,
            login,
            (*self._metadata, *self._cursor.metadata()),
        )
        self._requests = requests
        is_alive = False
        try:
            while (response := await read_response(call, LONGEST_SILENCE_S)) is not None:
                self._count(response, is_first=not is_alive)
                is_alive = True
                self._answered.set()
                self._retry.succeeded()
                await self._take(response)
                self._ask_for_more()
        finally:
            self._requests = None
            requests.put_nowait(None)
            call.cancel()
        return is_alive

    async def _take(self, response: Any) -> None:
        events = self._cursor.take(response)
        for request in self._cursor.follow_ups():
            self.send(request)
        for consumed in events:
            event = await self._decode(consumed)
            self._cursor.note(consumed)
            self._waiting.append(event)
            self._changed.set()
        self._cursor.note_end(response)

    def _count(self, response: Any, *, is_first: bool) -> None:
        self._owed -= len(response.events)
        if is_first:
            # Only one request is out so far, so this response shows how much of it the server grants at most.
            pending = response.pending_num_requested
            self._granted = max(
                1, min(self._max_requested, pending + len(response.events) + len(self._waiting))
            )
            self._owed = pending

    def _ask_for_more(self) -> None:
        """Top demand up when half of it is used, so that few requests do."""
        missing = self._granted - self._owed - len(self._waiting)
        if self._requests is not None and missing > 0 and missing * 2 >= self._granted:
            self._owed += missing
            self._requests.put_nowait(self._cursor.more_request(missing))
        self._changed.set()


class ManagedSubscription:
    """Events of a subscription whose place the server keeps. Commit what has been dealt with.

    Over lost connections no event is handed out twice; what a program that ends has not committed comes again to the
    next one.
    """

    def __init__(self, subscription: Subscription, cursor: ManagedCursor) -> None:
        self._subscription = subscription
        self._cursor = cursor

    @property
    def calls(self) -> int:
        """How many calls have been opened so far."""
        return self._subscription.calls

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> DecodedEvent:
        """Wait for the next event."""
        return await anext(self._subscription)

    async def commit(self, replay_id: bytes) -> None:
        """Have the server note an event, and all before it, as dealt with; wait until it has.

        A commit that a lost connection leaves in doubt is sent again. Raises RequestRefused.
        """
        if self._subscription.failure is not None:
            raise self._subscription.failure
        request, done = self._cursor.add_commit(replay_id)
        self._subscription.send(request)
        await done

    async def close(self) -> None:
        """End the subscription. Idempotent."""
        await self._subscription.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()
