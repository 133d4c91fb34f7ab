"""Streaming allocations of an edition, and how much of them an org uses.

Clients are counted at their handshake and events at their delivery, separately for API versions up to 36.0 and for the
durable ones from 37.0 on. The counts are the org's; edges report to it. A client counts until its edge releases it or
no longer renews its lease. Deliveries are counted by hour in memory and written by `flush`, so that no delivery waits
for the disk.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from tidewire.clock import Clock
from tidewire.delivery.link_values import ClientLimits, Delivered
from tidewire.delivery.usage_metrics import (
    NAME,
    PUBLISHED_CHANGES,
    PUBLISHED_EVENTS,
    HourlyUse,
    plan_metrics,
    store_metrics,
    sum_hours,
    sum_metrics,
)
from tidewire.errors import ConfigInvalid, LimitExceeded
from tidewire.events import CommittedBatch, Family
from tidewire.gate.publish_quota import Charge
from tidewire.names import parse_channel
from tidewire.records.service import RecordService
from tidewire.storage.store import Reader, Transaction

CLIENT_LIMIT_TEXT = "Organization concurrent user limit exceeded"
TOPIC_LIMIT_TEXT = "Subscription limit exceeded for this topic"
EVENT_LIMIT_TEXT = "Organization total events daily limit exceeded"

_HOUR_MS = 3_600_000
_DAY_HOURS = 24
_MONTH_HOURS = 30 * 24
_LEASE_S = 60.0  # edges renew leases four times as often


@dataclass(frozen=True, slots=True)
class Allocation:
    """The limits of one edition. Events are deliveries in 24 hours, counted per client."""

    clients: int
    push_events: int
    generic_events: int
    durable_generic_events: int
    bus_events: int
    channels: int
    published_events: int = 250_000
    """Platform events published in an hour."""

    def daily_events(self, family: Family, *, is_durable: bool) -> int:
        """Return how many events of a family may be delivered in 24 hours."""
        if family is Family.PUSH_TOPIC:
            return self.push_events
        if family is Family.GENERIC:
            return self.durable_generic_events if is_durable else self.generic_events
        return self.bus_events


_LARGE = Allocation(2_000, 1_000_000, 100_000, 1_000_000, 50_000, 1_000)
_FREE = Allocation(20, 10_000, 10_000, 10_000, 10_000, 200, 50_000)
_BY_EDITION = {
    "performance": _LARGE,
    "unlimited": _LARGE,
    "enterprise": Allocation(1_000, 200_000, 100_000, 200_000, 25_000, 1_000),
    "professional": Allocation(20, 50_000, 100_000, 100_000, 10_000, 1_000),
    "developer": _FREE,
    "free": _FREE,
    # From the guide of version 24.0, which has push topics only.
    "databasecom-24": Allocation(10, 10_000, 10_000, 10_000, 10_000, 200, 50_000),
}
NOMINAL = _LARGE
"""The limits that the limits resource shows for an org without an edition, where nothing is enforced."""


def find_allocation(edition: str) -> Allocation | None:
    """Return the limits of an edition; None, without an edition, for no limits. Raises ConfigInvalid."""
    if not edition:
        return None
    found = _BY_EDITION.get(edition)
    if found is None:
        raise ConfigInvalid(
            f"edition must be one of {', '.join(_BY_EDITION)}, not {edition!r}", setting="edition"
        )
    return found


@dataclass(slots=True)
class _Client:
    front_end: str
    user_id: str
    is_durable: bool
    lease_s: float
    topics: frozenset[str] = frozenset()


class Allocations:
    """One org's. All calls belong on the loop, except where they say otherwise.

    `client_limits` has the limits of each front end that has clients, by its name.
    """

    def __init__(
        self,
        records: RecordService,
        clock: Clock,
        client_limits: Mapping[str, ClientLimits],
        edition: str = "",
    ) -> None:
        self._records = records
        self._clock = clock
        self._client_limits = client_limits
        self._counts = dict.fromkeys(client_limits, 0)  # clients by front end
        self._user_clients: Counter[tuple[str, str]] = Counter()  # by front end and user
        self.limits = find_allocation(edition)
        self._clients: dict[str, _Client] = {}
        self._by_hour: Counter[tuple[int, bool, int]] = Counter()
        self._unsaved: set[tuple[int, bool, int]] = set()
        self._charging = (
            threading.Lock()
        )  # REST on the loop and shared transactions on the writer thread publish
        self._charged: dict[int, int] = {}  # published events by hour, including those not committed yet
        self._metrics_hour = -1  # when the metrics were last updated
        self.delivered: Counter[Family] = Counter()  # since the org was opened

    async def load(self) -> None:
        """Load the counts from before the last restart."""
        first = self._hour() - _MONTH_HOURS
        for hour, is_durable, family, count in await self._records.read(lambda r: _read_usage(r, first)):
            self._by_hour[hour, is_durable, family] = count

    # clients

    def admit_client(self, client_id: str, front_end: str, user_id: str, *, is_durable: bool) -> int:
        """Count a client at its handshake or after a restart. Raises LimitExceeded.

        Returns how many other clients of the user at this front end must end for it.
        """
        if self.limits is not None and self.used_clients(is_durable=is_durable) >= self.limits.clients:
            raise LimitExceeded(CLIENT_LIMIT_TEXT, limit=self.limits.clients, allocation="clients")
        limits = self._client_limits[front_end]
        if self._counts[front_end] >= limits.total:
            raise LimitExceeded("too many sessions", limit=limits.total, allocation="sessions")
        self.release_client(client_id)
        lease_s = self._clock.monotonic_s() + _LEASE_S
        self._clients[client_id] = _Client(front_end, user_id, is_durable, lease_s)
        self._counts[front_end] += 1
        self._user_clients[front_end, user_id] += 1
        return max(0, self._user_clients[front_end, user_id] - limits.per_user)

    def renew_clients(self, client_ids: Iterable[str]) -> None:
        """Renew the leases of clients."""
        lease_s = self._clock.monotonic_s() + _LEASE_S
        for client_id in client_ids:
            client = self._clients.get(client_id)
            if client is not None:
                client.lease_s = lease_s

    def release_client(self, client_id: str) -> None:
        """Stop counting a client."""
        client = self._clients.pop(client_id, None)
        if client is not None:
            self._counts[client.front_end] -= 1
            key = (client.front_end, client.user_id)
            self._user_clients[key] -= 1
            if not self._user_clients[key]:
                del self._user_clients[key]

    def used_clients(self, *, is_durable: bool) -> int:
        """Return the number of clients."""
        self._release_expired()
        return sum(client.is_durable is is_durable for client in self._clients.values())

    def count_clients(self) -> dict[str, int]:
        """Return the number of clients of each front end."""
        self._release_expired()
        return dict(self._counts)

    def _release_expired(self) -> None:
        now_s = self._clock.monotonic_s()
        for client_id in [c for c, client in self._clients.items() if client.lease_s <= now_s]:
            self.release_client(client_id)

    # subscriptions

    def admit_subscription(
        self, client_id: str, channel: str, topic: str, family: Family, *, is_durable: bool
    ) -> bool:
        """Count a subscription to a channel that shows `topic`. Raises LimitExceeded.

        Returns whether its deliveries count against an allocation.
        """
        limits = self.limits
        if family is Family.PLATFORM and not self._is_allotted(topic):
            return False
        if limits is None:
            return True
        most = limits.daily_events(family, is_durable=is_durable)
        if self.used_events(family, is_durable=is_durable) >= most:
            raise LimitExceeded(EVENT_LIMIT_TEXT, limit=most, allocation="events")
        if family not in (Family.PUSH_TOPIC, Family.GENERIC):
            return True
        place = f"{topic} {channel}"
        readers = sum(
            held.startswith(f"{topic} ") and (client != client_id or held != place)
            for client, entry in self._clients.items()
            if entry.is_durable is is_durable
            for held in entry.topics
        )
        if readers >= limits.clients:
            raise LimitExceeded(TOPIC_LIMIT_TEXT, limit=limits.clients, allocation="topic")
        entry = self._clients.get(client_id)
        if entry is not None:
            entry.topics |= {place}
        return True

    def _is_allotted(self, topic: str) -> bool:
        """Return whether a channel shows platform events that count: high-volume ones that users publish."""
        catalog, name = self._records.types.catalog, parse_channel(topic).name
        members = [member.event for member in catalog.selection.members_of(name)]
        return any(self._is_counted(event) for event in members or [name])

    def _is_counted(self, event: str) -> bool:
        known = self._records.types.catalog.try_event(event)
        return known is not None and known.is_high_volume

    def release_subscription(self, client_id: str, channel: str) -> None:
        """Stop counting a subscription."""
        entry = self._clients.get(client_id)
        if entry is not None:
            left = (place for place in entry.topics if place.partition(" ")[2] != channel)
            entry.topics = frozenset(left)

    # events

    def count_delivered(self, deliveries: Iterable[Delivered]) -> None:
        """Count delivered events."""
        for delivered in deliveries:
            self.delivered[delivered.family] += delivered.events
            if delivered.is_allotted:
                self._count(delivered.is_durable, int(delivered.family), delivered.events)

    def on_commit(self, batch: CommittedBatch) -> None:
        """Count published change events and high-volume platform events."""
        changes = counted = 0
        for topic, run in groupby(batch.events, attrgetter("topic")):
            events = list(run)
            if events[0].family is Family.CHANGE:
                changes += len(events)
            elif events[0].family is Family.PLATFORM and self._is_counted(topic):
                counted += len(events)
        if changes:
            self._count(True, PUBLISHED_CHANGES, changes)
        if counted:
            self._count(True, PUBLISHED_EVENTS, counted)

    def used_events(self, family: Family, *, is_durable: bool) -> int:
        """Return the deliveries of the last 24 hours; change and platform events count together."""
        families = {int(family)}
        if family in (Family.PLATFORM, Family.CHANGE):
            families = {int(Family.PLATFORM), int(Family.CHANGE)}
        return self._sum(_DAY_HOURS, families, is_durable)

    def used_bus_events(self, *, in_month: bool = False) -> int:
        """Return the deliveries of change and platform events in 24 hours or in 30 days."""
        hours = _MONTH_HOURS if in_month else _DAY_HOURS
        families = {int(Family.PLATFORM), int(Family.CHANGE)}
        return self._sum(hours, families, True) + self._sum(hours, families, False)

    def hourly_usage(self) -> list[HourlyUse]:
        """Return what was published and delivered in each full hour, by metric name."""
        counts = [(at, kind, count) for (at, _, kind), count in self._by_hour.items()]
        return sum_hours(counts, self._hour())

    def reserve(self, wanted: int) -> Charge:
        """Charge up to `wanted` published events to the current hour. Safe on any thread."""
        hour, limits = self._hour(), self.limits
        with self._charging:
            charged = self._charged.get(hour)
            if charged is None:
                # The first in this hour: continue from what was counted before a restart.
                charged = self._by_hour.get((hour, True, PUBLISHED_EVENTS), 0)
                self._charged = {h: n for h, n in self._charged.items() if h > hour - _DAY_HOURS}
            if limits is not None:
                wanted = max(0, min(wanted, limits.published_events - charged))
            self._charged[hour] = charged + wanted
        return Charge(hour, wanted)

    def release(self, charge: Charge) -> None:
        """Give back events that were not published. Safe on any thread."""
        with self._charging:
            self._charged[charge.hour] -= charge.events

    def published_events(self) -> int:
        """Return the number of platform events published in the current hour."""
        return self._sum(1, {PUBLISHED_EVENTS}, True)

    async def flush(self) -> None:
        """Write changed counts; the next call retries a failed write. Update the metrics once an hour."""
        if self._unsaved:
            await self._save()
        if self._metrics_hour != self._hour():
            await self._store_metrics(self._hour())

    async def _store_metrics(self, hour: int) -> None:
        counts = [(at, kind, count) for (at, _, kind), count in self._by_hour.items()]
        wanted = sum_metrics(counts, hour, hour - _MONTH_HOURS + 1)
        obj = self._records.types.catalog.object(NAME)
        changes = await self._records.read(lambda reader: plan_metrics(reader, obj, wanted, hour))
        if not changes.is_empty:
            # Planned again inside the transaction: another flush may have stored it meanwhile.
            await self._records.write_plain(
                lambda tx: store_metrics(tx, obj, plan_metrics(tx, obj, wanted, hour))
            )
        self._metrics_hour = hour

    async def _save(self) -> None:
        unsaved, self._unsaved = self._unsaved, set()
        rows = [(*key, self._by_hour[key]) for key in sorted(unsaved)]
        first = self._hour() - _MONTH_HOURS
        try:
            await self._records.write_plain(lambda tx: _write_usage(tx, rows, first))
        except BaseException:
            self._unsaved |= unsaved
            raise
        for key in [key for key in self._by_hour if key[0] <= first]:
            del self._by_hour[key]

    def _count(self, is_durable: bool, family: int, count: int) -> None:
        key = (self._hour(), is_durable, family)
        self._by_hour[key] += count
        self._unsaved.add(key)

    def _sum(self, hours: int, families: set[int], is_durable: bool) -> int:
        oldest = self._hour() - hours
        return sum(
            count
            for (hour, durable, family), count in dict(self._by_hour).items()  # changed on another thread
            if hour > oldest and durable is is_durable and family in families
        )

    def _hour(self) -> int:
        return self._clock.now_ms() // _HOUR_MS


def _read_usage(reader: Reader, first_hour: int) -> list[tuple[int, bool, int, int]]:
    rows = reader.execute(
        "SELECT hour, is_durable, family, events FROM event_usage WHERE hour > ?", (first_hour,)
    )
    return [(int(hour), bool(durable), int(family), int(count)) for hour, durable, family, count in rows]


def _write_usage(tx: Transaction, rows: list[tuple[int, bool, int, int]], first_hour: int) -> None:
    tx.execute("DELETE FROM event_usage WHERE hour <= ?", (first_hour,))
    for hour, is_durable, family, count in rows:
        tx.execute(
            "INSERT INTO event_usage (hour, is_durable, family, events) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (hour, is_durable, family) DO UPDATE SET events = excluded.events",
            (hour, int(is_durable), family, count),
        )
