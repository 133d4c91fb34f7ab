"""The front-end contract: what the server asks of every protocol that it speaks.

Each front end exports one `FrontEnd` as `FRONT_END` in its `front_end.py`; `server/front_ends.py` lists them.
The server walks that list and knows no protocol by name.

A front end has a core side, an edge side, or both. The core side answers whole HTTP requests with the
services of one org's core (REST, SOAP, the console). The edge side serves clients that stay connected: it
gets the org's `CoreLink` and `Hub`, and either takes requests on its own HTTP paths and answers them when it
wants (Bayeux), or opens its own listener (Pub/Sub).

With `--edges` the two sides run in different processes. An edge never calls `load_core`, so it does not pay
for the modules behind it; keep everything else that `front_end.py` imports small.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from tidewire.clock import Clock
from tidewire.delivery.hub import Hub
from tidewire.delivery.link import CoreLink
from tidewire.delivery.link_values import ClientLimits
from tidewire.transport.http import HttpRequest, HttpResponse
from tidewire.transport.routes import ParkingHandler, Route
from tidewire.transport.tls import TlsFiles

if TYPE_CHECKING:  # the core's modules, which an edge must not load
    from tidewire.access.logins import Logins
    from tidewire.access.oauth import OAuth
    from tidewire.capture.stage import CaptureStage
    from tidewire.delivery.allocations import Allocations
    from tidewire.delivery.open_streams import OpenStreams
    from tidewire.eventlog.log import EventLog
    from tidewire.gate.gate import Gate
    from tidewire.gate.query_cursors import QueryCursors
    from tidewire.gate.query_pages import CursorState
    from tidewire.jobs.service import BulkJobs
    from tidewire.matching.generic import GenericStreaming


# the core side


class OrgCore(Protocol):
    """The services of one org's core."""

    gate: Gate
    logins: Logins
    oauth: OAuth
    cursors: QueryCursors[CursorState]
    jobs: BulkJobs
    generic: GenericStreaming
    allocations: Allocations
    streams: OpenStreams
    log: EventLog
    capture: CaptureStage


class LakeView(Protocol):
    """Read access to the lake that a pipeline keeps of the org. Values are JSON values."""

    async def status(self) -> Mapping[str, object]:
        """Return the pipeline's status: `state`, `message` and `status`."""

    async def history(self, entity: str, record_id: str) -> Mapping[str, Any]:
        """Return a record's latest changes, newest first: `entity` as the lake spells it, and `changes`.

        Raises ResourceUnknown.
        """


@dataclass(frozen=True, slots=True)
class DevLogin:
    """The well-known login of development mode. The secrets stay out of `repr`, and so out of logs."""

    username: str
    password: str = field(repr=False)
    client_id: str
    client_secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class CoreContext:
    """What a core side gets when an org opens. Only the first org has a lake and a development login."""

    core: OrgCore
    clock: Clock
    is_first: bool
    lake: LakeView | None = None
    dev_login: DevLogin | None = None


class OrgDirectory(Protocol):
    """Finds the org that a request is for. Nothing is verified: the org that is found checks all credentials.

    Requests that name no known org go to the first one, which answers them as it answers every bad
    credential.
    """

    first_id: str

    async def find_by_token(self, token: str) -> str:
        """Return the org that a token, or a code that can be exchanged for one, was issued by."""

    async def find_by_login(self, username: str, client_id: str | None = None) -> str:
        """Return the org of a user, among those that have the connected app if one is given."""

    async def find_by_client(self, client_id: str, secret: str = "", *, prefers: str | None = None) -> str:
        """Return the org of a connected app; of several, the one `prefers`, or the one whose secret matches."""


@dataclass(frozen=True, slots=True)
class Gauge:
    """A metric that can rise and fall: rows of labels and value."""

    name: str
    help_text: str
    rows: Sequence[tuple[Mapping[str, str], float]]


CoreHandler = Callable[[HttpRequest], Awaitable[HttpResponse | None]]
"""Answers a request for one org and never raises.

None passes the request on to the next front end in the list.
"""


