"""The open subscriptions of all edges, and how far each is behind.

Lag is counted in positions of the org's log: 0 is caught up, and events of other topics count too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidewire.access.principal import Principal
from tidewire.delivery.allocations import Allocations
from tidewire.delivery.link_values import StreamState
from tidewire.delivery.managed_positions import ManagedPositions
from tidewire.delivery.usage_metrics import HourlyUse
from tidewire.errors import AccessDenied
from tidewire.eventlog.log import EventLog, FamilySize
from tidewire.events import Family
from tidewire.gate.gate import Gate


@dataclass(frozen=True, slots=True)
class StreamLag:
    """One open stream and its lag behind the head of the log."""

    state: StreamState
    lag: int


@dataclass(frozen=True, slots=True)
class ManagedLag:
    """One managed subscription, its committed position and its lag; both None if nothing is committed."""

    name: str
    topic: str
    state: str
    is_read: bool
    position: int | None
    lag: int | None


@dataclass(frozen=True, slots=True)
class StreamingStatus:
    """The state of all streams at one position of the log."""

    head: int
    streams: tuple[StreamLag, ...]
    managed: tuple[ManagedLag, ...]
    clients: Mapping[str, int]
    """Connected clients by front end."""
    delivered: Mapping[Family, int]
    """Since the org was opened."""
    sizes: tuple[FamilySize, ...]
    kept_hours: Mapping[Family, float]
    usage: Sequence[HourlyUse] = ()


class OpenStreams:
    """The open streams of one org. Each edge replaces its own list. All calls belong on the loop."""

    def __init__(
        self,
        gate: Gate,
        log: EventLog,
        managed: ManagedPositions,
        allocations: Allocations,
        kept_hours: Mapping[Family, float],
    ) -> None:
        self._gate = gate
        self._log = log
        self._managed = managed
        self.allocations = allocations
        self._kept_hours = kept_hours
        self._measuring = asyncio.Lock()
        self._by_edge: dict[object, tuple[StreamState, ...]] = {}

    def replace(self, via: object, streams: Sequence[StreamState]) -> None:
        """Replace the list of streams that are open at one edge."""
        self._by_edge[via] = tuple(streams)

    def drop(self, via: object) -> None:
        """Remove the streams of an edge that has gone."""
        self._by_edge.pop(via, None)

    async def status(self, principal: Principal) -> StreamingStatus:
        """Return every stream and managed subscription. Requires the permission View Setup."""
        grants = await self._gate.grants(principal)
        if not (grants.has("ViewSetup") or grants.has("CustomizeApplication")):
            raise AccessDenied(
                "the status of streams needs the permission View Setup", permission="ViewSetup"
            )
        return await self.read_status()

    async def read_status(self) -> StreamingStatus:
        """Like `status`, without a permission check, for metrics, which contain only sums of it."""
        async with self._measuring:
            sizes = await self._gate.records.read(self._log.read_sizes)
        head = await self._gate.records.read(self._log.read_head)
        kept = await self._managed.positions()
        states = [state for states in self._by_edge.values() for state in states]
        managed = []
        for each in self._gate.catalog.selection.managed:
            position = kept.get(each.name, -1)
            is_kept = position >= 0
            managed.append(
                ManagedLag(
                    each.name,
                    each.topic,
                    each.state,
                    self._managed.is_read(each.name),
                    position if is_kept else None,
                    max(0, head - position) if is_kept else None,
                )
            )
        streams = sorted(states, key=lambda s: (s.topic, s.client_id))
        return StreamingStatus(
            head,
            tuple(StreamLag(s, max(0, head - s.position)) for s in streams),
            tuple(managed),
            self.allocations.count_clients(),
            dict(self.allocations.delivered),
            sizes,
            self._kept_hours,
            self.allocations.hourly_usage(),
        )
