"""The list of front ends.

Nothing else in `server` imports one; see `delivery/front_end.py` for the contract.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import cache, partial
from pathlib import Path
from typing import Any

from tidewire.config import Settings
from tidewire.console.front_end import FRONT_END as CONSOLE
from tidewire.delivery.front_end import CoreSide, EdgeSide, Listener
from tidewire.delivery.link_values import ClientLimits
from tidewire.frontends.bayeux.front_end import FRONT_END as BAYEUX
from tidewire.frontends.pubsub.front_end import FRONT_END as PUBSUB
from tidewire.frontends.rest.front_end import FRONT_END as REST
from tidewire.frontends.soap.front_end import FRONT_END as SOAP
from tidewire.transport.http import HttpRequest, HttpResponse, cached_by_head
from tidewire.transport.routes import AsyncHandler, Route, Router, UploadRule, render_plain_error

# The first whose paths match a request answers it. REST matches every path, so it comes last.
FRONT_ENDS = (BAYEUX, PUBSUB, SOAP, CONSOLE, REST)

CORE_NAMES = tuple(each.name for each in FRONT_ENDS if each.load_core is not None)
EDGE_NAMES = tuple(each.name for each in FRONT_ENDS if each.load_edge is not None)
ADDRESSES = tuple(setting for each in FRONT_ENDS for setting in each.addresses)
"""Settings with the addresses of listeners other than HTTP's."""
(UPLOADS,) = (each.uploads for each in FRONT_ENDS if each.uploads is not None)

UNAVAILABLE = "The org is temporarily unavailable; retry in a few seconds"


def client_limits(settings: Settings) -> dict[str, ClientLimits]:
    """Return the limits on the clients of every front end that has streaming clients, by its name."""
    return {
        each.name: each.client_limits(settings) if each.client_limits is not None else ClientLimits()
        for each in FRONT_ENDS
        if each.load_edge is not None
    }


@cache
def core_sides() -> dict[str, CoreSide]:
    """Load the core side of every front end that has one.

    Not called by edges: it imports most of the server.
    """
    return {each.name: each.load_core() for each in FRONT_ENDS if each.load_core is not None}


@cache
def edge_sides() -> dict[str, EdgeSide]:
    """Load the edge side of every front end that has one."""
    return {each.name: each.load_edge() for each in FRONT_ENDS if each.load_edge is not None}


@cache
def _core_table() -> list[tuple[Callable[[str], object], tuple[str, CoreSide]]]:
    """Return how to match the paths of each front end with a core side, its name and the side, in order."""
    sides = core_sides()
    return [
        (each.paths.fullmatch, (each.name, sides[each.name]))
        for each in FRONT_ENDS
        if each.name in sides and each.paths is not None
    ]


@cached_by_head
def find_core_sides(request: HttpRequest) -> list[tuple[str, CoreSide]]:
    """Return name and core side of all front ends whose paths match, in the order in which they are asked."""
    path = request.raw_path
    return [named_side for matches, named_side in _core_table() if matches(path)]


def render_listener_error(request: HttpRequest, status: int, text: str) -> HttpResponse:
    """Render an error for a request that no handler sees, in the form that clients of its path expect.

    The request may end within its head, so its path is all that can be relied on.
    """
    for each in FRONT_ENDS:
        if each.paths is not None and each.paths.fullmatch(request.raw_path):
            response = each.render_error(request, status, text) if each.render_error is not None else None
            return response or render_plain_error(request, status, text)
    return render_plain_error(request, status, text)


def make_router(settings: Settings, answer: AsyncHandler, edge_routes: Iterable[Route]) -> Router:
    """Return the routes of a process's HTTP listeners: `answer` gets what no edge route covers."""
    uploads = UploadRule(UPLOADS.paths, Path(settings.data), UPLOADS.limit_bytes, answer)
    return Router([Route("/", handle=answer, uploads=uploads), *edge_routes], render_listener_error)


def open_listeners(
    find_calls: Callable[[str, str], AbstractAsyncContextManager[Any]],
    settings: Settings,
    *,
    shares_ports: bool,
) -> Iterator[Listener]:
    """Yield the listeners, not started yet, of front ends that do not speak HTTP/1.1.

    `find_calls` is `FindCalls`, with the front end's name first.
    """
    for name, side in edge_sides().items():
        if side.open_listener is not None:
            yield side.open_listener(partial(find_calls, name), settings, shares_ports)
