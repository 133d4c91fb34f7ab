"""Ranges of the log for a reader who may see every record: read page by page, or counted without reading.

The reader's rights are checked before and after each page is read, so that a revoked right takes effect with that page.
Without a channel, a range holds the change events of every captured object and the platform events that the reader may
see, in log order.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TypeVar

from tidewire.access.grants import Grants
from tidewire.access.principal import Principal
from tidewire.capture.enrichment import enrich_events
from tidewire.capture.stage import CaptureStage
from tidewire.errors import AccessDenied, ChannelForbidden, ChannelUnknown, ReplayIdExpired, ReplayIdInvalid
from tidewire.eventlog.log import EventLog, Incarnation, LogPage
from tidewire.events import Event, Family
from tidewire.gate.gate import Gate
from tidewire.gate.publishing import can_see_event
from tidewire.matching.channels import ChannelView, channel_filters, view_channel
from tidewire.names import change_event_name
from tidewire.schema.codec import EventSchema, compiled_schema
from tidewire.schema.redaction import redact_fields
from tidewire.storage.store import Reader

T = TypeVar("T")

EARLIEST = 0
PAGE_EVENTS = 2_000
PAGE_BYTES = 1 << 20
_POSITIONS_AT_ONCE = 20_000
_CONCURRENT_READS = 2  # of ranges: other reads need the store's threads too
_CARRIED = (Family.CHANGE, Family.PLATFORM)
_NEEDED = {"ViewAllData": "View All Data", "ViewAllUsers": "View All Users"}


@dataclass(frozen=True, slots=True)
class LogState:
    """The log's head and incarnations. A position between two incarnations was never assigned by this log."""

    head: int
    incarnations: tuple[Incarnation, ...]

    def incarnation_of(self, position: int) -> int:
        """Return the first position of the incarnation that a position belongs to, or of the last one if to none."""
        begun = [each.first for each in self.incarnations if each.first - 1 <= position]
        return begun[-1] if begun else self.incarnations[-1].first


@dataclass(frozen=True, slots=True)
class RangeStart:
    """Where a range begins; `floors` are the positions before the oldest event of each family."""

    state: LogState
    after: int
    floors: Mapping[Family, int]


@dataclass(frozen=True, slots=True)
class RangePlan:
    """Consecutive parts of the log from `after` to `through`, as (end, rows)."""

    after: int
    through: int
    parts: tuple[tuple[int, int], ...]
    state: LogState


@dataclass(frozen=True, slots=True)
class _View:
    """The topics of each family that a range covers, and the fields to hide in their events."""

    topics: Mapping[Family, frozenset[str]]
    hidden: Mapping[str, frozenset[str]]
    channel: ChannelView | None


