"""Durable sessions: Bayeux sessions that survive a restart of the server.

A session is stored before its handshake is answered and whenever its subscriptions change. Each connect confirms that
the reply before it arrived, so its positions are stored then. A client that connects with an id that is not in memory
gets its session back, with every subscription resuming after its stored position: at least once, never a gap.
"""

from __future__ import annotations

import asyncio
import logging
import math
from dataclasses import dataclass, field
from functools import partial

from tidewire.access.principal import Principal
from tidewire.clock import Clock
from tidewire.delivery.hub import Hub, after
from tidewire.delivery.link import StoredClients
from tidewire.delivery.link_values import DurableClient
from tidewire.errors import PlatformError
from tidewire.frontends.bayeux.ack import Acknowledgements
from tidewire.frontends.bayeux.polls import Polls
from tidewire.frontends.bayeux.registry import SessionRegistry
from tidewire.frontends.bayeux.session import EventSource, Session, SessionTimes
from tidewire.frontends.bayeux.settings import BayeuxSettings
from tidewire.frontends.bayeux.subscribe import open_source
from tidewire.frontends.bayeux.wire import Endpoint

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Ended:
    """A subscription that could not be reopened; its error goes out with the next reply."""

    error: PlatformError | None
    position: int

    def take(self, max_events: int, max_bytes: int) -> list[bytes]:
        return []

    def reached(self) -> int:
        return self.position

    def close(self) -> None:
        return None


@dataclass(frozen=True, slots=True)
class DurableSessions:
    """Stores and restores the sessions of one edge."""

    _link: StoredClients
    _hub: Hub
    _clock: Clock
    _settings: BayeuxSettings
    _sessions: SessionRegistry
    _polls: Polls
    _restoring: dict[str, asyncio.Task[Session | None]] = field(default_factory=dict)

    async def store(self, session: Session) -> None:
        """Store a session; returns once it is durable. Raises PlatformError."""
        session.confirm_new()
        session.moved = partial(self._store_positions, session)
        await self._link.store_client(_snapshot(session))

    def forget(self, session: Session) -> None:
        """Delete a session that has ended."""
        self._link.forget_client(session.client_id)

    async def try_restore(self, client_id: str, principal: Principal) -> Session | None:
        """Restore a client's session if this user stored one. Raises PlatformError."""
        restoring = self._restoring.get(client_id)
        if restoring is None:
            restoring = self._restoring[client_id] = asyncio.create_task(self._restore(client_id, principal))
            restoring.add_done_callback(lambda _: self._restoring.pop(client_id, None))
        return await asyncio.shield(restoring)

    async def _restore(self, client_id: str, principal: Principal) -> Session | None:
        stored = await self._link.find_client(client_id)
        if stored is None or stored.user_id != principal.user_id:
            return None
        await self._hub.usage.admit_client(client_id, "bayeux", stored.user_id, is_durable=stored.is_durable)
        settings = self._settings
        session = Session(
            client_id,
            Endpoint(stored.api_version, stored.is_durable),
            principal,
            stored.browser,
            SessionTimes(settings.hold_s, settings.reconnect_window_s),
            self._clock.monotonic_s(),
        )
        # Force the first connect to authenticate: no credentials were stored.
        session.verified_s = -math.inf
        session.is_fresh = False
        session.has_websocket = settings.has_websocket
        self._polls.watch(session)
        if stored.batch >= 0:
            session.acks = Acknowledgements(stored.batch)
        try:
            for channel, position in stored.channels:
                session.sources[channel] = await self._reopen(session, channel, position)
        except BaseException:
            session.close()
            self._hub.usage.release_client(client_id)
            raise
        session.confirm_new()
        session.moved = partial(self._store_positions, session)
        # Restoring took time that must not count against the client's reconnect window.
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

    def _store_positions(self, session: Session) -> None:
        self._link.store_positions((_snapshot(session),))


def _snapshot(session: Session) -> DurableClient:
    return DurableClient(
        session.client_id,
        session.principal.user_id,
        session.endpoint.api_version,
        session.endpoint.is_durable,
        session.browser,
        -1 if session.acks is None else session.acks.batch,
        tuple(session.confirmed.items()),
    )
