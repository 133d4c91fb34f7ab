"""A signed-in REST call, the routes that lead to handlers, and what handlers need to answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from types import TracebackType
from typing import Generic, NamedTuple, Protocol, TypeVar

from tidewire.access.principal import Principal
from tidewire.clock import Clock
from tidewire.delivery.allocations import Allocations
from tidewire.errors import ObjectUnknown, ResourceUnknown
from tidewire.frontends.rest.wire import NO_STORE, client_name, method_not_allowed, render_json, render_origin
from tidewire.gate.gate import Gate
from tidewire.gate.monitoring import ApiReader
from tidewire.gate.query_pages import QueryPages
from tidewire.gate.requests import Call
from tidewire.matching.generic import GenericStreaming
from tidewire.transport.http import HttpRequest, HttpResponse

ApiT = TypeVar("ApiT")


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


class Changes(Protocol):
    """Remembers when resources changed."""

    def changed_ms(self, key: Hashable, etag: str) -> int:
        """Return when the resource `key` got the state that `etag` names."""


class Api(Protocol):
    """What handlers of the data API use besides the call."""

    @property
    def gate(self) -> Gate:
        """The org's records, checked by the caller's rights."""

    @property
    def clock(self) -> Clock:
        """The server's clock."""

    @property
    def pages(self) -> QueryPages:
        """Queries and their pages."""

    @property
    def generic(self) -> GenericStreaming:
        """Generic streaming channels."""

    @property
    def allocations(self) -> Allocations:
        """The org's streaming limits and usage."""

    @property
    def changes(self) -> Changes:
        """When descriptions changed."""

    def resource_versions(self) -> dict[str, int]:
        """Return the top-level resources, each with the first API version that has it."""

    async def run(
        self, request: HttpRequest, version: int, segments: tuple[str, ...], principal: Principal
    ) -> HttpResponse:
        """Answer a subrequest. Raises PlatformError."""

    def view_for(self, gate: Gate) -> Api:
        """Return the same resources with another gate, such as that of an open transaction."""


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
    """Finds the route of a path: the first one that matches. Clients repeat paths, so matches are cached."""

    def __init__(self, routes: Iterable[Route[ApiT]]) -> None:
        self._candidates: dict[tuple[int, str], list[Route[ApiT]]] = {}
        for route in routes:
            self._candidates.setdefault((len(route.path), "".join(route.path[:1])), []).append(route)
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, ObjectUnknown):
            raise ResourceUnknown("The requested resource does not exist") from error


_OBJECT_IN_PATH = _ObjectInPath()


def object_in_path() -> AbstractContextManager[None]:
    """Turn ObjectUnknown into ResourceUnknown: an unknown object in a path is a 404, in a query a wrong query."""
    return _OBJECT_IN_PATH
