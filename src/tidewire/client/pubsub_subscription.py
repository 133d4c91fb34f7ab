"""Subscriptions that survive lost connections and expired logins: events in order, each once.

Theory of operation: one task per subscription reads. Received events are queued until the consumer takes them. Demand
is `max_requested` less the queued events, so the server never sends more than fits. However a call ends, the next one
resumes after the last received event. The cursor says how: an ordinary one names a replay id; a managed one relies on
its commits and skips events that it has already received.
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

LONGEST_SILENCE_S = 300.0  # servers promise a keepalive within 270 s


class Subscription:
    """The events of one subscription: `async for event in subscription`. Ends when closed; raises final errors.

    For one consumer, on one event loop. `failure` is the error that ended it, `calls` counts the calls opened so far.
    `last_replay_id` is that of the last event taken, after which a later program can resume.
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
        self._queued: deque[DecodedEvent] = deque()
        self._changed = asyncio.Event()
        self.failure: PlatformError | None = None
        self._answered = asyncio.Event()
        self._is_closed = False
        self.last_replay_id: bytes | None = None
        self.calls = 0
        # per call
        self._requests: asyncio.Queue[Any] | None = None
        self._granted = max_requested
        self._demand = 0
        self._task = asyncio.create_task(self._run(), name="pubsub-subscription")
        self._task.add_done_callback(self._note_end)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> DecodedEvent:
        """Wait for the next event. Raises the final error once all events before it have been taken."""
        while not self._queued:
            if self._is_closed:
                raise StopAsyncIteration
            if self.failure is not None:
                raise self.failure
            self._changed.clear()
            await self._changed.wait()
        event = self._queued.popleft()
        self.last_replay_id = event.replay_id
        self._ask_for_more()
        return event

    async def wait_answered(self, timeout_s: float) -> bool:
        """Wait for the server's first response or failure; return whether it came in time.

        Some servers send nothing until there is an event.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._answered.wait()
        return self._answered.is_set()

    async def close(self) -> None:
        """End the subscription and drop queued events. Idempotent."""
        self._is_closed = True
        self._queued.clear()
        self._task.cancel()
        await asyncio.wait({self._task})
        self._changed.set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    def _send(self, request: Any) -> None:
        """Send a request of the cursor. Between calls it is left to the first requests of the next call."""
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
                has_response = await self._read_call(login)
            except (ReplayIdExpired, ReplayIdInvalid, ManagedActive) as error:
                if not self._cursor.can_recover(error):
                    raise
                await self._retry.pause()
            except PlatformError as error:
                await self._retry.failed(error, login)
            else:
                # The server ended the call, as it does when there is no demand for long.
                if not has_response:
                    await self._retry.pause()
                while len(self._queued) >= self._max_requested and not self._cursor.has_commits():
                    self._changed.clear()
                    await self._changed.wait()

    async def _read_call(self, login: Login) -> bool:
        """Read one call to its end; return whether the server sent any response."""
        self.calls += 1
        self._granted = self._max_requested
        self._demand = max(1, self._max_requested - len(self._queued))
        requests: asyncio.Queue[Any] = asyncio.Queue()
        for request in self._cursor.first_requests(self._demand):
            requests.put_nowait(request)
        call = self._connection.open_stream(
            self._cursor.rpc,
            iter_queue(requests),
            self._cursor.parse,
            login,
            (*self._metadata, *self._cursor.metadata()),
        )
        self._requests = requests
        has_response = False
        try:
            while (response := await read_response(call, LONGEST_SILENCE_S)) is not None:
                self._count(response, is_first=not has_response)
                has_response = True
                self._answered.set()
                self._retry.succeeded()
                await self._take(response)
                self._ask_for_more()
        finally:
            self._requests = None
            requests.put_nowait(None)
            call.cancel()
        return has_response

    async def _take(self, response: Any) -> None:
        events = self._cursor.take(response)
        for request in self._cursor.follow_ups():
            self._send(request)
        for consumed in events:
            event = await self._decode(consumed)
            self._cursor.note(consumed)
            self._queued.append(event)
            self._changed.set()
        self._cursor.note_end(response)

    def _count(self, response: Any, *, is_first: bool) -> None:
        self._demand -= len(response.events)
        if is_first:
            # Only one request was sent so far, so this response shows the most that the server grants.
            pending = response.pending_num_requested
            self._granted = max(
                1, min(self._max_requested, pending + len(response.events) + len(self._queued))
            )
            self._demand = pending

    def _ask_for_more(self) -> None:
        """Top up demand when half of it is used, which keeps the number of requests low."""
        missing = self._granted - self._demand - len(self._queued)
        if self._requests is not None and missing > 0 and missing * 2 >= self._granted:
            self._demand += missing
            self._requests.put_nowait(self._cursor.more_request(missing))
        self._changed.set()


class ManagedSubscription(Subscription):
    """The events of a managed subscription, whose position the server keeps. Commit processed events.

    No event is delivered twice after a lost connection. Events that a program did not commit before it ended are
    delivered again to the next one.
    """

    _cursor: ManagedCursor

    async def commit(self, replay_id: bytes) -> None:
        """Commit an event and all before it; wait for the server's confirmation.

        A commit whose connection was lost is sent again. Raises RequestRefused.
        """
        if self.failure is not None:
            raise self.failure
        request, done = self._cursor.add_commit(replay_id)
        self._send(request)
        await done
