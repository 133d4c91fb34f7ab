"""One client's Bayeux state: its subscriptions, its outstanding connect and its deadlines.

States. A session is *fresh* after the handshake: its first connect is answered at once, with advice, because
clients wait for it. Afterwards it is *held* while a connect waits and *away* between a reply and the next
connect. `deadline_s` is the end of the current state: of the hold, after which the connect gets an empty
reply, or of the reconnect window, after which the session is gone. `ends_s` is the end of all of them.
Nothing here reads a clock or a socket; the caller passes the time and moves the bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import orjson

from tidewire.access.principal import Principal
from tidewire.errors import PlatformError
from tidewire.frontends.bayeux.ack import Acknowledgements
from tidewire.frontends.bayeux.wire import (
    CONNECT,
    LAST_TIMED_VERSION,
    LONG_POLLING,
    SUBSCRIBE,
    WEBSOCKET,
    Endpoint,
    Message,
    advice_ms,
    render_failure,
)
from tidewire.frontends.bayeux.wire_errors import Reconnect, WireError, invalid_connection_type, wire_error
from tidewire.transport.routes import Exchange

_LONGEST_SLEEP_S = 3600.0


class EventSource(Protocol):
    """The part of a subscription that a session uses."""

    error: PlatformError | None
    position: int

    def take(self, max_events: int, max_bytes: int) -> list[bytes]:
        """Return the next ready events."""

    def reached(self) -> int:
        """Return the position up to which nothing is pending."""

    def close(self) -> None:
        """Stop."""


@dataclass(frozen=True, slots=True)
class SessionTimes:
    """Timeouts of a session."""

    hold_s: float
    window_s: float
    old_session_s: float = math.inf

    @property
    def hold_ms(self) -> int:
        """Return the hold in milliseconds, as advice carries it."""
        return round(self.hold_s * 1000)


class Session:
    """Created by a handshake. Use only on the event loop."""

    __slots__ = (
        "_next_source",
        "_owes_advice",
        "_sleep_s",
        "_times",
        "acks",
        "browser",
        "client_id",
        "confirmed",
        "connect_id",
        "credentials",
        "deadline_s",
        "endpoint",
        "ends_s",
        "exchange",
        "has_websocket",
        "is_closed",
        "is_due",
        "is_fresh",
        "lost",
        "moved",
        "principal",
        "sources",
        "verified_s",
        "wake",
    )

    def __init__(
        self,
        client_id: str,
        endpoint: Endpoint,
        principal: Principal,
        browser: str,
        times: SessionTimes,
        now_s: float,
    ) -> None:
        # per session
        self.client_id = client_id
        self.endpoint = endpoint
        self.principal = principal
        self.browser = browser
        self.sources: dict[str, EventSource] = {}
        self.is_closed = False
        self.is_due = False  # listed for delivery on the next turn of the loop
        self.wake: Callable[[], None] = _ignore
        self.lost: Callable[[Exchange], None] | None = None
        self.acks: Acknowledgements | None = None
        self.confirmed: dict[str, int] = {}  # position per channel to resume from after a restart
        self.moved: Callable[[], None] | None = None  # called when they change, if the session is durable
        self.has_websocket = False
        self.credentials = ""
        self.verified_s = now_s
        self._times = times
        self._next_source = 0
        self.ends_s = math.inf
        self.restart(now_s)
        # per connect
        self.deadline_s = now_s + times.window_s
        self.exchange: Exchange | None = None
        self.connect_id = b""
        self.is_fresh = True
        self._owes_advice = True
        self._sleep_s = 0.0

    def restart(self, now_s: float) -> None:
        """Restart the lifetime of a session of an old API version. Called at handshake and subscribe."""
        if self.endpoint.api_version <= LAST_TIMED_VERSION:
            self.ends_s = now_s + self._times.old_session_s

    def begin_connect(self, message: Message) -> WireError | None:
        """Start a connect request; return its error, if any."""
        kind = message.get("connectionType", LONG_POLLING)
        if kind != LONG_POLLING and not (kind == WEBSOCKET and self.has_websocket):
            return invalid_connection_type(kind if isinstance(kind, str) else "")
        self.connect_id = b',"id":' + orjson.dumps(message["id"]) if "id" in message else b""
        if "advice" in message:
            self._owes_advice = True
            self._sleep_s = min((advice_ms(message, "interval") or 0) / 1000, _LONGEST_SLEEP_S)
        else:
            self._sleep_s = 0.0
        has_all = self.acks is None or self.acks.take_in(message)
        if self.moved is not None:
            if has_all:
                self.confirmed = {channel: source.position for channel, source in self.sources.items()}
            self.moved()
        return None

    def hold_for_s(self, message: Message) -> float:
        """Return how long the current connect may be held; 0 means answer at once."""
        if self.is_fresh:
            return 0.0
        wish_ms = advice_ms(message, "timeout")
        return self._times.hold_s if wish_ms is None else min(self._times.hold_s, wish_ms / 1000)

    def hold(self, exchange: Exchange, now_s: float, hold_s: float) -> None:
        """Hold the connect until `end_connect`."""
        self.exchange = exchange
        exchange.on_close = self.lost
        self.deadline_s = now_s + hold_s

    def collect(self, max_events: int, max_bytes: int) -> list[bytes]:
        """Return ready events within the limits; the rest waits for the next connect.

        A subscription that has ended is dropped, and its error is sent as an unsolicited failure of its subscribe.
        """
        if self.acks is not None:
            return self.acks.collect(lambda: self._take(max_events, max_bytes))
        return self._take(max_events, max_bytes)

    def _take(self, max_events: int, max_bytes: int) -> list[bytes]:
        if len(self.sources) == 1:
            (only,) = self.sources.values()
            if only.error is None:
                return only.take(max_events, max_bytes)
        sources = list(self.sources.items())
        out: list[bytes] = []
        size_bytes = 0
        # A busy channel must not starve the others: each reply starts with another one.
        start = self._next_source = (self._next_source + 1) % max(len(sources), 1)
        for channel, source in sources[start:] + sources[:start]:
            if source.error is not None:
                del self.sources[channel]
                source.close()
                failed: Message = {"channel": SUBSCRIBE, "subscription": channel}
                out.append(render_failure(failed, wire_error(source.error, channel), self.client_id))
            elif len(out) < max_events and size_bytes < max_bytes:
                taken = source.take(max_events - len(out), max_bytes - size_bytes)
                out += taken
                size_bytes += sum(map(len, taken))
        return out

    def end_connect(self, now_s: float, reconnect: Reconnect | None = None) -> bytes:
        """Render the reply to the current connect, with advice if due, and open the reconnect window."""
        self.exchange = None
        self.is_fresh = False
        self.deadline_s = now_s + self._times.window_s + self._sleep_s
        advice = b""
        if reconnect is not None:
            advice = b'"advice":{"reconnect":"%b","interval":0},' % reconnect.value.encode()
        elif self._owes_advice:
            advice = b'"advice":{"reconnect":"retry","interval":0,"timeout":%d},' % self._times.hold_ms
            self._owes_advice = False
        if self.acks is not None:
            advice += b'"ext":{"ack":%d},' % self.acks.next_batch()
        client_id = self.client_id.encode()
        return b'{"clientId":"%b",%b"channel":"/meta/connect"%b,"successful":true}' % (
            client_id,
            advice,
            self.connect_id,
        )

    def fail_connect(self, error: WireError) -> bytes:
        """Render the failure of the current connect when the session ends with an error."""
        self.exchange = None
        message: Message = {"channel": CONNECT}
        if self.connect_id:
            message["id"] = orjson.loads(self.connect_id.removeprefix(b',"id":'))
        # `403::Unknown client` carries no client id.
        shown = "" if error.reconnect is Reconnect.HANDSHAKE else self.client_id
        return render_failure(message, error, shown)

    def lose_exchange(self, exchange: Exchange, now_s: float) -> None:
        """Note that the held connect's connection was lost, and open the reconnect window."""
        if self.exchange is exchange:
            self.exchange = None
            self.deadline_s = now_s + self._times.window_s

    def confirm_new(self) -> None:
        """Record the start positions of new subscriptions and drop those of ended ones."""
        known = self.confirmed
        self.confirmed = {
            channel: known.get(channel, source.position) for channel, source in self.sources.items()
        }

    def touch(self, now_s: float) -> None:
        """Extend the reconnect window: any message shows that the client is alive."""
        if self.exchange is None:
            self.deadline_s = max(self.deadline_s, now_s + self._times.window_s)

    def close(self) -> None:
        """End all subscriptions. Idempotent."""
        self.is_closed = True
        for source in self.sources.values():
            source.close()
        self.sources.clear()


def _ignore() -> None:
    return None
