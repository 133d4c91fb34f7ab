"""One request to the data API and the routes that lead to its handlers, apart from the handlers themselves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, NamedTuple, Protocol, TypeVar

from tidewire.access.principal import Principal
from tidewire.clock import Clock
from tidewire.delivery.allocations import Allocations
from tidewire.errors import ObjectUnknown, ResourceUnknown
from tidewire.frontends.rest.wire import NO_STORE, client_name, render_json, render_origin
from tidewire.gate.gate import Gate
from tidewire.gate.monitoring import ApiReader
from tidewire.gate.query_pages import QueryPages
from tidewire.gate.requests import Call
from tidewire.matching.generic import GenericStreaming
from tidewire.transport.http import HttpRequest, HttpResponse

ApiT = TypeVar("ApiT")


class ApiCall(NamedTuple):
    """One signed-in request to the data API; `arguments` are the path segments that the route leaves open. A tuple,
    because one is made for every request.
    """

    request: HttpRequest
    version: int
    principal: Principal
    arguments: tuple[str, ...] = ()

    @property
    def context(self) -> Call:
        """Who calls, and what change events will say about it."""
        return Call(self.principal, render_origin(self.request, self.version), api_version=self.version)

    @property
    def reader(self) -> ApiReader:
        """Who reads, as monitoring tells of it."""
        request = self.request
        agent = request.headers.get("user-agent", "")
        return ApiReader(self.principal, "REST", self.version, request.peer, agent, client_name(request))


class Changes(Protocol):
    """Since when something has been in its state."""

    def changed_ms(self, key: Hashable, etag: str) -> int:
        """When what `key` names came to be in the state that `etag` names."""


class Api(Protocol):
    """What a handler needs of the data API if it is more than one call to the gate."""

    @property
    def gate(self) -> Gate:
        """The org's records as users may use them."""

    @property
    def clock(self) -> Clock:
        """What time it is."""

    @property
    def pages(self) -> QueryPages:
        """Queries and their pages."""

    @property
    def generic(self) -> GenericStreaming:
        """Channels that users push events to."""

    @property
    def allocations(self) -> Allocations:
        """What the org may use of streaming."""

    @property
    def changes(self) -> Changes:
        """Since when descriptions have been as they are."""

    def resource_names(self) -> frozenset[str]:
        """The first segments of all paths."""

    async def run(
        self, request: HttpRequest, version: int, segments: tuple[str, ...], principal: Principal
    ) -> HttpResponse:
        """The answer to a request that is a part of another one; raises PlatformError."""

    def view_for(self, gate: Gate) -> Api:
        """The same resources over another gate."""


@dataclass(frozen=True, slots=True)
class Route(Generic[ApiT]):
    """A resource: its path, `*` for an open segment, and what each method does."""

    path: tuple[str, ...]
    methods: dict[str, Callable[[ApiT, ApiCall], Awaitable[HttpResponse]]]
    xml_root: str = "Result"  # what an answer's outermost element is called

    def try_match(self, segments: tuple[str, ...]) -> tuple[str, ...] | None:
        """The open segments, or None if the path is another resource's."""
        if len(segments) != len(self.path):
            return None
        arguments: list[str] = []
        for part, given in zip(self.path, segments, strict=True):
            if part == "*":
                arguments.append(given)
            elif part != given:
                return None
        return tuple(arguments)


def render_answer(
    api: Api, call: ApiCall, status: int, value: object, *headers: tuple[str, str]
) -> HttpResponse:
    """A JSON answer with the headers that every answer of the data API has."""
    return render_json(call.request, status, value, (*headers, api.gate.usage.header(), NO_STORE))


def render_empty(api: Api) -> HttpResponse:
    """The answer to a change that has nothing to tell."""
    return HttpResponse(204, b"", "", (api.gate.usage.header(), NO_STORE))


def require_version(call: ApiCall, first: int) -> None:
    """Raise ResourceUnknown if the resource came only with a later version than the caller's."""
    if call.version < first:
        raise ResourceUnknown("The requested resource does not exist")


class _ObjectInPath:
    def __enter__(self) -> None:
        """Nothing is to be done."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, ObjectUnknown):
            raise ResourceUnknown("The requested resource does not exist") from error


_OBJECT_IN_PATH = _ObjectInPath()


def object_in_path() -> AbstractContextManager[None]:
    """An unknown object in a query is a wrong query; in a path it makes the path name nothing."""
    return _OBJECT_IN_PATH
