"""A signed-in REST call, the routes that lead to handlers, and the data API that runs them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Generic, NamedTuple, TypeVar

from tidewire.access.principal import Principal
from tidewire.clock import Clock
from tidewire.delivery.allocations import Allocations
from tidewire.errors import ObjectUnknown, ResourceUnknown
from tidewire.frontends.rest.conditional_requests import ChangeTimes
from tidewire.frontends.rest.default_namespace import add_prefixes, namespace_of, strip_prefixes
from tidewire.frontends.rest.wire import NO_STORE, client_name, method_not_allowed, render_json, render_origin
from tidewire.frontends.rest.xml_bodies import as_xml, wants_xml
from tidewire.gate.api_usage import USAGE_HEADER
from tidewire.gate.gate import Gate
from tidewire.gate.monitoring import ApiReader
from tidewire.gate.query_cursors import QueryCursors
from tidewire.gate.query_pages import CursorState, QueryPages
from tidewire.gate.requests import Call
from tidewire.matching.generic import GenericStreaming
from tidewire.transport.http import HttpRequest, HttpResponse

ApiT = TypeVar("ApiT")
_OVERRIDES = frozenset({"GET", "PATCH", "DELETE", "PUT", "HEAD"})


class ApiCall(NamedTuple):
    """One signed-in request; `arguments` are the path segments that the route leaves open.

    A tuple, because one is made for every request.
    """

    request: HttpRequest
    version: int
    principal: Principal
    arguments: tuple[str, ...] = ()

    @property
    def context(self) -> Call:
        """The caller, and the origin that change events name."""
        return Call(self.principal, render_origin(self.request, self.version), api_version=self.version)

    @property
    def reader(self) -> ApiReader:
        """The caller as monitoring events describe it."""
        request = self.request
        agent = request.headers.get("user-agent", "")
        return ApiReader(self.principal, "REST", self.version, request.peer, agent, client_name(request))


@dataclass(frozen=True, slots=True)
class Route(Generic[ApiT]):
    """A resource: its path, with `*` for an open segment, and the handler of each method."""

    path: tuple[str, ...]
    methods: dict[str, Callable[[ApiT, ApiCall], Awaitable[HttpResponse]]]
    since: int = 0  # the first API version that has the resource
    xml_root: str = "Result"  # the outermost element of an XML answer
    is_listed: bool = True  # whether a top-level resource is in the list of the version's resources

    def try_match(self, segments: tuple[str, ...]) -> tuple[str, ...] | None:
        """Return the open segments, or None if the path belongs to another resource."""
        if len(segments) != len(self.path):
            return None
        arguments: list[str] = []
        for part, given in zip(self.path, segments, strict=True):
            if part == "*":
                arguments.append(given)
            elif part != given:
                return None
        return tuple(arguments)


class RouteTable(Generic[ApiT]):
    """Finds the route of a path: the first one that matches. Clients repeat paths, so matches are cached.

    `resource_versions` are the top-level resources, each with the first API version that has it.
    """

    def __init__(self, routes: Sequence[Route[ApiT]]) -> None:
        self._candidates: dict[tuple[int, str], list[Route[ApiT]]] = {}
        for route in routes:
            self._candidates.setdefault((len(route.path), "".join(route.path[:1])), []).append(route)
        self.resource_versions = {
            route.path[0]: route.since for route in routes if len(route.path) == 1 and route.is_listed
        }
        self._cached_match = lru_cache(maxsize=256)(self._match)

    def find(
        self, request: HttpRequest, version: int, segments: tuple[str, ...], principal: Principal
    ) -> tuple[Route[ApiT], Callable[[ApiT, ApiCall], Awaitable[HttpResponse]], ApiCall]:
        """Return the route of a request, its handler and the call. Raises ResourceUnknown or MethodNotAllowed."""
        route, arguments = self._cached_match(segments)
        if version < route.since:
            raise ResourceUnknown("The requested resource does not exist")
        handler = route.methods.get(request.method)
        if handler is None:
            raise method_not_allowed(request.method, route.methods)
        return route, handler, ApiCall(request, version, principal, arguments)

    def _match(self, segments: tuple[str, ...]) -> tuple[Route[ApiT], tuple[str, ...]]:
        for route in self._candidates.get((len(segments), "".join(segments[:1])), ()):
            arguments = route.try_match(segments)
            if arguments is not None:
                return route, arguments
        raise ResourceUnknown("The requested resource does not exist")


@dataclass(slots=True)
class Api:
    """Answers data API requests, and holds what their handlers use."""

    routes: RouteTable[Api]
    gate: Gate
    cursors: QueryCursors[CursorState]
    clock: Clock
    generic: GenericStreaming
    allocations: Allocations
    changes: ChangeTimes
    pages: QueryPages = field(init=False)

    def __post_init__(self) -> None:
        self.pages = QueryPages(self.gate, self.cursors, self.clock)

    def view_for(self, gate: Gate) -> Api:
        """Return the same resources with another gate, such as that of an open transaction."""
        return replace(self, gate=gate)

    async def answer(
        self, request: HttpRequest, version: int, segments: tuple[str, ...], principal: Principal
    ) -> HttpResponse:
        """Count and answer a request, in JSON or XML as its Accept header asks. Raises PlatformError."""
        self.gate.usage.count()
        route, response = await self.run(request, version, segments, principal)
        if not any(name == USAGE_HEADER for name, _ in response.headers):
            response = replace(response, headers=(*response.headers, self.gate.usage.header()))
        if wants_xml(request):
            return as_xml(response, route.xml_root if response.status < 400 else "Errors")
        return response

    async def run(
        self, request: HttpRequest, version: int, segments: tuple[str, ...], principal: Principal
    ) -> tuple[Route[Api], HttpResponse]:
        """Answer a request or subrequest in JSON; return its route too. Raises PlatformError."""
        namespace = namespace_of(request, segments, self.gate.catalog)
        if namespace is not None:
            request, segments = add_prefixes(namespace, request, segments)
        route, handler, call = self.routes.find(_apply_override(request), version, segments, principal)
        response = await handler(self, call)
        return route, response if namespace is None else strip_prefixes(namespace, request, response)


def _apply_override(request: HttpRequest) -> HttpRequest:
    """Return a POST with `?_HttpMethod=` as a request of that method, for clients that can only GET and POST."""
    if request.method == "POST" and request.query:
        override = request.query.get("_HttpMethod", "").upper()
        if override in _OVERRIDES:
            return replace(request, method=override)
    return request


def render_answer(
    api: Api, call: ApiCall, status: int, value: object, *headers: tuple[str, str]
) -> HttpResponse:
    """Render a JSON answer with the headers that every answer of the data API has."""
    return render_json(call.request, status, value, (*headers, api.gate.usage.header(), NO_STORE))


def render_empty(api: Api) -> HttpResponse:
    """Render the empty answer to a successful change."""
    return HttpResponse(204, b"", "", (api.gate.usage.header(), NO_STORE))


class _ObjectInPath:
    def __enter__(self) -> None:
        """No-op."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ObjectUnknown):
            raise ResourceUnknown("The requested resource does not exist") from error


object_in_path = _ObjectInPath()
"""Turns ObjectUnknown into ResourceUnknown: an unknown object in a path is a 404, in a query a wrong query."""
