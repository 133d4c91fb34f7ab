"""Handshakes: who may open a session, and what a new one is told."""

from __future__ import annotations

import secrets
import string

from tidewire.access.principal import Principal
from tidewire.clock import Clock
from tidewire.delivery.usage import EdgeUsage
from tidewire.errors import PlatformError
from tidewire.frontends.bayeux import wire
from tidewire.frontends.bayeux.ack import Acknowledgements, wants_acknowledgements
from tidewire.frontends.bayeux.callers import Caller, Refusal
from tidewire.frontends.bayeux.keeping import SessionKeeper
from tidewire.frontends.bayeux.polling import Polls
from tidewire.frontends.bayeux.registry import SessionRegistry
from tidewire.frontends.bayeux.session import Session, SessionTimes
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


class Handshakes:
    """Opens sessions. `home` is what client ids begin with, if they must tell one edge from another."""

    __slots__ = ("_clock", "_home", "_keeper", "_polls", "_sessions", "_settings", "_times", "_usage")

    def __init__(
        self,
        clock: Clock,
        settings: BayeuxSettings,
        sessions: SessionRegistry,
        polls: Polls,
        usage: EdgeUsage,
        keeper: SessionKeeper | None,
        home: str,
    ) -> None:
        self._usage = usage
        self._keeper = keeper
        self._clock = clock
        self._settings = settings
        self._sessions = sessions
        self._polls = polls
        self._home = home
        self._times = SessionTimes(settings.hold_s, settings.reconnect_window_s, settings.old_session_s)

    async def answer(self, caller: Caller, exchange: Exchange, message: Message) -> None:
        """Open a session for a caller, or say why not."""
        try:
            endpoint, principal = caller.check()
            self._check(message)
            session = await self._open(caller, endpoint, principal, message)
        except Refusal as refusal:
            exchange.respond(200, wire.render_body([_render_denial(caller, message, refusal.error)]))
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
        """A new session, counted and, if sessions are kept, stored. Raises Refusal."""
        now_s = self._clock.monotonic_s()
        browser = caller.browser or _random_text(28)
        session = Session(self._home + _random_text(32), endpoint, principal, browser, self._times, now_s)
        session.credentials = caller.credentials
        session.has_websocket = self._settings.has_websocket
        self._polls.attend(session)
        if wants_acknowledgements(message):
            session.acks = Acknowledgements()
        try:
            surplus = await self._usage.admit_client(
                session.client_id, is_durable=endpoint.is_durable, user_id=principal.user_id
            )
            self._make_room(principal, surplus)
            if self._keeper is not None:
                await self._keeper.store(session)
        except (PlatformError, Refusal) as error:
            self._usage.release_client(session.client_id)
            if isinstance(error, Refusal):
                raise
            raise Refusal(wire_error(error)) from error
        session.touch(self._clock.monotonic_s())
        self._sessions.add(session)
        counters["bayeux.sessions_opened"] += 1
        self._polls.start_sweeping()
        return session

    def _make_room(self, principal: Principal, surplus: int) -> None:
        """End as many sessions of a user, or what is too many for this process; those that other edges have cannot be
        reached from here. Raises Refusal.
        """
        surplus = max(surplus, self._sessions.count_of(principal) + 1 - self._settings.max_sessions_per_user)
        crowded = self._sessions.crowded_out(principal, surplus)
        if len(crowded) < surplus:
            raise Refusal(WireError(TOO_MANY_CONNECTIONS))
        for session in crowded:
            self._polls.expel(session)

    def _check(self, message: Message) -> None:
        kinds = message.get("supportedConnectionTypes")
        known = {wire.LONG_POLLING, wire.WEBSOCKET} if self._settings.has_websocket else {wire.LONG_POLLING}
        if (
            isinstance(kinds, list)
            and kinds
            and not any(kind in known for kind in kinds if isinstance(kind, str))
        ):
            raise Refusal(invalid_connection_type(", ".join(str(kind)[:40] for kind in kinds[:10])))
        if len(self._sessions) >= self._settings.max_sessions:
            raise Refusal(WireError(TOO_MANY_CONNECTIONS))


def _render_denial(caller: Caller, message: Message, error: WireError) -> bytes:
    reconnect = Reconnect.HANDSHAKE if error.reconnect is Reconnect.RETRY else Reconnect.NONE
    is_durable = isinstance(caller.endpoint, Endpoint) and caller.endpoint.is_durable
    return wire.render_handshake_refusal(message, error.reason or error.text, reconnect, is_durable)


def _random_text(length: int) -> str:
    # 36 ** 32 is over 165 bits: a client id cannot be guessed.
    return "".join(secrets.choice(_ALPHANUMERIC) for _ in range(length))
