"""An asynchronous CometD client: events of any channel in order, across lost connections and expired logins.

    async with CometdClient(lambda: login(credentials)) as client:
        await client.subscribe("/topic/InvoiceStatementUpdates", replay=-2)
        async for event in client:
            print(event.replay_id, event.data)

Works with any server of the protocol. Theory of operation: one task polls. After any failed poll the session is dropped
and a new one opened, and every subscription resumes after its last queued replay id. Continuing the old session would
lose events: sessions have no acknowledgement, so a lost response would leave a gap. On 401 the client logs in again; an
unreachable server is retried after the advised interval plus an exponential backoff. The queue is bounded: while it is
full the client does not poll, and if the server drops the session meanwhile, the client recovers in the same way.

What cannot be resumed: a subscription that started with -1 and has not received an event has no replay id, and below
API version 37.0 no event has one. Both restart with new events.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

from tidewire.client.cometd_messages import (
    CONNECT,
    DISCONNECT,
    LONG_POLLING,
    SUBSCRIBE,
    UNSUBSCRIBE,
    Advice,
    Message,
    error_of,
    handshake_message,
    http_error,
    is_event,
    merge_advice,
    parse_messages,
    render_messages,
    replay_id_of,
    subscribe_message,
)
from tidewire.client.http_connection import HttpConnection
from tidewire.client.login import Login
from tidewire.errors import (
    ClientUnknown,
    InternalError,
    PlatformError,
    ProtocolViolation,
    RequestRefused,
    ServerUnreachable,
    SessionInvalid,
)

NEW_EVENTS = -1
ALL_EVENTS = -2

_REQUEST_S = 30.0
_NETWORK_DELAY_S = 15.0  # added to the advised timeout of a held connect
_DISCONNECT_S = 2.0
_SUBSCRIBES_PER_REQUEST = 50  # keeps a request far below the server's 32,768 bytes
_FIRST_DURABLE_VERSION = 37.0


@dataclass(frozen=True, slots=True)
class ReceivedEvent:
    """One received event. `replay_id` is None below API version 37.0."""

    channel: str
    replay_id: int | None
    data: dict[str, Any]


@dataclass(slots=True)
class _Subscription:
    """A requested subscription. `replay` follows the queued events; `is_granted` once the server accepted it."""

    channel: str
    replay: int
    is_granted: bool = False


class CometdClient:
    """A client of one server and user. Use it with `async with`; all calls belong on one event loop.

    `sign_in` runs in a thread, at the start and whenever the server no longer accepts the token; it raises LoginFailed,
    or ServerUnreachable to be called again later. `max_queued` bounds the queue of received events.
    """

    def __init__(
        self,
        sign_in: Callable[[], Login],
        *,
        api_version: str = "67.0",
        tls_ca: bytes | None = None,
        max_queued: int = 1000,
        min_pause_s: float = 0.1,
        max_pause_s: float = 30.0,
    ) -> None:
        self._sign_in = sign_in
        self._path = f"/cometd/{api_version}"
        self._is_durable = float(api_version) >= _FIRST_DURABLE_VERSION
        self._tls_ca = tls_ca
        self._min_pause_s = min_pause_s
        self._max_pause_s = max_pause_s
        self._queue: asyncio.Queue[ReceivedEvent | None] = asyncio.Queue(max_queued)
        self._wanted: dict[str, _Subscription] = {}
        self._task: asyncio.Task[None] | None = None
        self._failure: PlatformError | None = None
        self._is_closed = False
        self.handshakes = 0  # sessions opened so far
        # per login
        self._login: Login | None = None
        self._is_login_proven = False
        # per session
        self._polling: HttpConnection | None = None
        self._calling: HttpConnection | None = None
        self._client_id = ""
        self._cookies: dict[str, str] = {}
        self._advice = Advice()
        self._ready = asyncio.Event()  # set while a session is open, and forever once the client has ended

    async def __aenter__(self) -> Self:
        """Log in and do the handshake. Raises the server's rejection; waits while it cannot be reached."""
        self._task = asyncio.create_task(self._run(), name="cometd-polling")
        self._task.add_done_callback(self._note_end)
        try:
            await self._live_session()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def subscribe(self, channel: str, replay: int = NEW_EVENTS) -> None:
        """Subscribe to a channel: -1 for new events, -2 for all retained events, or after a replay id.

        Returns when the server has accepted. Raises ChannelUnknown, ChannelForbidden, ReplayIdInvalid or LimitExceeded
        if the server rejects it. An existing subscription to the channel restarts at `replay`.
        """
        await self.unsubscribe(channel)
        wanted = _Subscription(channel, replay)
        self._wanted[channel] = wanted
        failures = 0
        try:
            while True:
                session = await self._live_session()
                try:
                    await self._ask_for([wanted])
                except (ServerUnreachable, ClientUnknown, SessionInvalid):
                    # The polling task notices the same failure and opens a new session.
                    await asyncio.sleep(self._pause_s(failures))
                    failures += 1
                    continue
                if session == self.handshakes and self._ready.is_set():
                    wanted.is_granted = True
                    return
        except BaseException:
            if self._wanted.get(channel) is wanted:
                del self._wanted[channel]
            raise

    async def unsubscribe(self, channel: str) -> None:
        """Unsubscribe from a channel; events that are already queued are still delivered. Idempotent."""
        if self._wanted.pop(channel, None) is None:
            return
        message = {"channel": UNSUBSCRIBE, "clientId": self._client_id, "subscription": channel}
        # If the session has just ended, its subscriptions are gone too, and the next session omits this one.
        with suppress(PlatformError):
            await self._call([message])

    async def receive(self) -> ReceivedEvent:
        """Return the next event. After the last one raises what ended the client, or ProtocolViolation if closed."""
        event = await self._next()
        if event is None:
            raise ProtocolViolation("the client is closed")
        return event

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedEvent:
        event = await self._next()
        if event is None:
            raise StopAsyncIteration
        return event

    async def close(self) -> None:
        """Disconnect from the server if it still answers, and release everything. Idempotent."""
        self._is_closed = True
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self._disconnect(self._client_id)
        self._close_connections()
        self._end()

    # sessions

    async def _next(self) -> ReceivedEvent | None:
        event: ReceivedEvent | None = None
        if not (self._queue.empty() and self._is_over):
            event = await self._queue.get()
        if event is None:
            self._end()  # wakes other waiting tasks
            if self._failure is not None:
                raise self._failure
        return event

    @property
    def _is_over(self) -> bool:
        return self._is_closed or self._failure is not None

    def _end(self) -> None:
        """Wake all tasks that wait for a session or an event."""
        self._ready.set()
        with suppress(asyncio.QueueFull):
            self._queue.put_nowait(None)

    async def _live_session(self) -> int:
        """Wait for an open session and return its number. Raises what ended the client."""
        await self._ready.wait()
        if self._failure is not None:
            raise self._failure
        if self._is_closed:
            raise ProtocolViolation("the client is closed")
        return self.handshakes

    async def _run(self) -> None:
        failures = 0
        while True:
            try:
                await self._open_session()
                await self._connect(is_first=True)
                failures = 0
                while True:
                    await self._connect()
            except SessionInvalid:
                if self._login is not None and not self._is_login_proven:
                    raise
                self._login = None
            except (ClientUnknown, ProtocolViolation, ServerUnreachable):
                pass
            finally:
                self._ready.clear()
                self._close_connections()
            await asyncio.sleep(self._pause_s(failures))
            failures += 1

    def _close_connections(self) -> None:
        for connection in (self._polling, self._calling):
            if connection is not None:
                connection.close()

    def _note_end(self, task: asyncio.Task[None]) -> None:
        """Record why the polling task ended, and wake waiting tasks."""
        error = None if task.cancelled() else task.exception()
        if isinstance(error, PlatformError):
            self._failure = error
        elif error is not None:
            self._failure = InternalError(f"the polling task failed: {error!r}")
        self._end()

    def _pause_s(self, failures: int) -> float:
        """Return the advised interval plus an exponential backoff with jitter."""
        pause_s = min(self._max_pause_s, self._min_pause_s * 2.0 ** min(failures, 20))
        return self._advice.interval_ms / 1000 + pause_s * random.uniform(0.5, 1.0)  # noqa: S311 - not a secret

    async def _open_session(self) -> None:
        if self._login is None:
            self._login = await asyncio.to_thread(self._sign_in)
            self._is_login_proven = False
            self._polling = HttpConnection(self._login.instance_url, self._tls_ca)
            self._calling = HttpConnection(self._login.instance_url, self._tls_ca)
            self._cookies.clear()
        message = handshake_message()
        reply = _reply_to(message, await self._call([message]))
        if not reply.get("successful"):
            error = error_of(reply)
            # At a handshake no client id exists yet, so "unknown client" means that the login was rejected.
            raise SessionInvalid(error.message) if isinstance(error, ClientUnknown) else error
        client_id = reply.get("clientId")
        if not isinstance(client_id, str):
            raise ProtocolViolation("the handshake's reply has no client id")
        former, self._client_id = self._client_id, client_id
        self._advice = merge_advice(Advice(), reply)
        granted = [wanted for wanted in self._wanted.values() if wanted.is_granted]
        for first in range(0, len(granted), _SUBSCRIBES_PER_REQUEST):
            await self._ask_for(granted[first : first + _SUBSCRIBES_PER_REQUEST])
        self.handshakes += 1
        self._ready.set()
        if former:
            # The old session would count against the org's client limit until the server expires it.
            await self._disconnect(former)

    async def _connect(self, *, is_first: bool = False) -> None:
        """Poll once and queue the events. Raises if a new session is needed, or if the client has to end."""
        message: Message = {"channel": CONNECT, "clientId": self._client_id, "connectionType": LONG_POLLING}
        if is_first:
            message["advice"] = {"timeout": 0}
        timeout_s = self._advice.timeout_ms / 1000 + _NETWORK_DELAY_S
        reply = _reply_to(message, await self._post(self._polling, [message], timeout_s))
        self._advice = merge_advice(self._advice, reply)
        if not reply.get("successful"):
            error = error_of(reply)
            # With the advice `handshake` a new session helps; `none` is final unless the login was the cause.
            if self._advice.reconnect == "handshake" and not isinstance(error, SessionInvalid):
                raise ClientUnknown(error.message)
            if self._advice.reconnect == "retry" and isinstance(error, RequestRefused):
                raise ServerUnreachable(error.message)
            raise error
        self._is_login_proven = True
        if self._advice.reconnect != "retry":
            raise ClientUnknown("the server ended the session")
        if self._advice.interval_ms:
            await asyncio.sleep(self._advice.interval_ms / 1000)

    async def _ask_for(self, subscriptions: Iterable[_Subscription]) -> None:
        """Send subscribe requests. Raises the first rejection."""
        by_channel = {wanted.channel: wanted for wanted in subscriptions}
        answer = await self._call(
            [
                subscribe_message(
                    self._client_id, wanted.channel, wanted.replay if self._is_durable else None
                )
                for wanted in by_channel.values()
            ]
        )
        replies = {str(m.get("subscription")): m for m in answer if m.get("channel") == SUBSCRIBE}
        for channel in by_channel:
            reply = replies.get(channel)
            if reply is None:
                raise ProtocolViolation(f"the subscription to {channel} was not answered")
            if not reply.get("successful"):
                raise error_of(reply, channel)

    async def _disconnect(self, client_id: str) -> None:
        """Disconnect a session if the server still knows it."""
        if not client_id:
            return
        message = {"channel": DISCONNECT, "clientId": client_id}
        with suppress(PlatformError, TimeoutError):
            async with asyncio.timeout(_DISCONNECT_S):
                await self._call([message])

    # messages

    async def _take_events(self, messages: Iterable[Message]) -> None:
        for message in messages:
            if not is_event(message):
                continue
            wanted = self._wanted.get(message["channel"])
            if wanted is None:
                continue
            replay_id = replay_id_of(message)
            await self._queue.put(ReceivedEvent(wanted.channel, replay_id, message["data"]))
            if replay_id is not None:
                wanted.replay = replay_id

    async def _call(self, messages: list[Message]) -> list[Message]:
        return await self._post(self._calling, messages, _REQUEST_S)

    async def _post(
        self, connection: HttpConnection | None, messages: list[Message], timeout_s: float
    ) -> list[Message]:
        """Send messages, queue the events of the response, and return all that was received."""
        if connection is None or self._login is None:
            raise ClientUnknown("the client has no session")
        headers = {"Authorization": f"Bearer {self._login.token}", "Content-Type": "application/json"}
        if self._cookies:
            headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in self._cookies.items())
        answer = await connection.post(self._path, render_messages(messages), headers, timeout_s)
        if answer.status != 200:
            raise http_error(answer.status)
        self._cookies.update(answer.cookies)
        received = parse_messages(answer.body)
        await self._take_events(received)
        return received


def _reply_to(message: Message, received: Iterable[Message]) -> Message:
    for reply in received:
        if reply.get("channel") == message["channel"]:
            return reply
    raise ProtocolViolation(f"{message['channel']} was not answered")
