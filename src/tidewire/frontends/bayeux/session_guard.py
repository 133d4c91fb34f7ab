"""Authenticate requests, and check that the session a message names belongs to its sender."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from tidewire.access.principal import Principal
from tidewire.clock import Clock
from tidewire.delivery.hub import Hub
from tidewire.delivery.link import Sessions
from tidewire.errors import ClientUnknown, PlatformError, VersionUnsupported
from tidewire.frontends.bayeux import wire
from tidewire.frontends.bayeux.registry import SessionRegistry
from tidewire.frontends.bayeux.session import Session
from tidewire.frontends.bayeux.settings import BayeuxSettings
from tidewire.frontends.bayeux.subscribe import reopen
from tidewire.frontends.bayeux.wire import Endpoint, Message
from tidewire.frontends.bayeux.wire_errors import (
    CHANNEL_MISSING,
    NO_HANDSHAKE,
    OTHER_USER,
    Reconnect,
    WireError,
    no_cookie,
    wire_error,
)
from tidewire.transport.http import HttpRequest


class Rejection(Exception):
    """A failure on its way to the reply of one message. Never leaves this front end."""

    def __init__(self, error: WireError, *, shows_client: bool = True) -> None:
        super().__init__(error.text)
        self.error = error
        self.shows_client = shows_client


@dataclass(frozen=True, slots=True)
class Caller:
    """A request and its sender, authenticated once for all its messages."""

    request: HttpRequest
    endpoint: Endpoint | VersionUnsupported
    identity: Principal | PlatformError

    def check(self) -> tuple[Endpoint, Principal]:
        """Return the endpoint and the user. Raises Rejection."""
        if isinstance(self.endpoint, VersionUnsupported):
            raise Rejection(wire_error(self.endpoint))
        if isinstance(self.identity, PlatformError):
            raise Rejection(wire_error(self.identity))
        return self.endpoint, self.identity

    @property
    def credentials(self) -> str:
        """Return the Authorization header as sent."""
        return self.request.headers.get("authorization", "")

    @property
    def browser(self) -> str:
        """Return the browser id from the cookie, or an empty text."""
        return wire.parse_browser(self.request.headers.get("cookie"))


class SessionGuard:
    """Finds the session of a message and checks that the sender is its user."""

    __slots__ = ("_clock", "_hub", "_link", "_sessions", "_settings", "try_restore")

    def __init__(
        self, link: Sessions, hub: Hub, clock: Clock, settings: BayeuxSettings, sessions: SessionRegistry
    ) -> None:
        self.try_restore: Callable[[str, Principal], Awaitable[Session | None]] | None = None
        self._link = link
        self._hub = hub
        self._clock = clock
        self._settings = settings
        self._sessions = sessions

    async def identify(self, request: HttpRequest) -> Principal | PlatformError:
        """Return the user of the request's token, or why there is none."""
        try:
            return await self._link.authenticate(wire.parse_token(request.headers.get("authorization")))
        except PlatformError as error:
            return error

    def is_verified(self, session: Session, request: HttpRequest) -> bool:
        """Return whether a request repeats credentials that the core verified within `verify_s`."""
        settings = self._settings
        if settings.requires_cookie or self._clock.monotonic_s() - session.verified_s > settings.verify_s:
            return False
        given = request.headers.get("authorization", "")
        if given is session.credentials:
            return True
        if hmac.compare_digest(given.encode(), session.credentials.encode()):
            # A connection that repeats its head passes this very object again, and comparing identity is cheaper.
            session.credentials = given
            return True
        return False

    async def session_of(self, message: Message, caller: Caller) -> Session:
        """Return the session of a message after checking its sender. Raises Rejection."""
        if not isinstance(message.get("channel"), str) or not message["channel"].startswith("/"):
            raise Rejection(WireError(CHANNEL_MISSING))
        _, principal = caller.check()
        client_id = wire.client_id_of(message)
        if not client_id:
            raise Rejection(WireError(NO_HANDSHAKE, Reconnect.HANDSHAKE))
        session = self._sessions.try_find(client_id)
        if session is None and self.try_restore is not None:
            try:
                session = await self.try_restore(client_id, principal)
            except PlatformError as error:
                raise Rejection(wire_error(error)) from error
        if session is None:
            raise unknown_client()
        if (session.principal.org_id, session.principal.user_id) != (principal.org_id, principal.user_id):
            raise Rejection(WireError(OTHER_USER, Reconnect.NONE))
        if self._settings.requires_cookie and caller.browser != session.browser:
            raise unknown_client() if caller.browser else Rejection(no_cookie(client_id))
        now_s = self._clock.monotonic_s()
        session.touch(now_s)
        session.credentials = caller.credentials
        session.verified_s = now_s
        if session.principal.session_id != principal.session_id:
            self._sessions.move(session, principal)
            await reopen(self._hub, session)
        return session


def unknown_client() -> Rejection:
    """Return the rejection of a client id that has no session."""
    return Rejection(wire_error(ClientUnknown("no such client")), shows_client=False)


def render_rejection(message: Message, rejection: Rejection) -> bytes:
    """Render the reply to a rejected message."""
    client_id = wire.client_id_of(message) if rejection.shows_client else ""
    error = rejection.error
    if error.reason and message.get("channel") != wire.SUBSCRIBE:
        # Clients look for the cause in `ext` only after a subscribe.
        error = replace(error, text=error.reason, reason="")
    return wire.render_failure(message, error, client_id)
