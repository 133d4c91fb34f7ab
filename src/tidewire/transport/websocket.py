"""WebSockets: every text message is a request to the route of the path, every response a message.

Theory of operation. A connection that upgrades stays with its listener; its input comes here. A message
becomes a POST with the headers of the upgrade, so the handler need not know how it arrived. Responses may
overtake each other. A browser cannot put credentials into an upgrade, so the route's `websocket` function
finds them in a message; from then on they hold for the socket. So does a cookie that a response sets.
"""

from __future__ import annotations

import base64
import binascii
from contextlib import suppress
from typing import Protocol

from wsproto.connection import Connection as Framing
from wsproto.connection import ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping, TextMessage
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import LocalProtocolError, RemoteProtocolError, generate_accept_token

from tidewire.transport.callback_exchange import CallbackExchange
from tidewire.transport.http import HttpRequest
from tidewire.transport.routes import Route

_MAX_OPEN = 32  # messages of one socket that await their response
_MAX_EMPTY = 1_000  # empty fragments of one message: they cost the peer nothing and would never end
_SUPERSEDED = 408  # status of a held request that a newer one of the same client replaced
_SET_COOKIE = b"Set-Cookie: "
# Headers of the upgrade that do not apply to the messages.
_OWN_HEADERS = frozenset({"connection", "upgrade", "content-length", "transfer-encoding"})


class Carrier(Protocol):
    """The connection below the WebSocket."""

    def write(self, data: bytes) -> None:
        """Send bytes."""

    def finish(self) -> None:
        """Close after everything is sent."""


class WebSocket:
    """One socket after its upgrade. Not safe for use off the loop."""

    def __init__(self, carrier: Carrier, route: Route, upgrade: HttpRequest) -> None:
        self._carrier = carrier
        self._route = route
        self._upgrade = upgrade
        self._framing = Framing(ConnectionType.SERVER)
        self._headers = {name: text for name, text in upgrade.headers.items() if name not in _OWN_HEADERS}
        self._headers["content-type"] = "application/json"
        self._text: list[str] = []
        self._text_bytes = 0
        self._empty = 0
        self._open: set[CallbackExchange] = set()
        self._is_closing = False

    @property
    def is_busy(self) -> bool:
        """Whether a message awaits its response."""
        return bool(self._open)

    def feed(self, data: bytes) -> None:
        """Take one read."""
        try:
            self._framing.receive_data(data)
            for event in self._framing.events():
                if isinstance(event, TextMessage):
                    self._take_text(event)
                elif isinstance(event, BytesMessage):
                    self.close(CloseReason.UNSUPPORTED_DATA)
                elif isinstance(event, Ping):
                    self._carrier.write(self._framing.send(event.response()))
                elif isinstance(event, CloseConnection):
                    if not self._is_closing:
                        self._carrier.write(self._framing.send(event.response()))
                    self._is_closing = True
                    self._carrier.finish()
                if self._is_closing:
                    return
        except RemoteProtocolError:
            self.close(CloseReason.PROTOCOL_ERROR)
        except LocalProtocolError:
            return  # both sides have sent a close frame; further input is ignored

    def close(self, reason: CloseReason = CloseReason.GOING_AWAY) -> None:
        """Send a close frame with a reason, and close. Idempotent."""
        if self._is_closing:
            return
        self._is_closing = True
        with suppress(LocalProtocolError):  # the peer has sent its close frame already
            self._carrier.write(self._framing.send(CloseConnection(code=int(reason))))
        self._carrier.finish()

    def drop(self) -> None:
        """Tell the handlers of open exchanges that the peer is gone."""
        self._is_closing = True
        held, self._open = self._open, set()
        for exchange in held:
            exchange.drop()

    def answer(self, exchange: CallbackExchange, status: int, body: bytes, headers: bytes) -> None:
        """Send a response as a message. One with an error status closes the socket instead."""
        self._open.discard(exchange)
        if self._is_closing or status == _SUPERSEDED:
            return
        if status != 200:
            self.close(CloseReason.TRY_AGAIN_LATER if status == 503 else CloseReason.INTERNAL_ERROR)
            return
        self._keep_cookie(headers)
        self._carrier.write(self._framing.send(TextMessage(data=body.decode())))

    def _take_text(self, event: TextMessage) -> None:
        if event.data:
            self._text.append(event.data)
            self._text_bytes += len(event.data.encode())
            if self._text_bytes > self._route.body_limit_bytes:
                self.close(CloseReason.MESSAGE_TOO_BIG)
                return
        if not event.message_finished:
            self._empty += not event.data
            if self._empty > _MAX_EMPTY:
                self.close(CloseReason.POLICY_VIOLATION)
            return
        body = "".join(self._text).encode()
        self._text, self._text_bytes, self._empty = [], 0, 0
        if len(self._open) >= _MAX_OPEN:
            self.close(CloseReason.POLICY_VIOLATION)
            return
        find = self._route.websocket
        found = find(body) if find is not None else ""
        if found:
            # A new mapping, because requests under way share the old one.
            self._headers = {**self._headers, "authorization": found}
        exchange = CallbackExchange(self.answer)
        self._open.add(exchange)
        upgrade = self._upgrade
        request = HttpRequest("POST", upgrade.target, self._headers, body, upgrade.scheme, upgrade.peer)
        if self._route.park is not None:
            self._route.park(request, exchange)

    def _keep_cookie(self, headers: bytes) -> None:
        _, found, rest = headers.partition(_SET_COOKIE)
        if found:
            pair = rest.partition(b"\r\n")[0].partition(b";")[0].decode("latin-1")
            known = self._headers.get("cookie")
            self._headers = {**self._headers, "cookie": f"{known}; {pair}" if known else pair}


def is_upgrade(request: HttpRequest) -> bool:
    """Whether a request asks to become a WebSocket."""
    headers = request.headers
    return (
        request.method == "GET"
        and headers.get("upgrade", "").strip().lower() == "websocket"
        and "upgrade" in [word.strip().lower() for word in headers.get("connection", "").split(",")]
    )


def try_render_upgrade(request: HttpRequest) -> bytes | None:
    """Render the response that opens a WebSocket, None if the request is malformed."""
    headers = request.headers
    key = headers.get("sec-websocket-key", "").strip()
    try:
        is_key = len(base64.b64decode(key, validate=True)) == 16
    except (binascii.Error, ValueError):
        is_key = False
    if not is_key or headers.get("sec-websocket-version", "").strip() != "13":
        return None
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: %b\r\n\r\n" % generate_accept_token(key.encode("ascii"))
    )
