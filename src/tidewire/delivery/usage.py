"""Usage of one edge, reported to the core, whose allocations cover the clients of all edges.

Deliveries are added up here and reported twice a second. A client is reported when it connects and when it
leaves. Every 15 seconds the edge lists all its clients, so that the core can forget those of an edge that
died.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from tidewire.delivery.link import Clients
from tidewire.delivery.link_values import Delivered, StreamState
from tidewire.events import CommittedBatch, Family
from tidewire.matching.channel_values import ChannelGrant
from tidewire.telemetry import TIMINGS, timer_s
from tidewire.tracing import PRODUCER, add_span

REPORT_EVERY_S = 0.5
_CLIENTS_EVERY = 30  # reports
_STATES_EVERY = 4
_LATENCY_COMMITS = 256  # a client that is further behind reads the log, so its latency is not ours


class UsageCounter:
    """Counts the deliveries of one subscription against the org's allocations."""

    __slots__ = ("_key", "_usage", "_where")

    def __init__(self, usage: EdgeUsage, key: tuple[bool, Family, bool], where: tuple[str, str]) -> None:
        self._usage = usage
        self._key = key
        self._where = where

    def count(self, events: int) -> None:
        """Count delivered events."""
        self._usage.delivered[self._key] += events

    def close(self) -> None:
        """Release the subscription."""
        self._usage.release(self._where)


class EdgeUsage:
    """One per hub. Front ends add themselves with `add_source`."""

    def __init__(self, link: Clients) -> None:
        self._link = link
        self._open: Counter[tuple[str, str]] = Counter()
        self._unlimited: set[tuple[str, str]] = set()
        self._reports = 0
        self.delivered: Counter[tuple[bool, Family, bool]] = Counter()
        self._sources: list[tuple[Callable[[], Iterable[str]], Callable[[], tuple[StreamState, ...]]]] = []
        self._had_states = False
        self.commit_latency = CommitLatency()
        self.generic_subscribers = GenericSubscribers(link)

    def add_source(
        self, clients: Callable[[], Iterable[str]], states: Callable[[], tuple[StreamState, ...]]
    ) -> None:
        """Add a front end: the ids of its connected clients, and how far its subscriptions are."""
        self._sources.append((clients, states))

    async def admit_client(self, client_id: str, front_end: str, user_id: str, *, is_durable: bool) -> int:
        """Count a client. Raises LimitExceeded.

        Returns how many other clients of the user at this front end must end to make room for this one.
        """
        return await self._link.admit_client(client_id, front_end, user_id, is_durable)

    def release_client(self, client_id: str) -> None:
        """Release a client that has left."""
        self._link.release_client(client_id)

    async def admit(self, client_id: str, channel: str, family: Family, *, is_durable: bool) -> UsageCounter:
        """Count a client's subscription; one that replaces another is counted already.

        Raises LimitExceeded.
        """
        where = (client_id, channel)
        self._open[where] += 1
        if self._open[where] == 1:
            try:
                if not await self._link.admit_subscription(client_id, channel, family, is_durable):
                    self._unlimited.add(where)
            except BaseException:
                self._open[where] -= 1
                if not self._open[where]:
                    del self._open[where]
                raise
        return UsageCounter(self, (is_durable, family, where not in self._unlimited), where)

    def release(self, where: tuple[str, str]) -> None:
        """Release a client's subscription. Called by its `UsageCounter`."""
        self._open[where] -= 1
        if self._open[where] <= 0:
            del self._open[where]
            self._unlimited.discard(where)
            self._link.release_subscription(*where)

    def report(self) -> None:
        """Report to the core what was delivered since the last report; states and clients less often."""
        if self.delivered:
            delivered, self.delivered = self.delivered, Counter()
            self._link.count_delivered(
                tuple(
                    Delivered(is_durable, family, count, is_allotted)
                    for (is_durable, family, is_allotted), count in delivered.items()
                )
            )
        self._reports += 1
        if self._reports % _STATES_EVERY == 0:
            states = tuple(state for _, list_states in self._sources for state in list_states())
            if states or self._had_states:  # once more after the last one, so that the core forgets it
                self._link.report_streams(states)
            self._had_states = bool(states)
        if self._reports % _CLIENTS_EVERY == 0:
            clients = frozenset(client for list_clients, _ in self._sources for client in list_clients())
            if clients:
                self._link.renew_clients(clients)


class CommitLatency:
    """Measures the time from a commit's arrival at this edge to its delivery. One per hub."""

    def __init__(self) -> None:
        self._by_head: dict[int, tuple[float, tuple[tuple[int, str], ...]]] = {}

    def add_commit(self, batch: CommittedBatch) -> None:
        """Start the clock of a commit."""
        if not batch.events:
            return
        self._by_head[batch.head] = (timer_s(), batch.traces)
        if len(self._by_head) > _LATENCY_COMMITS:
            del self._by_head[next(iter(self._by_head))]

    def observe_delivery(self, front_end: str, through: int, clients: int = 1) -> None:
        """Record that `clients` clients of a front end were sent everything up to position `through`."""
        found = self._by_head.get(through)
        if found is None:
            return
        arrived_s, traces = found
        TIMINGS[front_end + ".commit_delivered"].observe(timer_s() - arrived_s, clients)
        for _, parent in traces:
            add_span(parent, f"deliver {front_end}", PRODUCER, arrived_s, {"tidewire.clients": clients})


class GenericSubscribers:
    """Counts each user's subscriptions to generic channels, and reports the first and the last to the core.

    The core answers those who push events to such a channel with the users who listen. When an edge dies, the
    core drops everything the edge reported.
    """

    def __init__(self, link: Clients) -> None:
        self._link = link
        self._counts: Counter[tuple[str, str]] = Counter()

    async def add(self, grant: ChannelGrant, user_id: str) -> None:
        """Count a subscription. Call `remove` for it even if this raises."""
        for key in _generic_keys(grant, user_id):
            self._counts[key] += 1
            if self._counts[key] == 1:
                await self._link.begin_listening(*key)

    def remove(self, grant: ChannelGrant, user_id: str) -> None:
        """Uncount a subscription."""
        for key in _generic_keys(grant, user_id):
            self._counts[key] -= 1
            if self._counts[key] <= 0:
                del self._counts[key]
                self._link.end_listening(*key)


def _generic_keys(grant: ChannelGrant, user_id: str) -> list[tuple[str, str]]:
    return [(topic, user_id) for topic in grant.topics] if grant.family is Family.GENERIC else []
