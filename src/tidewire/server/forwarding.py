"""Bayeux requests that reach another edge than the one their client shook hands with.

The kernel gives each connection to some edge. A client id begins with a character that names its home; a request with
the id of another edge's client goes there through the core, and its answer comes back the same way. A handshake has no
id yet, so whoever gets it becomes the home.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import unquote_to_bytes

from tidewire.server import wire_link as kinds
from tidewire.server.wire_link import CoreWire, pack_request
from tidewire.transport.callback_exchange import CallbackExchange
from tidewire.transport.http import HttpRequest
from tidewire.transport.routes import Exchange, ParkingHandler

_HOMES = string.digits + string.ascii_lowercase
_CLIENT_ID = re.compile(rb'"clientId"\s*:\s*"([0-9a-z])')


class Forwarding:
    """Both ends of it. `park` is who answers the requests that are at home here."""

    def __init__(self, core: CoreWire, index: int, count: int) -> None:
        self._core = core
        self._index = index
        self._count = count
        self._away: dict[int, Exchange] = {}
        self._guests: dict[tuple[int, int], CallbackExchange] = {}
        self.park: ParkingHandler | None = None
        self.handlers: dict[int, Callable[..., None]] = {
            kinds.FORWARDED: self._take_guest,
            kinds.ANSWERED: self._take_answer,
            kinds.LEFT: self._drop_guest,
        }

    @property
    def home(self) -> str:
        """What the ids of this edge's clients begin with; nothing if there is no other edge."""
        return _HOMES[self._index] if self._count > 1 else ""

    def handle(self, request: HttpRequest, exchange: Exchange) -> None:
        """Take a request of a client here, whoever's it is."""
        home = self._index if self._count == 1 else self._find_home(request)
        if home == self._index:
            if self.park is not None:
                self.park(request, exchange)
            return
        number = self._core.next_number()
        self._away[number] = exchange
        exchange.on_close = partial(self._lose, number)
        self._core.send(kinds.FORWARD, number, home, *pack_request(request))

    def _find_home(self, request: HttpRequest) -> int:
        body = request.body
        match = _CLIENT_ID.search(body if b'"' in body else unquote_to_bytes(body.replace(b"+", b" ")))
        home = self._index if match is None else _HOMES.index(match[1].decode())
        return home % self._count  # one of another count of edges: all must agree on who asks for it

    def _lose(self, number: int, exchange: Exchange) -> None:
        if self._away.pop(number, None) is not None:
            self._core.send(kinds.GONE, number)

    def _take_answer(self, number: int, status: int, body: bytes, headers: bytes) -> None:
        exchange = self._away.pop(number, None)
        if exchange is not None:
            exchange.respond(status, body, headers)

    def _take_guest(self, origin: int, number: int, *request: Any) -> None:
        key = (origin, number)
        guest = CallbackExchange(partial(self._reply, key))
        self._guests[key] = guest
        if self.park is not None:
            self.park(HttpRequest(*request), guest)

    def _reply(
        self, key: tuple[int, int], _: CallbackExchange, status: int, body: bytes, headers: bytes
    ) -> None:
        self._guests.pop(key, None)
        self._core.send(kinds.REPLY, *key, status, body, headers)

    def _drop_guest(self, origin: int, number: int) -> None:
        guest = self._guests.pop((origin, number), None)
        if guest is not None:
            guest.drop()
