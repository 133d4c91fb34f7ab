"""Handshakes: open sessions and render their replies."""

from __future__ import annotations

import secrets
import string
from dataclasses import dataclass

from tidewire.access.principal import Principal
from tidewire.clock import Clock
from tidewire.delivery.usage import EdgeUsage
from tidewire.errors import PlatformError
from tidewire.frontends.bayeux import wire
from tidewire.frontends.bayeux.ack import Acknowledgements, wants_acknowledgements
from tidewire.frontends.bayeux.durable_sessions import DurableSessions
from tidewire.frontends.bayeux.polls import Polls
from tidewire.frontends.bayeux.registry import SessionRegistry
from tidewire.frontends.bayeux.session import Session, SessionTimes
from tidewire.frontends.bayeux.session_guard import Caller, Rejection
from tidewire.frontends.bayeux.settings import BayeuxSettings
from tidewire.frontends.bayeux.wire import Endpoint, Message
from tidewire.frontends.bayeux.wire_errors import (
    TOO_MANY_CONNECTIONS,
    Reconnect,
    WireError,
    invalid_connection_type,
    wire_error,
)
from tidewire.telemetry import counters
from tidewire.transport.responses import JSON_HEADERS
from tidewire.transport.routes import Exchange

_ALPHANUMERIC = string.ascii_lowercase + string.digits


@dataclass(frozen=True, slots=True)
class Handshakes:
    """Opens sessions. Client ids start with `_home`, which names the edge."""

    _clock: Clock
    _settings: BayeuxSettings
    _times: SessionTimes
    _sessions: SessionRegistry
    _polls: Polls
    _usage: EdgeUsage
    _durable: DurableSessions | None
    _home: str

    async def answer(self, caller: Caller, exchange: Exchange, message: Message) -> None:
        """Open a session for a caller, or reply with the reason why not."""
        try:
            endpoint, principal = caller.check()
            self._check(message)
            session = await self._open(caller, endpoint, principal, message)
        except Rejection as rejection:
            exchange.respond(200, wire.render_body([_render_failure(caller, message, rejection.error)]))
            return
        headers = JSON_HEADERS
        if not caller.browser:
            secure = "; Secure" if caller.request.scheme == "https" else ""
            cookie = f"{wire.COOKIE_NAME}={session.browser}; Path=/cometd/; HttpOnly{secure}"
            headers += f"Set-Cookie: {cookie}\r\n".encode()
        reply = wire.render_handshake(
            message,
            session.client_id,
            endpoint,
            self._times.hold_ms,
            has_ack=session.acks is not None,
            has_websocket=session.has_websocket,
        )
        exchange.respond(200, wire.render_body([reply]), headers)

    async def _open(
        self, caller: Caller, endpoint: Endpoint, principal: Principal, message: Message
    ) -> Session:
        """Return a new session, counted and, if sessions are durable, stored. Raises Rejection."""
        now_s = self._clock.monotonic_s()
        browser = caller.browser or _random_text(28)
        session = Session(self._home + _random_text(32), endpoint, principal, browser, self._times, now_s)
        session.credentials = caller.credentials
        session.has_websocket = self._settings.has_websocket
        self._polls.watch(session)
        if wants_acknowledgements(message):
            session.acks = Acknowledgements()
        try:
            surplus = await self._usage.admit_client(
                session.client_id, "bayeux", principal.user_id, is_durable=endpoint.is_durable
            )
            self._make_room(principal, surplus)
            if self._durable is not None:
                await self._durable.store(session)
        except (PlatformError, Rejection) as error:
            self._usage.release_client(session.client_id)
            if isinstance(error, Rejection):
                raise
            raise Rejection(wire_error(error)) from error
        session.touch(self._clock.monotonic_s())
        self._sessions.add(session)
        counters["bayeux.sessions_opened"] += 1
        self._polls.start_sweeping()
        return session

    def _make_room(self, principal: Principal, surplus: int) -> None:
        """Evict surplus sessions of a user. Sessions on other edges cannot be evicted from here. Raises Rejection."""
        surplus = max(surplus, self._sessions.count_of(principal) + 1 - self._settings.max_sessions_per_user)
        evicted = self._sessions.to_evict(principal, surplus)
        if len(evicted) < surplus:
            raise Rejection(WireError(TOO_MANY_CONNECTIONS))
        for session in evicted:
            self._polls.evict(session)

    def _check(self, message: Message) -> None:
        kinds = message.get("supportedConnectionTypes")
        known = {wire.LONG_POLLING, wire.WEBSOCKET} if self._settings.has_websocket else {wire.LONG_POLLING}
        if (
            isinstance(kinds, list)
            and kinds
            and not any(kind in known for kind in kinds if isinstance(kind, str))
        ):
            raise Rejection(invalid_connection_type(", ".join(str(kind)[:40] for kind in kinds[:10])))
        if len(self._sessions) >= self._settings.max_sessions:
            raise Rejection(WireError(TOO_MANY_CONNECTIONS))


def _render_failure(caller: Caller, message: Message, error: WireError) -> bytes:
    reconnect = Reconnect.HANDSHAKE if error.reconnect is Reconnect.RETRY else Reconnect.NONE
    is_durable = isinstance(caller.endpoint, Endpoint) and caller.endpoint.is_durable
    return wire.render_handshake_failure(message, error.reason or error.text, reconnect, is_durable)


def _random_text(length: int) -> str:
    # 36 ** 32 is over 165 bits: a client id cannot be guessed.
    return "".join(secrets.choice(_ALPHANUMERIC) for _ in range(length))
