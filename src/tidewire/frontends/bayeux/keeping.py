"""Sessions that outlive the server: stored before their client is told of them, made again when it returns.

A session is stored at its handshake and whenever its subscriptions change. How far it has come is noted with
every connect, which shows that the reply before it arrived. A client that connects with an id that is not
known here gets its session back, with every subscription going on after the position noted last: nothing is
left out, and what was sent in the moment before a crash may come again.
"""

from __future__ import annotations

import asyncio
import logging
import math
from functools import partial

from tidewire.access.principal import Principal
from tidewire.clock import Clock
from tidewire.delivery.hub import Hub, after
from tidewire.delivery.link import CoreLink
from tidewire.delivery.link_values import DurableClient
from tidewire.errors import PlatformError
from tidewire.frontends.bayeux.ack import Acknowledgements
from tidewire.frontends.bayeux.polling import Polls
from tidewire.frontends.bayeux.registry import SessionRegistry
from tidewire.frontends.bayeux.session import EventSource, Session, SessionTimes
from tidewire.frontends.bayeux.settings import BayeuxSettings
from tidewire.frontends.bayeux.subscribing import open_source
from tidewire.frontends.bayeux.wire import Endpoint

log = logging.getLogger(__name__)


class _Ended:
    """Stands for a subscription that could not be opened again: its error is told with the next reply."""

    def __init__(self, error: PlatformError, position: int) -> None:
        self.error: PlatformError | None = error
        self.position = position

    def take(self, max_events: int, max_bytes: int) -> list[bytes]:
        return []

    def reached(self) -> int:
        return self.position

    def close(self) -> None:
        return None


class SessionKeeper:
    """One per edge, if sessions are to be kept."""

    def __init__(
        self,
        link: CoreLink,
        hub: Hub,
        clock: Clock,
        settings: BayeuxSettings,
        sessions: SessionRegistry,
        polls: Polls,
    ) -> None:
        self._link = link
        self._hub = hub
        self._clock = clock
        self._sessions = sessions
        self._polls = polls
        self._settings = settings
        self._restoring: dict[str, asyncio.Task[Session | None]] = {}

    async def store(self, session: Session) -> None:
        """Store a session as it is; returns when that is durable. Raises PlatformError."""
        session.confirm_new()
        session.moved = partial(self._note, session)
        await self._link.store_client(_kept(session))

    def forget(self, session: Session) -> None:
        """A session has ended for good."""
        self._link.forget_client(session.client_id)

    async def try_restore(self, client_id: str, principal: Principal) -> Session | None:
        """The session of a client that was stored by a user, alive again. Raises PlatformError."""
        restoring = self._restoring.get(client_id)
        if restoring is None:
            restoring = self._restoring[client_id] = asyncio.create_task(self._restore(client_id, principal))
            restoring.add_done_callback(lambda _: self._restoring.pop(client_id, None))
        return await asyncio.shield(restoring)

    async def _restore(self, client_id: str, principal: Principal) -> Session | None:
        kept = await self._link.find_client(client_id)
        if kept is None or kept.user_id != principal.user_id:
            return None
        await self._hub.usage.admit_client(client_id, is_durable=kept.is_durable, user_id=kept.user_id)
        settings = self._settings
        session = Session(
            client_id,
            Endpoint(kept.api_version, kept.is_durable),
            principal,
            kept.browser,
            SessionTimes(settings.hold_s, settings.reconnect_window_s),
            self._clock.monotonic_s(),
        )
        # Whoever connects first shows who they are: no credentials of theirs are known yet.
        session.verified_s = -math.inf
        session.is_fresh = False
        session.has_websocket = settings.has_websocket
        self._polls.attend(session)
        if kept.batch >= 0:
            session.acks = Acknowledgements(kept.batch)
        try:
            for channel, position in kept.channels:
                session.sources[channel] = await self._reopen(session, channel, position)
        except BaseException:
            session.close()
            self._hub.usage.release_client(client_id)
            raise
        session.confirm_new()
        session.moved = partial(self._note, session)
        # The time it took is not the client's.
        session.touch(self._clock.monotonic_s())
        self._sessions.add(session)
        self._polls.start_sweeping()
        log.info("bayeux.session_restored", extra={"user_id": principal.user_id})
        return session

    async def _reopen(self, session: Session, channel: str, position: int) -> EventSource:
        try:
            return await open_source(self._hub, session, channel, after(position))
        except PlatformError as error:
            if error.retryable:
                raise
            log.info("bayeux.subscription_dropped", extra={"channel": channel, "code": error.code})
            return _Ended(error, position)

    def _note(self, session: Session) -> None:
        self._link.store_positions((_kept(session),))


def _kept(session: Session) -> DurableClient:
    return DurableClient(
        session.client_id,
        session.principal.user_id,
        session.endpoint.api_version,
        session.endpoint.is_durable,
        session.browser,
        -1 if session.acks is None else session.acks.batch,
        tuple(session.confirmed.items()),
    )
