"""One signed-in SOAP call: the caller, the request, and the services that answer it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from tidewire.access.logins import Logins
from tidewire.access.principal import Principal
from tidewire.clock import Clock
from tidewire.errors import TooManyRecords
from tidewire.frontends.soap.wire import ENTERPRISE, Dialect, Endpoint, SoapRequest
from tidewire.gate.gate import Gate
from tidewire.gate.monitoring import ApiReader
from tidewire.gate.query_cursors import QueryCursors
from tidewire.gate.query_pages import CursorState
from tidewire.gate.requests import Call

MAX_RECORDS = 200
"""Records that one call may write."""

_CLIENT_NAME = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,98}[\x21-\x7e])?")


@dataclass(frozen=True, slots=True)
class Services:
    """The org's services, shared by all calls."""

    gate: Gate
    logins: Logins
    cursors: QueryCursors[CursorState]
    clock: Clock


@dataclass(frozen=True, slots=True)
class SoapCall:
    """A call with a valid session."""

    services: Services
    request: SoapRequest
    endpoint: Endpoint
    principal: Principal
    peer: str = ""
    user_agent: str = ""

    @property
    def gate(self) -> Gate:
        """The org's records."""
        return self.services.gate

    @property
    def dialect(self) -> Dialect:
        """The API that was called."""
        return self.endpoint.dialect

    @property
    def context(self) -> Call:
        """The caller, and the origin that change events name."""
        origin = f"com/salesforce/api/soap/{self.endpoint.version}.0"
        client = self.request.client
        if _CLIENT_NAME.fullmatch(client):
            origin += f";client={client}"
        has_notifications = self.request.flag("StreamingEnabledHeader", "streamingEnabled", default=True)
        return Call(self.principal, origin, has_notifications, self.endpoint.version)

    @property
    def reader(self) -> ApiReader:
        """The caller as monitoring events describe it."""
        api_type = "SOAP Enterprise" if self.dialect is ENTERPRISE else "SOAP Partner"
        client = self.request.client
        return ApiReader(self.principal, api_type, self.endpoint.version, self.peer, self.user_agent, client)

    @property
    def all_or_none(self) -> bool:
        """Whether one failure rolls back the whole call."""
        return self.request.flag("AllOrNoneHeader", "allOrNone", default=False)


Operation = Callable[[SoapCall], Awaitable[str]]
"""Answers a call with the content of its response element. Raises PlatformError."""


def check_count(given: Sequence[object], limit: int = MAX_RECORDS) -> None:
    """Raise TooManyRecords if a call carries more than `limit` items."""
    if len(given) > limit:
        raise TooManyRecords(
            f"record limit reached. cannot submit more than {limit} records into this call", limit=limit
        )
