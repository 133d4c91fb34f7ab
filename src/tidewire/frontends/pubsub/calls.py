"""Running calls: authentication, and the open streams of an org.

A stream counts as a client of the org from its admission to its end. It ends early when the server stops or the login
session of its token is revoked; its task checks `error` whenever `wake` is set.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc

from tidewire.access.principal import Principal
from tidewire.delivery.hub import Hub
from tidewire.delivery.link import Sessions
from tidewire.errors import LimitExceeded, PlatformError, SessionError, SessionInvalid, StoreClosed
from tidewire.frontends.pubsub.headers import CallHeaders, parse_headers
from tidewire.frontends.pubsub.settings import PubSubSettings

Requests = AsyncIterator[bytes]


@dataclass(slots=True)
class Call:
    """One RPC: what its error response needs."""

    rpc: str
    rpc_id: str
    context: Any
    topic: str = ""
    tenant: str = ""  # as the call names it: an error must not reveal which orgs exist
    trailers: tuple[tuple[str, str], ...] = ()
    traceparent: str = ""


@dataclass(slots=True)
class Caller:
    """The authenticated caller and its metadata. A later request may replace the token."""

    principal: Principal
    headers: CallHeaders
    token: str


@dataclass(slots=True, eq=False)
class OpenStream:
    """An open stream. `end` stops it with an error."""

    client_id: str
    caller: Caller
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    error: PlatformError | None = None

    def end(self, error: PlatformError) -> None:
        """Stop with an error. The first error wins."""
        self.error = self.error or error
        self.wake.set()


class Callers:
    """Authenticates the calls of one org and tracks its open streams."""

    def __init__(self, link: Sessions, hub: Hub, settings: PubSubSettings) -> None:
        self._link = link
        self._hub = hub
        self._settings = settings
        self._streams: set[OpenStream] = set()
        self._is_closing = False
        hub.watch_sessions(self._end_session)
        hub.add_session_source(self._session_ids)

    async def admit(self, call: Call) -> Caller:
        """Authenticate a call. Raises AuthHeaderInvalid, SessionInvalid, DemandInvalid or BodyMalformed."""
        headers = parse_headers(call.context.invocation_metadata() or ())
        if headers.trace_id:
            call.trailers = (("x-client-trace-id", headers.trace_id),)
            call.context.set_trailing_metadata(call.trailers)
        call.traceparent = headers.traceparent
        if headers.wants_gzip:
            call.context.set_compression(grpc.Compression.Gzip)
        call.tenant = f"CORE/prod/{headers.org_id}"
        caller = Caller(await self._link.authenticate(headers.token), headers, headers.token)
        if caller.principal.org_id != headers.org_id:
            raise SessionInvalid("The token is not of the org that the metadata header tenantid names")
        return caller

    async def check(self, caller: Caller) -> None:
        """Raise SessionInvalid if the login has ended, AccessDenied if the user lost API access."""
        caller.principal = await self._link.authenticate(caller.token)

    async def refresh(self, caller: Caller, token: str) -> None:
        """Replace the caller's token by another one of the same user. Raises SessionInvalid."""
        try:
            principal = await self._link.authenticate(token)
        except SessionError as error:
            raise _bad_refresh("The auth_refresh token is not that of a valid session") from error
        if (principal.org_id, principal.user_id) != (caller.principal.org_id, caller.principal.user_id):
            raise _bad_refresh("The auth_refresh token is another user's")
        caller.principal, caller.token = principal, token

    @asynccontextmanager
    async def stream(self, call: Call, caller: Caller) -> AsyncIterator[OpenStream]:
        """Open a stream that counts as a client while the context lasts. Raises LimitExceeded."""
        if len(self._streams) >= self._settings.max_streams:
            raise LimitExceeded(
                "The server has reached its limit of open streams", limit=self._settings.max_streams
            )
        opened = OpenStream(f"pubsub-{call.rpc_id}", caller)
        await self._hub.usage.admit_client(
            opened.client_id, "pubsub", caller.principal.user_id, is_durable=True
        )
        self._streams.add(opened)
        if self._is_closing:
            opened.end(_stopping())
        try:
            yield opened
        finally:
            self._streams.discard(opened)
            self._hub.usage.release_client(opened.client_id)

    def end_all(self) -> None:
        """End every stream with a retryable status; new ones end at once."""
        self._is_closing = True
        for stream in tuple(self._streams):
            stream.end(_stopping())

    def _end_session(self, session_id: str) -> None:
        for stream in tuple(self._streams):
            if stream.caller.principal.session_id == session_id:
                stream.end(SessionInvalid("Session expired or invalid"))

    def _session_ids(self) -> Iterable[str]:
        return {stream.caller.principal.session_id for stream in self._streams}

    def client_ids(self) -> Iterator[str]:
        """Yield the client ids of all open streams."""
        return (stream.client_id for stream in self._streams)


def wake_on_end(reading: asyncio.Task[None], wake: asyncio.Event) -> None:
    """Wake the writer when the reader ends, so that it can check why."""
    if not reading.cancelled():
        reading.exception()  # retrieved here: the writer may have ended first, and asyncio warns of unretrieved errors
    wake.set()


def _bad_refresh(text: str) -> SessionInvalid:
    return SessionInvalid(text, wire_code="service.auth.refresh.invalid")


def _stopping() -> StoreClosed:
    return StoreClosed("the server is stopping")
