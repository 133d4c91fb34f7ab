"""Forwards requests to the edge that holds the client's session.

The kernel gives each connection to some edge. A front end whose clients have a session on one edge (Bayeux)
finds in each request the character that names that edge, see `EdgeHttp.find_home`. A request for another edge
goes there through the core, and its answer comes back the same way.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from functools import partial
from typing import Any

from tidewire.config import Settings
from tidewire.delivery.front_end import EdgeHttp
from tidewire.server import wire_link as kinds
from tidewire.server.front_ends import FRONT_ENDS, edge_sides
from tidewire.server.wire_link import CoreWire, pack_request
from tidewire.transport.callback_exchange import CallbackExchange
from tidewire.transport.http import HttpRequest
from tidewire.transport.routes import Exchange, Route

_HOMES = string.digits + string.ascii_lowercase
UNAVAILABLE = (503, b"", b"")
"""The core's answer for an edge that is being replaced; the edge that asked renders it as its front end does.
"""

ParkForOrg = Callable[[str, EdgeHttp, HttpRequest, Exchange], None]


def home_of(index: int, count: int) -> str:
    """Return the character that names an edge; empty if there is no other."""
    return _HOMES[index] if count > 1 else ""


class Forwarding:
    """Both ends of forwarding on one edge. `park` answers the requests whose home is here."""

    def __init__(self, core: CoreWire, index: int, count: int, park: ParkForOrg) -> None:
        self._core = core
        self._index = index
        self._count = count
        self._away: dict[int, tuple[Exchange, EdgeHttp]] = {}
        self._guests: dict[tuple[int, int], CallbackExchange] = {}
        self._https = {name: side.http for name, side in edge_sides().items() if side.http is not None}
        self._park = park
        self.handlers: dict[int, Callable[..., None]] = {
            kinds.FORWARDED: self._take_guest,
            kinds.ANSWERED: self._take_answer,
            kinds.LEFT: self._drop_guest,
        }

    def make_routes(self, settings: Settings) -> list[Route]:
        """Return the routes of all front ends with HTTP paths on edges."""
        return [
            route
            for name, http in self._https.items()
            for route in http.make_routes(settings, partial(self._handle, name, http))
        ]

    def _handle(self, name: str, http: EdgeHttp, request: HttpRequest, exchange: Exchange) -> None:
        home = self._index if self._count == 1 else self._find_home(http, request)
        if home == self._index:
            self._park(name, http, request, exchange)
            return
        number = self._core.next_number()
        self._away[number] = exchange, http
        exchange.on_close = partial(self._lose, number)
        self._core.send(kinds.FORWARD, number, home, *pack_request(request))

    def _find_home(self, http: EdgeHttp, request: HttpRequest) -> int:
        home = http.find_home(request)
        # A client of an earlier run with more edges may name one that is gone: all edges must pick the same
        # other.
        return _HOMES.index(home) % self._count if home else self._index

    def _lose(self, number: int, exchange: Exchange) -> None:
        if self._away.pop(number, None) is not None:
            self._core.send(kinds.GONE, number)

    def _take_answer(self, number: int, status: int, body: bytes, headers: bytes) -> None:
        exchange, http = self._away.pop(number, (None, None))
        if exchange is None or http is None:
            return
        if (status, body, headers) == UNAVAILABLE:
            exchange.respond_with(http.unavailable)
        else:
            exchange.respond(status, body, headers)

    def _take_guest(self, origin: int, number: int, *request: Any) -> None:
        key = (origin, number)
        guest = CallbackExchange(partial(self._reply, key))
        self._guests[key] = guest
        arrived = HttpRequest(*request)
        for each in FRONT_ENDS:
            if each.name in self._https and each.paths is not None and each.paths.fullmatch(arrived.raw_path):
                self._park(each.name, self._https[each.name], arrived, guest)
                return

    def _reply(
        self, key: tuple[int, int], _: CallbackExchange, status: int, body: bytes, headers: bytes
    ) -> None:
        self._guests.pop(key, None)
        self._core.send(kinds.REPLY, *key, status, body, headers)

    def _drop_guest(self, origin: int, number: int) -> None:
        guest = self._guests.pop((origin, number), None)
        if guest is not None:
            guest.drop()
