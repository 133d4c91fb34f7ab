"""The Bayeux front end: takes each request and answers it once.

Theory of operation. A connect that comes alone from a recently verified client is handled without a task: parse, look
for events, hold. That is the hot path. Everything else runs in a task because it may have to call the core.
"""

from __future__ import annotations

import asyncio
import logging

from tidewire.clock import Clock
from tidewire.delivery.hub import Hub
from tidewire.delivery.link import CoreLink
from tidewire.errors import BodyMalformed, PlatformError, ResourceUnknown, VersionUnsupported
from tidewire.frontends.bayeux import wire
from tidewire.frontends.bayeux.durable_sessions import DurableSessions
from tidewire.frontends.bayeux.handshakes import Handshakes
from tidewire.frontends.bayeux.polls import Polls
from tidewire.frontends.bayeux.registry import SessionRegistry
from tidewire.frontends.bayeux.session import Session, SessionTimes
from tidewire.frontends.bayeux.session_guard import Caller, Rejection, SessionGuard, render_rejection
from tidewire.frontends.bayeux.settings import BayeuxOptions, BayeuxSettings
from tidewire.frontends.bayeux.subscribe import subscribe, unsubscribe
from tidewire.frontends.bayeux.wire import Endpoint, Message
from tidewire.frontends.bayeux.wire_errors import CHANNEL_UNKNOWN, PUBLISH_DENIED, WireError, wire_error
from tidewire.telemetry import counters
from tidewire.transport.http import HttpRequest
from tidewire.transport.responses import TEXT_HEADERS
from tidewire.transport.routes import Exchange, ParkingHandler, Route

log = logging.getLogger(__name__)

BODY_LIMIT_BYTES = 32_768
_MAX_ENDPOINTS = 200


def make_routes(options: BayeuxOptions, park: ParkingHandler) -> list[Route]:
    """Return the routes of this front end, handled by `park`."""
    return [
        Route(
            "/cometd",
            park=park,
            body_limit_bytes=BODY_LIMIT_BYTES,
            too_large_text="Maximum Request Size Exceeded",
            websocket=wire.parse_frame_credentials if options.bayeux_websocket else None,
        )
    ]