@dataclass(frozen=True, slots=True)
class CoreSide:
    """The core's part of a front end.

    `open` is called when an org opens. `find_org` returns the id of the org that a request is for.
    `try_find_token` is a shortcut for requests that are certainly this front end's and whose token alone
    decides the org; it is asked before any path is matched, and returns None for all others.
    `answer_preflight` answers a browser's CORS preflight, given the origins that any org allows; it carries
    no credentials, so it belongs to no org. `read_gauges` adds metrics of the first org.
    """

    open: Callable[[CoreContext], CoreHandler]
    find_org: Callable[[HttpRequest, OrgDirectory], Awaitable[str]]
    try_find_token: Callable[[HttpRequest], str | None] | None = None
    answer_preflight: Callable[[HttpRequest, Sequence[str]], HttpResponse | None] | None = None
    read_gauges: Callable[[OrgCore], Iterable[Gauge]] | None = None


# the edge side


@dataclass(frozen=True, slots=True)
class EdgeContext:
    """What an edge side gets when an org opens on an edge.

    `settings` are the server's: `config.Settings` inherits the settings class of every front end. With
    several edges, `home` is the character that names this one, see `EdgeHttp.find_home`; otherwise it is
    empty.
    """

    link: CoreLink
    hub: Hub
    clock: Clock
    settings: Any
    home: str


@dataclass(frozen=True, slots=True)
class EdgeApp:
    """One org's part of a front end on an edge.

    `park` answers requests on the front end's HTTP paths, `calls` is what its own listener needs. `is_busy`
    keeps the org open. `end_clients` answers everything that is held and ends every stream; later clients are
    told to retry.
    """

    end_clients: Callable[[], Awaitable[None]]
    is_busy: Callable[[], bool] = lambda: False
    park: ParkingHandler | None = None
    calls: Any = None


@dataclass(frozen=True, slots=True)
class EdgeHttp:
    """HTTP paths that edges answer themselves.

    `make_routes` gets the server's settings and the handler for all its routes. `find_token` returns the
    token that says which org a request is for, or "". With several edges, `find_home` returns the
    `EdgeContext.home` of the edge that holds the client's session, or "" if any edge can answer; the server
    forwards the request there. `unavailable` is the answer when that org or edge cannot be reached.
    """

    make_routes: Callable[[Any, ParkingHandler], Sequence[Route]]
    find_token: Callable[[HttpRequest], str]
    unavailable: HttpResponse
    find_home: Callable[[HttpRequest], str] = lambda _: ""


class Listener(Protocol):
    """The sockets of a front end that does not speak HTTP/1.1."""

    async def start(self, addresses: Mapping[str, tuple[str, int]], tls: TlsFiles) -> dict[str, int]:
        """Listen on an address per setting; returns the ports in use. Raises ConfigInvalid."""

    async def close(self, grace_s: float) -> None:
        """Let running calls finish for `grace_s`, then cut them off."""


FindCalls = Callable[[str], AbstractAsyncContextManager[Any]]
"""Returns the `EdgeApp.calls` of the org that a token names, and keeps the org open meanwhile.

Raises PlatformError if the org is unavailable.
"""


@dataclass(frozen=True, slots=True)
class EdgeSide:
    """The edge's part of a front end.

    `open_listener` gets a way to find the org of a call, the server's settings, and whether edges share the
    ports.
    """

    open: Callable[[EdgeContext], EdgeApp]
    http: EdgeHttp | None = None
    open_listener: Callable[[FindCalls, Any, bool], Listener] | None = None


# both


@dataclass(frozen=True, slots=True)
class Uploads:
    """Paths of PUT requests whose bodies, up to `limit_bytes`, go to a file instead of into memory."""

    paths: re.Pattern[str]
    limit_bytes: int


@dataclass(frozen=True, slots=True)
class FrontEnd:
    """One protocol.

    `paths` matches the whole raw path of its HTTP requests; of several front ends that match, the first in
    the list counts. `render_error` gives errors that the HTTP listener finds, before any handler sees the
    request, the form that clients expect; the request may lack part of its head, and None stands for one line
    of text. It must not raise. `addresses` names the settings that hold the addresses of its own listener.
    `client_limits` reads the limits on its clients from the server's settings; without it there are none.
    """

    name: str
    paths: re.Pattern[str] | None = None
    render_error: Callable[[HttpRequest, int, str], HttpResponse | None] | None = None
    uploads: Uploads | None = None
    addresses: tuple[str, ...] = ()
    client_limits: Callable[[Any], ClientLimits] | None = None
    load_core: Callable[[], CoreSide] | None = None
    load_edge: Callable[[], EdgeSide] | None = None
