"""The Bayeux front end on the loop: requests in, each with one response.

Theory of operation. A connect that comes alone, from a client verified a moment ago, is handled without a
task: parse, look for events, hold. Everything else takes a task, because it may have to ask core.
"""

from __future__ import annotations

import asyncio
import logging

from tidewire.clock import Clock
from tidewire.delivery.hub import Hub
from tidewire.delivery.link import CoreLink
from tidewire.errors import BodyMalformed, PlatformError, ResourceUnknown, VersionUnsupported
from tidewire.frontends.bayeux import wire
from tidewire.frontends.bayeux.callers import Caller, Refusal, SessionGuard, render_refusal
from tidewire.frontends.bayeux.handshaking import Handshakes
from tidewire.frontends.bayeux.keeping import SessionKeeper
from tidewire.frontends.bayeux.polling import Polls
from tidewire.frontends.bayeux.registry import SessionRegistry
from tidewire.frontends.bayeux.session import Session
from tidewire.frontends.bayeux.settings import BayeuxOptions, BayeuxSettings
from tidewire.frontends.bayeux.subscribing import subscribe, unsubscribe
from tidewire.frontends.bayeux.websocket import find_credentials
from tidewire.frontends.bayeux.wire import Endpoint, Message
from tidewire.frontends.bayeux.wire_errors import CHANNEL_UNKNOWN, PUBLISH_DENIED, WireError, wire_error
from tidewire.telemetry import counters
from tidewire.transport.http import HttpRequest
from tidewire.transport.responses import TEXT_HEADERS
from tidewire.transport.routes import Exchange, ParkingHandler, Route

log = logging.getLogger(__name__)

BODY_LIMIT_BYTES = 32_768
_ENDPOINTS_KEPT = 200


def make_routes(options: BayeuxOptions, park: ParkingHandler) -> list[Route]:
    """Return the routes of this front end, handled by `park`."""
    return [
        Route(
            "/cometd",
            park=park,
            body_limit_bytes=BODY_LIMIT_BYTES,
            too_large_text="Maximum Request Size Exceeded",
            websocket=find_credentials if options.bayeux_websocket else None,
        )
    ]


class BayeuxApp:
    """One per org and edge. All calls belong on the loop."""

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
        self._keeper: SessionKeeper | None = None
        if settings.keeps_sessions:
            self._keeper = SessionKeeper(link, hub, clock, settings, self._sessions, self._polls)
            self._guard.try_restore = self._keeper.try_restore
        self._handshakes = Handshakes(
            clock, settings, self._sessions, self._polls, hub.usage, self._keeper, home
        )
        self._endpoints: dict[str, Endpoint] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closing = False
        self._sessions.removed = self._release
        hub.usage.clients = lambda: [s.client_id for s in self._sessions.all()]
        hub.usage.client_states = self._sessions.furthest_behind
        self._polls.delivered = lambda clients: hub.usage.commit_latency.observe_delivery(
            "bayeux", hub.head, clients
        )
        hub.watch_sessions(self._polls.end_login)
        hub.add_session_source(lambda: [s.principal.session_id for s in self._sessions.all()])

    @property
    def session_count(self) -> int:
        """How many clients have a session."""
        return len(self._sessions)

    def handle(self, request: HttpRequest, exchange: Exchange) -> None:
        """Take a request; the exchange is answered now or later. Never raises."""
        try:
            self._handle(request, exchange)
        except Exception:
            log.exception("bayeux.request_failed")
            exchange.respond(500, b"[]")

    async def close(self) -> None:
        """Answer held connects so that their clients come back, and end every session."""
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
        if len(self._endpoints) < _ENDPOINTS_KEPT:
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
        except Refusal as refusal:
            exchange.respond(200, wire.render_body([render_refusal(message, refusal)]))
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
            except Refusal as refusal:
                replies.append(render_refusal(message, refusal))
        events: list[bytes] = []
        # Taken last, when nothing can come between the events and the socket any more.
        if connected is not None and not connected.is_closed and exchange.is_open:
            events = self._polls.collect(connected)
            counters["bayeux.events_delivered"] += len(events)
        exchange.respond(200, wire.render_body(events + replies))

    async def _perform(self, session: Session, message: Message) -> None:
        """Do what a message other than handshake and connect asks. Raises Refusal."""
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
                # Events are published over REST and Pub/Sub; here the attempt is refused rather than ignored.
                failure = WireError(PUBLISH_DENIED)
        if failure is not None:
            raise Refusal(failure)
        if self._keeper is not None and not session.is_closed:
            try:
                await self._keeper.store(session)
            except PlatformError as error:
                raise Refusal(wire_error(error)) from error

    def _release(self, session: Session) -> None:
        """A session has gone; when the server stops, kept ones are left to come back."""
        self._hub.usage.release_client(session.client_id)
        if self._keeper is not None and not self._is_closing:
            self._keeper.forget(session)