class LogRanges:
    """Reads ranges of one org's log."""

    def __init__(self, gate: Gate, log: EventLog, capture: CaptureStage) -> None:
        self._gate = gate
        self._log = log
        self._capture = capture
        self._slots = asyncio.Semaphore(_CONCURRENT_READS)

    async def start(self, principal: Principal, channel: str, after: int) -> RangeStart:
        """Begin a range after a position, or at the oldest event for EARLIEST.

        Raises AccessDenied, or as subscribing to the channel does; ReplayIdExpired if events after that position were
        trimmed, ReplayIdInvalid if it was never assigned.
        """
        view = await self._view(principal, channel)

        def work(reader: Reader) -> RangeStart:
            state = LogState(self._log.read_head(reader), self._log.read_incarnations(reader))
            floors = {family: self._log.read_bounds(reader, family).trimmed_through for family in view.topics}
            if after == EARLIEST:
                return RangeStart(state, min(floors.values()), floors)
            if after < max(floors.values()):
                raise ReplayIdExpired(
                    f"replay id {after} is older than the log keeps",
                    replay_id=after,
                    earliest=max(floors.values()),
                )
            if not self._log.is_position_known(reader, after):
                raise ReplayIdInvalid(f"replay id {after} was never given out", replay_id=after)
            return RangeStart(state, after, floors)

        return await self._gate.records.read(work)

    async def find_time(self, principal: Principal, channel: str, time_ms: int) -> int:
        """Return the position before the first event created at or after a time, or the head."""
        view = await self._view(principal, channel)
        return await self._gate.records.read(
            lambda reader: min(self._log.find_time(reader, family, time_ms) for family in view.topics)
        )

    async def read_page(
        self, principal: Principal, channel: str, start: RangeStart, after: int, max_events: int
    ) -> LogPage:
        """Return the next events after a position from `start` or an earlier page. Raises as `start` does."""
        max_events = min(max_events, PAGE_EVENTS)

        def work(view: _View, reader: Reader) -> LogPage:
            pages = [
                self._log.read_after(
                    reader, family, topics, max(after, start.floors[family]), max_events, PAGE_BYTES
                )
                for family, topics in view.topics.items()
            ]
            through = min(page.through for page in pages)
            events = [event for page in pages for event in page.events if event.position <= through]
            if len(pages) > 1:
                events.sort(key=lambda event: event.position)
                if len(events) > max_events:
                    del events[max_events:]
                    through = events[-1].position
            return self._redact(reader, channel, view, events, through)

        return await self._read_in_slot(principal, channel, work)

    async def plan(
        self, principal: Principal, channel: str, after: int, through: int | None, limit: int, rows: int
    ) -> RangePlan:
        """Divide what follows `after` into parts of about `rows` events, up to `limit` events, `through` or the head.

        Events that a filter omits count too.
        """
        start = await self.start(principal, channel, after)
        begun, state = start.after, start.state
        end = state.head if through is None else min(through, state.head)
        parts: list[tuple[int, int]] = []
        waiting = counted = 0
        reached = begun
        while reached < end and counted < limit:
            found, reached = await self._positions(principal, channel, start, reached, limit - counted)
            wanted = found[: bisect_right(found, end)]
            parts += [(position, rows) for position in wanted[rows - waiting - 1 :: rows]]
            counted += len(wanted)
            waiting = (waiting + len(wanted)) % rows
        reached = max(begun, min(reached, end))
        if reached > (parts[-1][0] if parts else begun):
            if not waiting and parts:
                parts[-1] = (reached, parts[-1][1])
            else:
                parts.append((reached, waiting))
        return RangePlan(begun, reached, tuple(parts), state)

    async def _positions(
        self, principal: Principal, channel: str, start: RangeStart, after: int, limit: int
    ) -> tuple[Sequence[int], int]:
        wanted = min(limit, _POSITIONS_AT_ONCE)

        def work(view: _View, reader: Reader) -> tuple[Sequence[int], int]:
            pages = [
                self._log.read_positions(reader, family, topics, max(after, start.floors[family]), wanted)
                for family, topics in view.topics.items()
            ]
            through = min(page.through for page in pages)
            found = [position for page in pages for position in page.found if position <= through]
            if len(pages) > 1:
                found.sort()
            if len(found) > wanted:
                return found[:wanted], found[wanted - 1]
            return found, through

        return await self._read_in_slot(principal, channel, work)

    async def _read_in_slot(
        self, principal: Principal, channel: str, work: Callable[[_View, Reader], T]
    ) -> T:
        """Run `work` when a slot is free, and again if the reader's rights changed meanwhile."""
        async with self._slots:
            view = await self._view(principal, channel)
            while True:
                found = await self._gate.records.read(partial(work, view))
                rechecked = await self._view(principal, channel)
                if rechecked == view:
                    return found
                view = rechecked

    async def _view(self, principal: Principal, channel: str) -> _View:
        await self._gate.check_api(principal)
        grants = await self._gate.grants(principal)
        for permission, label in _NEEDED.items():
            if not grants.has(permission):
                raise AccessDenied(f"ranges of the log need the permission {label}", permission=permission)
        if not channel:
            return self._everything(grants)
        catalog = self._gate.catalog
        view = view_channel(channel, catalog, self._capture.push_topics, grants)
        event = catalog.try_event(channel.rpartition("/")[2]) if view.family is Family.PLATFORM else None
        if view.family not in _CARRIED:
            raise ChannelUnknown(f"ranges of the log have no channel {channel}", channel=channel)
        if event is not None and not event.is_high_volume:
            raise ChannelForbidden(f"{channel} cannot be read from the log", channel=channel)
        return _View({view.family: view.topics}, dict(view.hidden), view)

    def _everything(self, grants: Grants) -> _View:
        catalog = self._gate.catalog
        hidden: dict[str, frozenset[str]] = {}
        changes: set[str] = set()
        for entity in catalog.captured:
            if grants.can_view_all(entity) or grants.has("ViewAllData"):
                topic = change_event_name(entity)
                changes.add(topic)
                names = grants.hidden_fields(catalog.object(entity)) | catalog.removed_from(entity)
                if names:
                    hidden[topic] = names
        events = {e.name for e in catalog.events if e.is_high_volume and can_see_event(grants, e)}
        return _View({Family.CHANGE: frozenset(changes), Family.PLATFORM: frozenset(events)}, hidden, None)

    def _redact(
        self, reader: Reader, channel: str, view: _View, events: Sequence[Event], through: int
    ) -> LogPage:
        """Filter, enrich and redact events as the reader may see them on the channel."""

        @cache
        def schema_of(schema_id: str) -> EventSchema:
            return compiled_schema(self._log.read_schema(reader, schema_id))

        after = dict(view.channel.start_positions) if view.channel is not None else {}
        done: Sequence[Event] = [e for e in events if e.position > after.get(e.topic, 0)] if after else events
        if view.channel is not None and view.channel.enriched:
            catalog = self._gate.catalog
            fields, filters = dict(view.channel.enriched), channel_filters(channel, catalog)
            done, ended_at = enrich_events(reader, catalog, schema_of, fields, filters, done)
            through = through if ended_at is None else ended_at
        if view.hidden:
            done = [
                event._replace(payload=redact_fields(schema_of(event.schema_id), event.payload, names))
                if (names := view.hidden.get(event.topic))
                else event
                for event in done
            ]
        return LogPage(tuple(done), through)
