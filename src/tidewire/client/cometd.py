"""An asynchronous CometD client: events of any channel in order, over lost connections and ended logins.

    async with CometdClient(lambda: login(credentials)) as client:
        await client.subscribe("/topic/InvoiceStatementUpdates", replay=-2)
        async for event in client:
            print(event.replay_id, event.data)

Works against any server of the protocol. Theory of operation: one task polls. Whatever breaks a poll, the session is
given up and another opened, and every subscription goes on after the last replay id that was queued: an answer that
got lost on the way would otherwise be a gap, because a session has no acknowledgement. A server that says 401 is
signed in to again; one that cannot be reached is tried again after what it advised plus a pause that doubles. The
queue is bounded: while it is full nothing is polled, and if the server forgets the session meanwhile, the same way
back is taken.

What cannot be resumed: a subscription that began with -1 and has not seen an event has no replay id to come back to,
and below API version 37.0 no event has one; both then begin anew with new events.
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
_NETWORK_DELAY_S = 15.0  # how much longer than the advised time a held connect may take
_FAREWELL_S = 2.0
_SUBSCRIBES_PER_REQUEST = 50  # keeps a request far below the server's 32,768 bytes
_FIRST_DURABLE_VERSION = 37.0


@dataclass(frozen=True, slots=True)
class ReceivedEvent:
    """One event as it came. `replay_id` is None below API version 37.0."""

    channel: str
    replay_id: int | None
    data: dict[str, Any]


@dataclass(slots=True)
class _Subscription:
    """What is wanted of a channel. `replay` follows the queued events; `is_granted` once the server said yes."""

    channel: str
    replay: int
    is_granted: bool = False


class CometdClient:
    """A client of one server and user. Use it with `async with`; all calls belong on one event loop.

    `sign_in` is called in a thread, at the start and whenever the server no longer accepts the token; it raises
    LoginFailed, or ServerUnreachable to be called again later. `max_queued` bounds the events that wait to be received.
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
        self._handshakes = 0
        # per login
        self._login: Login | None = None
        self._is_login_proven = False
        # per session
        self._polling: HttpConnection | None = None
        self._calling: HttpConnection | None = None
        self._client_id = ""
        self._cookies: dict[str, str] = {}
        self._advice = Advice()
        self._settled = asyncio.Event()  # set while a session lives, and for good once there will be no other

    @property
    def handshakes(self) -> int:
        """How many sessions have been opened so far."""
        return self._handshakes

    async def __aenter__(self) -> Self:
        """Sign in and shake hands. Raises what the server refuses; waits while it cannot be reached."""
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
        """Begin to receive a channel: from -1 new events, from -2 all that are kept, or after a replay id.

        Returns when the server has agreed. Raises ChannelUnknown, ChannelForbidden, ReplayIdInvalid or
        LimitExceeded as the server says. A channel that is subscribed to already begins again at `replay`.
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
                    # The polling task finds out by itself what has become of the session, and opens another.
                    await asyncio.sleep(self._pause_s(failures))
                    failures += 1
                    continue
                if session == self._handshakes and self._settled.is_set():
                    wanted.is_granted = True
                    return
        except BaseException:
            if self._wanted.get(channel) is wanted:
                del self._wanted[channel]
            raise

    async def unsubscribe(self, channel: str) -> None:
        """Receive no more of a channel; what is queued already still comes. Idempotent."""
        if self._wanted.pop(channel, None) is None:
            return
        message = {"channel": UNSUBSCRIBE, "clientId": self._client_id, "subscription": channel}
        # A session that has just ended takes its subscriptions with it, and this one is not asked for again.
        with suppress(PlatformError):
            await self._call([message])

    async def receive(self) -> ReceivedEvent:
        """The next event. Raises what ended the client, after the events before it, or ProtocolViolation if it was
        closed.
        """
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
        """Say goodbye, as far as the server listens, and let go of everything. Idempotent."""
        self._is_closed = True
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self._leave(self._client_id)
        for connection in (self._polling, self._calling):
            if connection is not None:
                connection.close()
        self._end()

    # sessions

    async def _next(self) -> ReceivedEvent | None:
        event: ReceivedEvent | None = None
        if not (self._queue.empty() and self._is_over):
            event = await self._queue.get()
        if event is None:
            self._end()  # for whoever else waits
            if self._failure is not None:
                raise self._failure
        return event

    @property
    def _is_over(self) -> bool:
        return self._is_closed or self._failure is not None

    def _end(self) -> None:
        """Let nobody wait for what will not come."""
        self._settled.set()
        with suppress(asyncio.QueueFull):
            self._queue.put_nowait(None)

    async def _live_session(self) -> int:
        """Wait for a session; its number. Raises what ended the client."""
        await self._settled.wait()
        if self._failure is not None:
            raise self._failure
        if self._is_closed:
            raise ProtocolViolation("the client is closed")
        return self._handshakes

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
                self._settled.clear()
                for connection in (self._polling, self._calling):
                    if connection is not None:
                        connection.close()
            await asyncio.sleep(self._pause_s(failures))
            failures += 1

    def _note_end(self, task: asyncio.Task[None]) -> None:
        """Tell those who wait that nobody polls any more."""
        error = None if task.cancelled() else task.exception()
        if isinstance(error, PlatformError):
            self._failure = error
        elif error is not None:
            self._failure = InternalError(f"the polling task failed: {error!r}")
        self._end()

    def _pause_s(self, failures: int) -> float:
        """The advised interval, and beyond the first failure a pause that doubles, spread so that clients of one
        server do not all come back at once."""
        pause_s = min(self._max_pause_s, self._min_pause_s * 2.0 ** min(failures, 20))
        return self._advice.interval_ms / 1000 + pause_s * random.uniform(0.5, 1.0)  # noqa: S311 - not a secret

    async def _open_session(self) -> None:
        if self._login is None:
            self._login = await asyncio.to_thread(self._sign_in)
            self._is_login_proven = False
            self._polling = HttpConnection(self._login.instance_url, self._tls_ca)
            self._calling = HttpConnection(self._login.instance_url, self._tls_ca)
            self._cookies.clear()
        reply = await self._call_one(handshake_message())
        if not reply.get("successful"):
            error = error_of(reply)
            # At a handshake there is no client to be unknown yet: it is the login that the server does not like.
            raise SessionInvalid(error.message) if isinstance(error, ClientUnknown) else error
        client_id = reply.get("clientId")
        if not isinstance(client_id, str):
            raise ProtocolViolation("the handshake's reply has no client id")
        former, self._client_id = self._client_id, client_id
        self._advice = merge_advice(Advice(), reply)
        granted = [wanted for wanted in self._wanted.values() if wanted.is_granted]
        for first in range(0, len(granted), _SUBSCRIBES_PER_REQUEST):
            await self._ask_for(granted[first : first + _SUBSCRIBES_PER_REQUEST])
        self._handshakes += 1
        self._settled.set()
        if former:
            # It would count against the org's limit of clients until the server misses it.
            await self._leave(former)

    async def _connect(self, *, is_first: bool = False) -> None:
        """One poll: queue what it brings. Raises what makes another session necessary, or any impossible."""
        message: Message = {"channel": CONNECT, "clientId": self._client_id, "connectionType": LONG_POLLING}
        if is_first:
            message["advice"] = {"timeout": 0}
        timeout_s = self._advice.timeout_ms / 1000 + _NETWORK_DELAY_S
        answer = await self._post(self._polling, [message], timeout_s)
        await self._take_events(answer)
        reply = next((m for m in answer if m.get("channel") == CONNECT), None)
        if reply is None:
            raise ProtocolViolation("a connect was not answered")
        self._advice = merge_advice(self._advice, reply)
        if not reply.get("successful"):
            error = error_of(reply)
            # `handshake` cures whatever it is; `none` is final unless the login was the cause.
            if self._advice.reconnect == "handshake" and not isinstance(error, SessionInvalid):
                raise ClientUnknown(error.message)
            if self._advice.reconnect == "retry" and isinstance(error, RequestRefused):
                raise ServerUnreachable(error.message)
            raise error
        self._is_login_proven = True
        if self._advice.reconnect != "retry":
            raise ClientUnknown("the server ends the session")
        if self._advice.interval_ms:
            await asyncio.sleep(self._advice.interval_ms / 1000)

    async def _ask_for(self, subscriptions: Iterable[_Subscription]) -> None:
        """Subscribe. Raises the first refusal."""
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

    async def _leave(self, client_id: str) -> None:
        """End a session, if the server still knows it."""
        if not client_id:
            return
        message = {"channel": DISCONNECT, "clientId": client_id}
        with suppress(PlatformError, TimeoutError):
            async with asyncio.timeout(_FAREWELL_S):
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

    async def _call_one(self, message: Message) -> Message:
        answer = await self._call([message])
        for reply in answer:
            if reply.get("channel") == message["channel"]:
                return reply
        raise ProtocolViolation(f"{message['channel']} was not answered")

    async def _call(self, messages: list[Message]) -> list[Message]:
        answer = await self._post(self._calling, messages, _REQUEST_S)
        await self._take_events(answer)
        return answer

    async def _post(
        self, connection: HttpConnection | None, messages: list[Message], timeout_s: float
    ) -> list[Message]:
        if connection is None or self._login is None:
            raise ClientUnknown("the client has no session")
        headers = {"Authorization": f"Bearer {self._login.token}", "Content-Type": "application/json"}
        if self._cookies:
            headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in self._cookies.items())
        answer = await connection.post(self._path, render_messages(messages), headers, timeout_s)
        if answer.status != 200:
            raise http_error(answer.status)
        self._cookies.update(answer.cookies)
        return parse_messages(answer.body)
