"""The resources under `/services/data/vN.0`: find the handler of a path and method, and render its answer.

To add a resource, write its handlers and ROUTES in a new module and list that module in ROUTES here.

The gate checks permissions: an object that the caller may not see raises the same ObjectUnknown as one that does
not exist, so both get the same answer.
"""

from __future__ import annotations

from dataclasses import replace

from tidewire.access.principal import Principal
from tidewire.clock import Clock
from tidewire.delivery.allocations import Allocations
from tidewire.frontends.rest import (
    collections,
    deploys,
    describe,
    layouts,
    limits,
    list_views,
    push,
    queries,
    record_lists,
    single_records,
)
from tidewire.frontends.rest.calls import Api, Route, RouteTable
from tidewire.frontends.rest.composite import graph, subrequests, tree
from tidewire.frontends.rest.conditional_requests import ChangeTimes
from tidewire.frontends.rest.default_namespace import add_prefixes, namespace_of, strip_prefixes
from tidewire.frontends.rest.tooling import api as tooling
from tidewire.frontends.rest.xml_bodies import as_xml, wants_xml
from tidewire.gate.api_usage import USAGE_HEADER
from tidewire.gate.gate import Gate
from tidewire.gate.query_cursors import QueryCursors
from tidewire.gate.query_pages import CursorState, QueryPages
from tidewire.matching.generic import GenericStreaming
from tidewire.transport.http import HttpRequest, HttpResponse

_OVERRIDES = frozenset({"GET", "PATCH", "DELETE", "PUT", "HEAD"})


class DataApi:
    """Answers data API requests."""

    def __init__(
        self,
        gate: Gate,
        cursors: QueryCursors[CursorState],
        clock: Clock,
        generic: GenericStreaming,
        allocations: Allocations,
        changes: ChangeTimes | None = None,
    ) -> None:
        self.gate = gate
        self.clock = clock
        self.generic = generic
        self.allocations = allocations
        self.pages = QueryPages(gate, cursors, clock)
        self.changes = changes or ChangeTimes(clock)
        self._cursors = cursors

    def view_for(self, gate: Gate) -> DataApi:
        """Return the same resources with another gate, such as that of an open transaction."""
        return DataApi(gate, self._cursors, self.clock, self.generic, self.allocations, self.changes)

    def resource_versions(self) -> dict[str, int]:
        """Return the top-level resources, each with the first API version that has it."""
        return {route.path[0]: route.since for route in ROUTES if len(route.path) == 1 and route.is_listed}

    async def answer(
        self, request: HttpRequest, version: int, segments: tuple[str, ...], principal: Principal
    ) -> HttpResponse:
        """Count and answer a request, in JSON or XML as its Accept header asks. Raises PlatformError."""
        self.gate.usage.count()
        route, response = await self._answer(request, version, segments, principal)
        if not any(name == USAGE_HEADER for name, _ in response.headers):
            response = replace(response, headers=(*response.headers, self.gate.usage.header()))
        if wants_xml(request):
            return as_xml(response, route.xml_root if response.status < 400 else "Errors")
        return response

    async def run(
        self, request: HttpRequest, version: int, segments: tuple[str, ...], principal: Principal
    ) -> HttpResponse:
        """Answer a subrequest in JSON. Raises PlatformError."""
        _, response = await self._answer(request, version, segments, principal)
        return response

    async def _answer(
        self, request: HttpRequest, version: int, segments: tuple[str, ...], principal: Principal
    ) -> tuple[Route[Api], HttpResponse]:
        namespace = namespace_of(request, segments, self.gate.catalog)
        if namespace is not None:
            request, segments = add_prefixes(namespace, request, segments)
        route, handler, call = _TABLE.find(_apply_override(request), version, segments, principal)
        response = await handler(self, call)
        return route, response if namespace is None else strip_prefixes(namespace, request, response)


def _apply_override(request: HttpRequest) -> HttpRequest:
    """Return a POST with `?_HttpMethod=` as a request of that method, for clients that can only GET and POST."""
    if request.method == "POST" and request.query:
        override = request.query.get("_HttpMethod", "").upper()
        if override in _OVERRIDES:
            return replace(request, method=override)
    return request


ROUTES: tuple[Route[Api], ...] = (
    *describe.ROUTES,
    *push.ROUTES,
    *record_lists.ROUTES,
    *layouts.ROUTES,
    *list_views.ROUTES,
    *single_records.ROUTES,
    *queries.ROUTES,
    *limits.ROUTES,
    *tooling.ROUTES,
    *deploys.ROUTES,
    *subrequests.ROUTES,
    *graph.ROUTES,
    *tree.ROUTES,
    *collections.ROUTES,
)
"""All resources of the data API. For paths that match several, the first one counts."""

_TABLE = RouteTable(ROUTES)
