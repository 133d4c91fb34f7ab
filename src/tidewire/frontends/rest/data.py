"""The resources under `/services/data/vN.0`: finds what answers a path and method, and gives it its form.

Permissions are the gate's: an object that the caller may not see raises the same ObjectUnknown as one that
does not exist, and a path that names either answers alike.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import lru_cache

from tidewire.access.principal import Principal
from tidewire.clock import Clock
from tidewire.delivery.allocations import Allocations
from tidewire.errors import ResourceUnknown
from tidewire.frontends.rest import (
    deploys,
    describe,
    layouts,
    limits,
    list_views,
    push,
    queries,
    recent,
    replication,
    single_records,
)
from tidewire.frontends.rest.calls import Api, ApiCall, Route
from tidewire.frontends.rest.collections import (
    create_collection,
    delete_collection,
    retrieve_by_body,
    retrieve_by_query,
    update_collection,
    upsert_collection,
)
from tidewire.frontends.rest.composite.batch import run_batch
from tidewire.frontends.rest.composite.graph import run_graphs
from tidewire.frontends.rest.composite.subrequests import (
    list_composites,
    run_composite,
    run_tooling_composite,
)
from tidewire.frontends.rest.composite.tree import create_tree
from tidewire.frontends.rest.conditional_requests import ChangeTimes
from tidewire.frontends.rest.default_namespace import enter, leave, namespace_of
from tidewire.frontends.rest.tooling import api as tooling
from tidewire.frontends.rest.wire import method_not_allowed
from tidewire.frontends.rest.xml_bodies import as_xml, wants_xml
from tidewire.gate.api_usage import USAGE_HEADER
from tidewire.gate.gate import Gate
from tidewire.gate.query_cursors import QueryCursors
from tidewire.gate.query_pages import CursorState, QueryPages
from tidewire.matching.generic import GenericStreaming
from tidewire.transport.http import HttpRequest, HttpResponse

_OVERRIDES = frozenset({"GET", "PATCH", "DELETE", "PUT", "HEAD"})


class DataApi:
    """Answers data API requests. What it remembers of users is only for their convenience."""

    def __init__(
        self,
        gate: Gate,
        cursors: QueryCursors[CursorState],
        clock: Clock,
        generic: GenericStreaming,
        allocations: Allocations,
        changes: ChangeTimes | None = None,
    ) -> None:
        self._gate = gate
        self._cursors = cursors
        self._clock = clock
        self._generic = generic
        self.allocations = allocations
        self._pages = QueryPages(gate, cursors, clock)
        self._changes = changes or ChangeTimes(clock)

    @property
    def gate(self) -> Gate:
        """The org's records as users may use them."""
        return self._gate

    @property
    def clock(self) -> Clock:
        """What time it is."""
        return self._clock

    @property
    def pages(self) -> QueryPages:
        """Queries and their pages."""
        return self._pages

    @property
    def generic(self) -> GenericStreaming:
        """Channels that users push events to."""
        return self._generic

    @property
    def changes(self) -> ChangeTimes:
        """Since when descriptions have been as they are."""
        return self._changes

    def view_for(self, gate: Gate) -> DataApi:
        """The same resources over another gate."""
        return DataApi(gate, self._cursors, self._clock, self._generic, self.allocations, self._changes)

    def resource_names(self) -> frozenset[str]:
        """The first segments of all paths."""
        return frozenset(route.path[0] for route in ROUTES if route.path)

    async def answer(
        self, request: HttpRequest, version: int, segments: tuple[str, ...], principal: Principal
    ) -> HttpResponse:
        """The answer to one request, which counts as a call, in the form it asks for; raises PlatformError."""
        self._gate.usage.count()
        route, response = await self._answer(request, version, segments, principal)
        if not any(name == USAGE_HEADER for name, _ in response.headers):
            response = replace(response, headers=(*response.headers, self._gate.usage.header()))
        if wants_xml(request):
            return as_xml(response, route.xml_root if response.status < 400 else "Errors")
        return response

    async def run(
        self, request: HttpRequest, version: int, segments: tuple[str, ...], principal: Principal
    ) -> HttpResponse:
        """The answer to a request that is a part of another one, in JSON; raises PlatformError."""
        _, response = await self._answer(request, version, segments, principal)
        return response

    async def _answer(
        self, request: HttpRequest, version: int, segments: tuple[str, ...], principal: Principal
    ) -> tuple[Route[Api], HttpResponse]:
        namespace = namespace_of(request, segments, self._gate.catalog)
        if namespace is not None:
            request, segments = enter(namespace, request, segments)
        route, handler, call = _find(request, version, segments, principal)
        response = await handler(self, call)
        return route, response if namespace is None else leave(namespace, request, response)


def _find(
    request: HttpRequest, version: int, segments: tuple[str, ...], principal: Principal
) -> tuple[Route[Api], Callable[[Api, ApiCall], Awaitable[HttpResponse]], ApiCall]:
    method = request.method
    if method == "POST" and request.query:
        override = request.query.get("_HttpMethod", "").upper()
        if override in _OVERRIDES:
            method = override
            request = replace(request, method=method)
    route, arguments = _match(segments)
    handler = route.methods.get(method)
    if handler is None:
        raise method_not_allowed(method, route.methods)
    return route, handler, ApiCall(request, version, principal, arguments)


@lru_cache(maxsize=256)
def _match(segments: tuple[str, ...]) -> tuple[Route[Api], tuple[str, ...]]:
    """The route of a path and its open segments. Raises ResourceUnknown."""
    for route in _candidates(len(segments), segments[0] if segments else ""):
        arguments = route.try_match(segments)
        if arguments is not None:
            return route, arguments
    raise ResourceUnknown("The requested resource does not exist")


@lru_cache(maxsize=256)
def _candidates(length: int, first: str) -> tuple[Route[Api], ...]:
    """The routes of so many segments that a path which begins with `first` can belong to."""
    return tuple(r for r in ROUTES if len(r.path) == length and (not length or r.path[0] in ("*", first)))


ROUTES: tuple[Route[Api], ...] = (
    *describe.ROUTES,
    *push.ROUTES,
    *replication.ROUTES,
    *layouts.ROUTES,
    *list_views.ROUTES,
    *single_records.ROUTES,
    *queries.ROUTES,
    *recent.ROUTES,
    *limits.ROUTES,
    *tooling.ROUTES,
    *deploys.ROUTES,
    Route(("composite",), {"GET": list_composites, "POST": run_composite}),
    Route(("tooling", "composite"), {"POST": run_tooling_composite}),
    Route(("composite", "batch"), {"POST": run_batch}),
    Route(("composite", "graph"), {"POST": run_graphs}),
    Route(("composite", "tree", "*"), {"POST": create_tree}),
    Route(
        ("composite", "sobjects"),
        {
            "POST": create_collection,
            "PATCH": update_collection,
            "DELETE": delete_collection,
        },
    ),
    Route(("composite", "sobjects", "*"), {"GET": retrieve_by_query, "POST": retrieve_by_body}),
    Route(("composite", "sobjects", "*", "*"), {"PATCH": upsert_collection}),
)
