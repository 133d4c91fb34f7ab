"""Long polls: answer connects with ready events, or hold them until there are some or the hold times out.

Theory of operation. A subscription that has events wakes its session, which is queued once. On the next turn of the
loop every queued session is answered, so events of several channels share one reply. A periodic sweep answers holds
that timed out and drops sessions whose client did not come back within the reconnect window.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from types import MethodType

from tidewire.clock import Clock
from tidewire.errors import ClientUnknown, PlatformError, SessionInvalid
from tidewire.frontends.bayeux import wire
from tidewire.frontends.bayeux.registry import SessionRegistry
from tidewire.frontends.bayeux.session import Session
from tidewire.frontends.bayeux.session_guard import Rejection, render_rejection, unknown_client
from tidewire.frontends.bayeux.settings import BayeuxSettings
from tidewire.frontends.bayeux.wire import Message
from tidewire.frontends.bayeux.wire_errors import Reconnect, wire_error
from tidewire.telemetry import counters
from tidewire.transport.routes import Exchange

log = logging.getLogger(__name__)


def _ignore(clients: int) -> None:
    pass


class Polls:
    """The connects of one edge. All calls belong on the loop."""

    __slots__ = ("_clock", "_due", "_lose", "_sessions", "_settings", "_sweep_timer", "_wake", "delivered")

    def __init__(self, clock: Clock, settings: BayeuxSettings, sessions: SessionRegistry) -> None:
        self._clock = clock
        self._settings = settings
        self._sessions = sessions
        self._due: list[Session] = []
        self._sweep_timer: asyncio.TimerHandle | None = None
        self.delivered: Callable[[int], object] = _ignore
        self._wake, self._lose = self.wake, self.lose

    def watch(self, session: Session) -> None:
        """Route a session's wake-ups and lost connections here."""
        # Bound methods, two per session: a partial takes four times the memory.
        session.wake = MethodType(self._wake, session)
        session.lost = MethodType(self._lose, session)

    def connect(self, session: Session, message: Message, exchange: Exchange) -> None:
        """Answer a connect that came alone with events, or hold it."""
        try:
            self.begin_connect(session, message)
        except Rejection as rejection:
            exchange.respond(200, wire.render_body([render_rejection(message, rejection)]))
            return
        if not exchange.is_open:
            return
        events = self.collect(session)
        now_s = self._clock.monotonic_s()
        if not events:
            hold_s = session.hold_for_s(message)
            if hold_s > 0:
                session.hold(exchange, now_s, hold_s)
                return
        counters["bayeux.events_delivered"] += len(events)
        events.append(session.end_connect(now_s))
        exchange.respond(200, wire.render_body(events))

    def begin_connect(self, session: Session, message: Message) -> None:
        """Start a connect; an older one of the same client is ended. Raises Rejection."""
        if session.is_closed:
            raise unknown_client()
        previous = session.exchange
        error = session.begin_connect(message)
        if error is not None:
            raise Rejection(error)
        if previous is not None:
            # Bayeux allows one outstanding connect per client, and the newer one wins. The older gets no Bayeux reply:
            # the client would take it for a finished poll and send yet another connect.
            session.lose_exchange(previous, self._clock.monotonic_s())
            previous.respond(408, b"[]")

    def collect(self, session: Session) -> list[bytes]:
        """Return the ready events of a session, up to the size of one reply."""
        return session.collect(self._settings.max_reply_events, self._settings.max_reply_bytes)

    def disconnect(self, session: Session, reconnect: Reconnect = Reconnect.NONE) -> None:
        """End a session, by default at its client's request, and answer its held connect."""
        exchange = session.exchange
        self._sessions.remove(session)
        if exchange is not None:
            reply = session.end_connect(self._clock.monotonic_s(), reconnect)
            exchange.respond(200, wire.render_body([reply]))

    def wake(self, session: Session) -> None:
        """Queue a session for delivery on the next turn. Called by its subscriptions."""
        if session.exchange is None or session.is_due:
            return
        session.is_due = True
        if not self._due:
            asyncio.get_running_loop().call_soon(self._deliver)
        self._due.append(session)

    def lose(self, session: Session, exchange: Exchange) -> None:
        """Note that the connection of a held connect was lost."""
        session.lose_exchange(exchange, self._clock.monotonic_s())

    def evict(self, session: Session) -> None:
        """End a session; a held connect is answered with `403::Unknown client`."""
        counters["bayeux.sessions_expelled"] += 1
        self._fail(session, ClientUnknown("the session has ended"))

    def end_login(self, login_id: str) -> None:
        """End the sessions of an ended login now rather than at their next connect."""
        for session in self._sessions.of_login(login_id):
            self._fail(session, SessionInvalid("the login has ended"))

    def _fail(self, session: Session, error: PlatformError) -> None:
        exchange = session.exchange
        self._sessions.remove(session)
        if exchange is not None:
            exchange.respond(200, wire.render_body([session.fail_connect(wire_error(error))]))

    def start_sweeping(self) -> None:
        """Start the periodic sweep. Idempotent."""
        if self._sweep_timer is None:
            self._sweep()

    def close(self) -> None:
        """End every session; held connects are answered so that their clients retry."""
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for session in self._sessions.all():
            # Not `handshake`: the JavaScript client throws at that advice on a successful connect.
            self.disconnect(session, Reconnect.RETRY)

    def _deliver(self) -> None:
        due, self._due = self._due, []
        max_events, max_bytes = self._settings.max_reply_events, self._settings.max_reply_bytes
        now_s = self._clock.monotonic_s()
        delivered = clients = 0
        for session in due:
            session.is_due = False
            exchange = session.exchange
            if exchange is None or session.is_closed or not exchange.is_open:
                continue
            try:
                events = session.collect(max_events, max_bytes)
            except Exception:
                # One client's failure must not cost the others their events.
                log.exception("bayeux.delivery_failed")
                exchange.respond(500, b"[]")
                self._sessions.remove(session)
                continue
            if events:
                delivered += len(events)
                clients += 1
                events.append(session.end_connect(now_s))
                exchange.respond(200, wire.render_body(events))
        counters["bayeux.events_delivered"] += delivered
        if clients:
            self.delivered(clients)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweep_timer = loop.call_later(self._settings.sweep_s, self._sweep)
        now_s = self._clock.monotonic_s()
        for session in self._sessions.overdue(now_s):
            exchange = session.exchange
            if session.ends_s <= now_s:
                self.evict(session)
            elif exchange is not None:
                exchange.respond(200, wire.render_body([session.end_connect(now_s)]))
            else:
                counters["bayeux.sessions_expired"] += 1
                log.info("bayeux.session_expired", extra={"user_id": session.principal.user_id})
                self._sessions.remove(session)
