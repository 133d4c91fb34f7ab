"""The Bayeux front end on the loop: requests in, held connects out.

Theory of operation. A connect that comes alone, from a client verified a moment ago, is handled without a
task: parse, look for events, hold. Everything else takes a task, because it may have to ask core. When a
subscription wakes its session the session is listed once; on the next turn of the loop all listed sessions
are answered, so that several channels share one reply. One sweep answers holds that are over and drops
sessions that did not come back.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import string
from functools import partial

from tidewire.access.principal import Principal
from tidewire.clock import Clock
from tidewire.delivery.hub import Hub
from tidewire.delivery.link import CoreLink
from tidewire.errors import (
    BodyMalformed,
    ClientUnknown,
    PlatformError,
    ResourceUnknown,
    SessionInvalid,
    VersionUnsupported,
)
from tidewire.frontends.bayeux import wire
from tidewire.frontends.bayeux.registry import SessionRegistry
from tidewire.frontends.bayeux.session import Session, SessionTimes
from tidewire.frontends.bayeux.settings import BayeuxSettings
from tidewire.frontends.bayeux.subscribing import reopen, subscribe, unsubscribe
from tidewire.frontends.bayeux.wire import Endpoint, Message
from tidewire.frontends.bayeux.wire_errors import (
    CHANNEL_MISSING,
    CHANNEL_UNKNOWN,
    NO_HANDSHAKE,
    OTHER_USER,
    PUBLISH_DENIED,
    TOO_MANY_CLIENTS,
    Reconnect,
    WireError,
    invalid_connection_type,
    no_cookie,
    wire_error,
)
from tidewire.telemetry import counters
from tidewire.transport.http import HttpRequest
from tidewire.transport.responses import JSON_HEADERS, TEXT_HEADERS
from tidewire.transport.routes import Exchange, Route

__all__ = ["BayeuxApp", "BayeuxSettings"]

log = logging.getLogger(__name__)

BODY_LIMIT_BYTES = 32_768
_ENDPOINTS_KEPT = 200
_ALPHANUMERIC = string.ascii_lowercase + string.digits


class _Refusal(Exception):
    """Carries a failure from the handling of one message to its reply; never leaves this module."""

    def __init__(self, error: WireError, *, shows_client: bool = True) -> None:
        super().__init__(error.text)
        self.error = error
        self.shows_client = shows_client


class _Caller:
    """One request and who sent it, asked once for all its messages."""

    __slots__ = ("endpoint", "identity", "request")

    def __init__(
        self,
        request: HttpRequest,
        endpoint: Endpoint | VersionUnsupported,
        identity: Principal | PlatformError,
    ) -> None:
        self.request = request
        self.endpoint = endpoint
        self.identity = identity

    def check(self) -> tuple[Endpoint, Principal]:
        """The endpoint and the user, if both are good. Raises _Refusal."""
        if isinstance(self.endpoint, VersionUnsupported):
            raise _Refusal(wire_error(self.endpoint))
        if isinstance(self.identity, PlatformError):
            raise _Refusal(wire_error(self.identity))
        return self.endpoint, self.identity

    @property
    def credentials(self) -> str:
        """The Authorization header as sent."""
        return self.request.headers.get("authorization", "")

    @property
    def browser(self) -> str:
        """The browser id that the request's cookie tells, if any."""
        return wire.parse_browser(self.request.headers.get("cookie"))


