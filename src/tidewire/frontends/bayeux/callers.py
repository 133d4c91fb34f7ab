"""Who sends a request, and whether the session it names is theirs."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from dataclasses import replace

from tidewire.access.principal import Principal
from tidewire.clock import Clock
from tidewire.delivery.hub import Hub
from tidewire.delivery.link import CoreLink
from tidewire.errors import ClientUnknown, PlatformError, VersionUnsupported
from tidewire.frontends.bayeux import wire
from tidewire.frontends.bayeux.registry import SessionRegistry
from tidewire.frontends.bayeux.session import Session
from tidewire.frontends.bayeux.settings import BayeuxSettings
from tidewire.frontends.bayeux.subscribing import reopen
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


class Refusal(Exception):
    """Carries a failure from the handling of one message to its reply; never leaves this front end."""

    def __init__(self, error: WireError, *, shows_client: bool = True) -> None:
        super().__init__(error.text)
        self.error = error
        self.shows_client = shows_client


class Caller:
    """One request and who sent it, asked once for all its messages."""

    __slots__ = ("endpoint", "identity", "request")

    def __init__(
        self,
        request: HttpRequest,
        endpoint: Endpoint | VersionUnsupported,
        identity: Principal | PlatformError,
    ) -> None:
        self.request = request
        self.endpoint = endpoint
        self.identity = identity

    def check(self) -> tuple[Endpoint, Principal]:
        """The endpoint and the user, if both are good. Raises Refusal."""
        if isinstance(self.endpoint, VersionUnsupported):
            raise Refusal(wire_error(self.endpoint))
        if isinstance(self.identity, PlatformError):
            raise Refusal(wire_error(self.identity))
        return self.endpoint, self.identity

    @property
    def credentials(self) -> str:
        """The Authorization header as sent."""
        return self.request.headers.get("authorization", "")

    @property
    def browser(self) -> str:
        """The browser id that the request's cookie tells, if any."""
        return wire.parse_browser(self.request.headers.get("cookie"))


class SessionGuard:
    """Lets a message at a session only if its sender is the session's user."""

    __slots__ = ("_clock", "_hub", "_link", "_sessions", "_settings", "try_restore")

    def __init__(
        self, link: CoreLink, hub: Hub, clock: Clock, settings: BayeuxSettings, sessions: SessionRegistry
    ) -> None:
        self.try_restore: Callable[[str, Principal], Awaitable[Session | None]] | None = None
        self._link = link
        self._hub = hub
        self._clock = clock
        self._settings = settings
        self._sessions = sessions

    async def identify(self, request: HttpRequest) -> Principal | PlatformError:
        """The user whose token a request carries, or why there is none."""
        try:
            return await self._link.authenticate(wire.parse_token(request.headers.get("authorization")))
        except PlatformError as error:
            return error

    def is_verified(self, session: Session, request: HttpRequest) -> bool:
        """Whether a request shows the credentials with which core knew its session's user a moment ago."""
        settings = self._settings
        if settings.requires_cookie or self._clock.monotonic_s() - session.verified_s > settings.verify_s:
            return False
        given = request.headers.get("authorization", "")
        if given is session.credentials:
            return True
        if hmac.compare_digest(given.encode(), session.credentials.encode()):
            # A connection that repeats its head repeats this very object, which is quicker to compare.
            session.credentials = given
            return True
        return False

    async def session_of(self, message: Message, caller: Caller) -> Session:
        """The session a message belongs to, checked against who sent it. Raises Refusal."""
        if not isinstance(message.get("channel"), str) or not message["channel"].startswith("/"):
            raise Refusal(WireError(CHANNEL_MISSING))
        _, principal = caller.check()
        client_id = wire.client_id_of(message)
        if not client_id:
            raise Refusal(WireError(NO_HANDSHAKE, Reconnect.HANDSHAKE))
        session = self._sessions.try_find(client_id)
        if session is None and self.try_restore is not None:
            try:
                session = await self.try_restore(client_id, principal)
            except PlatformError as error:
                raise Refusal(wire_error(error)) from error
        if session is None:
            raise unknown_client()
        if (session.principal.org_id, session.principal.user_id) != (principal.org_id, principal.user_id):
            raise Refusal(WireError(OTHER_USER, Reconnect.NONE))
        if self._settings.requires_cookie and caller.browser != session.browser:
            raise unknown_client() if caller.browser else Refusal(no_cookie(client_id))
        now_s = self._clock.monotonic_s()
        session.touch(now_s)
        session.credentials = caller.credentials
        session.verified_s = now_s
        if session.principal.session_id != principal.session_id:
            self._sessions.move(session, principal)
            await reopen(self._hub, session)
        return session


def unknown_client() -> Refusal:
    """No session has the client id that a message carries."""
    return Refusal(wire_error(ClientUnknown("no such client")), shows_client=False)


def render_refusal(message: Message, refusal: Refusal) -> bytes:
    """The reply to a message that was refused."""
    client_id = wire.client_id_of(message) if refusal.shows_client else ""
    error = refusal.error
    if error.reason and message.get("channel") != wire.SUBSCRIBE:
        error = replace(
            error, text=error.reason, reason=""
        )  # only a subscribe's cause is looked for in `ext`
    return wire.render_failure(message, error, client_id)