class BayeuxApp:
    """The Bayeux endpoint of one org on one edge. Use only on the event loop."""

    def __init__(
        self,
        link: CoreLink,
        hub: Hub,
        clock: Clock,
        settings: BayeuxSettings | None = None,
        *,
        home: str = "",
    ) -> None:
        settings = settings or BayeuxSettings()
        self._hub = hub
        self._clock = clock
        self._settings = settings
        self._sessions = SessionRegistry()
        self._guard = SessionGuard(link, hub, clock, settings, self._sessions)
        self._polls = Polls(clock, settings, self._sessions)
        self._durable: DurableSessions | None = None
        if settings.has_durable_sessions:
            self._durable = DurableSessions(link, hub, clock, settings, self._sessions, self._polls)
            self._guard.try_restore = self._durable.try_restore
        times = SessionTimes(settings.hold_s, settings.reconnect_window_s, settings.old_session_s)
        self._handshakes = Handshakes(
            clock, settings, times, self._sessions, self._polls, hub.usage, self._durable, home
        )
        self._endpoints: dict[str, Endpoint] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closing = False
        self._sessions.removed = self._release
        hub.usage.add_source(lambda: [s.client_id for s in self._sessions.all()], self._sessions.most_lagging)
        self._polls.delivered = lambda clients: hub.usage.commit_latency.observe_delivery(
            "bayeux", hub.head, clients
        )
        hub.watch_sessions(self._polls.end_login)
        hub.add_session_source(lambda: [s.principal.session_id for s in self._sessions.all()])

    @property
    def session_count(self) -> int:
        """Return the number of open sessions."""
        return len(self._sessions)

    def handle(self, request: HttpRequest, exchange: Exchange) -> None:
        """Handle a request and answer its exchange now or later. Never raises."""
        try:
            self._handle(request, exchange)
        except Exception:
            log.exception("bayeux.request_failed")
            exchange.respond(500, b"[]")

    async def close(self) -> None:
        """End every session; held connects are answered so that their clients retry."""
        self._is_closing = True
        self._polls.close()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5.0)

    def _handle(self, request: HttpRequest, exchange: Exchange) -> None:
        if request.method != "POST":
            exchange.respond(405, b"Method not allowed\n", TEXT_HEADERS + b"Allow: POST\r\n")
            return
        if self._is_closing:
            exchange.respond(503, b"[]")
            return
        endpoint = self._endpoints.get(request.target) or self._read_endpoint(request)
        if endpoint is None:
            exchange.respond(404, b"Not found\n", TEXT_HEADERS)
            return
        try:
            messages = wire.parse_messages(request.body, request.headers.get("content-type", ""))
        except BodyMalformed as error:
            exchange.respond(400, error.message.encode() + b"\n", TEXT_HEADERS)
            return
        message = messages[0]
        if len(messages) == 1 and message.get("channel") == wire.CONNECT:
            session = self._sessions.try_find(wire.client_id_of(message))
            if session is not None and self._guard.is_verified(session, request):
                self._polls.connect(session, message, exchange)
                return
        task = asyncio.get_running_loop().create_task(self._answer(request, exchange, endpoint, messages))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _read_endpoint(self, request: HttpRequest) -> Endpoint | VersionUnsupported | None:
        try:
            endpoint = wire.parse_endpoint(request.path)
        except VersionUnsupported as error:
            return error
        except ResourceUnknown:
            return None
        if len(self._endpoints) < _MAX_ENDPOINTS:
            self._endpoints[request.target] = endpoint
        return endpoint

    async def _answer(
        self,
        request: HttpRequest,
        exchange: Exchange,
        endpoint: Endpoint | VersionUnsupported,
        messages: list[Message],
    ) -> None:
        try:
            caller = Caller(request, endpoint, await self._guard.identify(request))
            # Bayeux, handshake request: other messages in the same request must be ignored.
            handshake = next((m for m in messages if m.get("channel") == wire.HANDSHAKE), None)
            if handshake is not None:
                await self._handshakes.answer(caller, exchange, handshake)
            elif len(messages) == 1 and messages[0].get("channel") == wire.CONNECT:
                await self._connect(caller, exchange, messages[0])
            else:
                await self._answer_batch(caller, exchange, messages)
        except Exception:
            log.exception("bayeux.request_failed")
            exchange.respond(500, b"[]")

    async def _connect(self, caller: Caller, exchange: Exchange, message: Message) -> None:
        try:
            session = await self._guard.session_of(message, caller)
        except Rejection as rejection:
            exchange.respond(200, wire.render_body([render_rejection(message, rejection)]))
            return
        self._polls.connect(session, message, exchange)

    async def _answer_batch(self, caller: Caller, exchange: Exchange, messages: list[Message]) -> None:
        replies: list[bytes] = []
        connected: Session | None = None
        for message in messages:
            try:
                session = await self._guard.session_of(message, caller)
                if message["channel"] == wire.CONNECT:
                    self._polls.begin_connect(session, message)
                    replies.append(session.end_connect(self._clock.monotonic_s()))
                    connected = session
                else:
                    await self._perform(session, message)
                    replies.append(wire.render_reply(message, session.client_id))
            except Rejection as rejection:
                replies.append(render_rejection(message, rejection))
        events: list[bytes] = []
        # Taken last: an await between taking events and writing them could lose the events.
        if connected is not None and not connected.is_closed and exchange.is_open:
            events = self._polls.collect(connected)
            counters["bayeux.events_delivered"] += len(events)
        exchange.respond(200, wire.render_body(events + replies))

    async def _perform(self, session: Session, message: Message) -> None:
        """Handle a message other than handshake and connect. Raises Rejection."""
        failure: WireError | None = None
        match message["channel"]:
            case wire.SUBSCRIBE:
                failure = await subscribe(self._hub, session, message, self._settings.max_subscriptions)
                if failure is None:
                    session.restart(self._clock.monotonic_s())
                self._polls.wake(session)
            case wire.UNSUBSCRIBE:
                failure = unsubscribe(session, message)
            case wire.DISCONNECT:
                self._polls.disconnect(session)
            case str(channel) if channel.startswith("/meta/"):
                failure = WireError(CHANNEL_UNKNOWN)
            case _:
                # Publishing goes over REST and Pub/Sub. Reject the attempt rather than ignore it.
                failure = WireError(PUBLISH_DENIED)
        if failure is not None:
            raise Rejection(failure)
        if self._durable is not None and not session.is_closed:
            try:
                await self._durable.store(session)
            except PlatformError as error:
                raise Rejection(wire_error(error)) from error

    def _release(self, session: Session) -> None:
        """Release a removed session. Durable ones stay stored when the server stops."""
        self._hub.usage.release_client(session.client_id)
        if self._durable is not None and not self._is_closing:
            self._durable.forget(session)