class BayeuxApp:
    """One per edge; `route` is what a listener needs. All calls belong on the loop."""

    def __init__(
        self,
        link: CoreLink,
        hub: Hub,
        clock: Clock,
        settings: BayeuxSettings | None = None,
        *,
        home: str = "",
    ) -> None:
        self._link = link
        self._home = home  # what client ids begin with, if they must tell one edge from another
        self._hub = hub
        self._clock = clock
        self._settings = settings or BayeuxSettings()
        self._times = SessionTimes(self._settings.hold_s, self._settings.reconnect_window_s)
        self._sessions = SessionRegistry()
        self._endpoints: dict[str, Endpoint] = {}
        self._due: list[Session] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._is_closing = False
        hub.watch_sessions(self._end_login)
        hub.add_session_source(lambda: [s.principal.session_id for s in self._sessions.all()])

    @property
    def route(self) -> Route:
        """Where this front end lives."""
        return Route(
            "/cometd",
            park=self.handle,
            body_limit_bytes=BODY_LIMIT_BYTES,
            too_large_text="Maximum Request Size Exceeded",
        )

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
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        now_s = self._clock.monotonic_s()
        for session in self._sessions.all():
            exchange = session.exchange
            self._sessions.remove(session)
            if exchange is not None:
                # Not `handshake`: on a connect that succeeded the JavaScript client throws at that advice.
                exchange.respond(200, wire.render_body([session.end_connect(now_s, Reconnect.RETRY)]))
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5.0)

    # requests

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
            if session is not None and self._is_verified(session, request):
                self._connect(session, message, exchange)
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
            caller = _Caller(request, endpoint, await self._identify(request))
            # Bayeux, handshake request: other messages in the same request must be ignored.
            handshake = next((m for m in messages if m.get("channel") == wire.HANDSHAKE), None)
            if handshake is not None:
                self._shake_hands(caller, exchange, handshake)
            elif len(messages) == 1 and messages[0].get("channel") == wire.CONNECT:
                await self._connect_slowly(caller, exchange, messages[0])
            else:
                await self._answer_batch(caller, exchange, messages)
        except Exception:
            log.exception("bayeux.request_failed")
            exchange.respond(500, b"[]")

    async def _answer_batch(self, caller: _Caller, exchange: Exchange, messages: list[Message]) -> None:
        replies: list[bytes] = []
        connected: Session | None = None
        for message in messages:
            try:
                session = await self._session_of(message, caller)
                if message["channel"] == wire.CONNECT:
                    self._begin_connect(session, message)
                    replies.append(session.end_connect(self._clock.monotonic_s()))
                    connected = session
                else:
                    await self._perform(session, message)
                    replies.append(wire.render_reply(message, session.client_id))
            except _Refusal as refusal:
                replies.append(_render_refusal(message, refusal))
        events: list[bytes] = []
        # Taken last, when nothing can come between the events and the socket any more.
        if connected is not None and not connected.is_closed and exchange.is_open:
            events = connected.collect(self._settings.max_reply_events, self._settings.max_reply_bytes)
            counters["bayeux.events_delivered"] += len(events)
        exchange.respond(200, wire.render_body(events + replies))

    async def _perform(self, session: Session, message: Message) -> None:
        """Do what a message other than handshake and connect asks. Raises _Refusal."""
        failure: WireError | None = None
        match message["channel"]:
            case wire.SUBSCRIBE:
                failure = await subscribe(self._hub, session, message, self._settings.max_subscriptions)
                self._wake(session)
            case wire.UNSUBSCRIBE:
                failure = unsubscribe(session, message)
            case wire.DISCONNECT:
                self._disconnect(session)
            case str(channel) if channel.startswith("/meta/"):
                failure = WireError(CHANNEL_UNKNOWN)
            case _:
                # Events are published over REST and Pub/Sub; here the attempt is refused rather than ignored.
                failure = WireError(PUBLISH_DENIED)
        if failure is not None:
            raise _Refusal(failure)

    # who is calling

    async def _identify(self, request: HttpRequest) -> Principal | PlatformError:
        try:
            return await self._link.authenticate(wire.parse_token(request.headers.get("authorization")))
        except PlatformError as error:
            return error

    def _is_verified(self, session: Session, request: HttpRequest) -> bool:
        settings = self._settings
        if settings.requires_cookie or self._clock.monotonic_s() - session.verified_s > settings.verify_s:
            return False
        given = request.headers.get("authorization", "")
        if given is session.credentials:
            return True
        if hmac.compare_digest(given.encode(), session.credentials.encode()):
            # A connection that repeats its head repeats this very object, which is quicker to compare.
            session.credentials = given
            return True
        return False

    async def _session_of(self, message: Message, caller: _Caller) -> Session:
        """The session a message belongs to, checked against who sent it. Raises _Refusal."""
        if not isinstance(message.get("channel"), str) or not message["channel"].startswith("/"):
            raise _Refusal(WireError(CHANNEL_MISSING))
        _, principal = caller.check()
        client_id = wire.client_id_of(message)
        if not client_id:
            raise _Refusal(WireError(NO_HANDSHAKE, Reconnect.HANDSHAKE))
        session = self._sessions.try_find(client_id)
        if session is None:
            raise _unknown_client()
        if (session.principal.org_id, session.principal.user_id) != (principal.org_id, principal.user_id):
            raise _Refusal(WireError(OTHER_USER, Reconnect.NONE))
        if self._settings.requires_cookie and caller.browser != session.browser:
            raise _unknown_client() if caller.browser else _Refusal(no_cookie(client_id))
        now_s = self._clock.monotonic_s()
        session.touch(now_s)
        session.credentials = caller.credentials
        session.verified_s = now_s
        if session.principal.session_id != principal.session_id:
            self._sessions.move(session, principal)
            await reopen(self._hub, session)
        return session

    # meta messages

    def _shake_hands(self, caller: _Caller, exchange: Exchange, message: Message) -> None:
        try:
            endpoint, principal = caller.check()
            self._check_handshake(message)
        except _Refusal as refusal:
            error = refusal.error
            reconnect = Reconnect.HANDSHAKE if error.reconnect is Reconnect.RETRY else Reconnect.NONE
            is_durable = isinstance(caller.endpoint, Endpoint) and caller.endpoint.is_durable
            reason = error.reason or error.text
            reply = wire.render_handshake_refusal(message, reason, reconnect, is_durable)
            exchange.respond(200, wire.render_body([reply]))
            return
        headers = JSON_HEADERS
        browser = caller.browser
        if not browser:
            browser = _random_text(28)
            secure = "; Secure" if caller.request.scheme == "https" else ""
            cookie = f"{wire.COOKIE_NAME}={browser}; Path=/cometd/; HttpOnly{secure}"
            headers += f"Set-Cookie: {cookie}\r\n".encode()
        now_s = self._clock.monotonic_s()
        session = Session(self._home + _random_text(32), endpoint, principal, browser, self._times, now_s)
        session.credentials = caller.credentials
        session.wake = partial(self._wake, session)
        session.lost = partial(self._lose, session)
        self._sessions.add(session)
        counters["bayeux.sessions_opened"] += 1
        if self._sweep_timer is None:
            self._sweep()
        reply = wire.render_handshake(message, session.client_id, endpoint, self._times.hold_ms)
        exchange.respond(200, wire.render_body([reply]), headers)

    def _check_handshake(self, message: Message) -> None:
        kinds = message.get("supportedConnectionTypes")
        if isinstance(kinds, list) and kinds and wire.LONG_POLLING not in kinds:
            raise _Refusal(invalid_connection_type(", ".join(str(kind)[:40] for kind in kinds[:10])))
        if len(self._sessions) >= self._settings.max_sessions:
            raise _Refusal(WireError(TOO_MANY_CLIENTS))

    async def _connect_slowly(self, caller: _Caller, exchange: Exchange, message: Message) -> None:
        try:
            session = await self._session_of(message, caller)
        except _Refusal as refusal:
            exchange.respond(200, wire.render_body([_render_refusal(message, refusal)]))
            return
        self._connect(session, message, exchange)

    def _connect(self, session: Session, message: Message, exchange: Exchange) -> None:
        """A connect that came alone: answer it with events, or hold it."""
        try:
            self._begin_connect(session, message)
        except _Refusal as refusal:
            exchange.respond(200, wire.render_body([_render_refusal(message, refusal)]))
            return
        if not exchange.is_open:
            return
        events = session.collect(self._settings.max_reply_events, self._settings.max_reply_bytes)
        now_s = self._clock.monotonic_s()
        if not events:
            hold_s = session.hold_for_s(message)
            if hold_s > 0:
                session.hold(exchange, now_s, hold_s)
                return
        counters["bayeux.events_delivered"] += len(events)
        events.append(session.end_connect(now_s))
        exchange.respond(200, wire.render_body(events))

    def _begin_connect(self, session: Session, message: Message) -> None:
        if session.is_closed:
            raise _unknown_client()
        previous = session.exchange
        error = session.begin_connect(message)
        if error is not None:
            raise _Refusal(error)
        if previous is not None:
            # One connect per client, and the newer one counts. The older gets no Bayeux reply: a client would
            # take it for a finished poll and answer it with yet another connect.
            session.lose_exchange(previous, self._clock.monotonic_s())
            previous.respond(408, b"[]")

    def _disconnect(self, session: Session) -> None:
        exchange = session.exchange
        self._sessions.remove(session)
        if exchange is not None:
            reply = session.end_connect(self._clock.monotonic_s(), Reconnect.NONE)
            exchange.respond(200, wire.render_body([reply]))

    # delivery

    def _wake(self, session: Session) -> None:
        """Something may be ready for a session. Called by its subscriptions."""
        if session.exchange is None or session.is_due:
            return
        session.is_due = True
        if not self._due:
            asyncio.get_running_loop().call_soon(self._deliver)
        self._due.append(session)

    def _deliver(self) -> None:
        due, self._due = self._due, []
        max_events, max_bytes = self._settings.max_reply_events, self._settings.max_reply_bytes
        now_s = self._clock.monotonic_s()
        delivered = 0
        for session in due:
            session.is_due = False
            exchange = session.exchange
            if exchange is None or session.is_closed or not exchange.is_open:
                continue
            try:
                events = session.collect(max_events, max_bytes)
            except Exception:
                # One client's trouble must not cost the others their events.
                log.exception("bayeux.delivery_failed")
                exchange.respond(500, b"[]")
                self._sessions.remove(session)
                continue
            if events:
                delivered += len(events)
                events.append(session.end_connect(now_s))
                exchange.respond(200, wire.render_body(events))
        counters["bayeux.events_delivered"] += delivered

    def _lose(self, session: Session, exchange: Exchange) -> None:
        session.lose_exchange(exchange, self._clock.monotonic_s())

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweep_timer = loop.call_later(self._settings.sweep_s, self._sweep)
        now_s = self._clock.monotonic_s()
        for session in self._sessions.late(now_s):
            exchange = session.exchange
            if exchange is not None:
                exchange.respond(200, wire.render_body([session.end_connect(now_s)]))
            else:
                counters["bayeux.sessions_expired"] += 1
                log.info("bayeux.session_expired", extra={"user_id": session.principal.user_id})
                self._sessions.remove(session)

    def _end_login(self, login_id: str) -> None:
        """A login ended: its clients are told at once, not at their next connect."""
        for session in self._sessions.of_login(login_id):
            exchange = session.exchange
            self._sessions.remove(session)
            if exchange is not None:
                reply = session.fail_connect(wire_error(SessionInvalid("the login has ended")))
                exchange.respond(200, wire.render_body([reply]))


def _unknown_client() -> _Refusal:
    return _Refusal(wire_error(ClientUnknown("no such client")), shows_client=False)


def _render_refusal(message: Message, refusal: _Refusal) -> bytes:
    client_id = wire.client_id_of(message) if refusal.shows_client else ""
    return wire.render_failure(message, refusal.error, client_id)


def _random_text(length: int) -> str:
    # 36 ** 32 is over 165 bits: a client id cannot be guessed.
    return "".join(secrets.choice(_ALPHANUMERIC) for _ in range(length))
