"""What an edge tells its core of its clients, so that the org's allocations count them all.

Deliveries are added up here and reported together, a few times a second; clients are reported one by one as
they come and go, and mentioned all together from time to time, so that those of an edge that died are
forgotten.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from tidewire.delivery.arrivals import Arrivals
from tidewire.delivery.link import CoreLink
from tidewire.delivery.link_values import Delivered, StreamState
from tidewire.events import Family

REPORT_EVERY_S = 0.5
_MENTION_EVERY = 30  # reports
_STATES_EVERY = 4


class Meter:
    """One subscription as the allocations see it. `count` is for whoever takes events out of it."""

    __slots__ = ("_key", "_usage", "_where")

    def __init__(self, usage: EdgeUsage, key: tuple[bool, Family, bool], where: tuple[str, str]) -> None:
        self._usage = usage
        self._key = key
        self._where = where

    def count(self, events: int) -> None:
        """So many have been taken."""
        self._usage.delivered[self._key] += events

    def close(self) -> None:
        """The subscription has ended."""
        self._usage.release(self._where)


class EdgeUsage:
    """One per hub. `clients` says who is connected by Bayeux, `streams` who by the Pub/Sub API; `client_states` and
    `states` how far the subscriptions of either have come.
    """

    def __init__(self, link: CoreLink) -> None:
        self._link = link
        self._held: Counter[tuple[str, str]] = Counter()
        self._not_allotted: set[tuple[str, str]] = set()
        self._reports = 0
        self.delivered: Counter[tuple[bool, Family, bool]] = Counter()
        self.clients: Callable[[], Iterable[str]] = tuple
        self.streams: Callable[[], Iterable[str]] = tuple
        self.states: Callable[[], tuple[StreamState, ...]] = tuple
        self.client_states: Callable[[], tuple[StreamState, ...]] = tuple
        self._has_told = False
        self.arrivals = Arrivals()

    async def admit_client(self, client_id: str, *, is_durable: bool, user_id: str = "") -> int:
        """Count a client; of a Bayeux session, tells how many others of its user must go. Raises LimitExceeded."""
        return await self._link.admit_client(client_id, is_durable, user_id)

    def release_client(self, client_id: str) -> None:
        """A client has gone."""
        self._link.release_client(client_id)

    async def admit(self, client_id: str, channel: str, family: Family, *, is_durable: bool) -> Meter:
        """Count a client's subscription. Raises LimitExceeded. One that replaces another is not asked of."""
        where = (client_id, channel)
        self._held[where] += 1
        if self._held[where] == 1:
            try:
                if not await self._link.admit_subscription(client_id, channel, family, is_durable):
                    self._not_allotted.add(where)
            except BaseException:
                self._held[where] -= 1
                if not self._held[where]:
                    del self._held[where]
                raise
        return Meter(self, (is_durable, family, where not in self._not_allotted), where)

    def release(self, where: tuple[str, str]) -> None:
        """A client's subscription has ended. Called by its meter."""
        self._held[where] -= 1
        if self._held[where] <= 0:
            del self._held[where]
            self._not_allotted.discard(where)
            self._link.release_subscription(*where)

    def report(self) -> None:
        """Tell core what was delivered since the last time."""
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
            states = self.states() + self.client_states()
            if states or self._has_told:
                self._link.report_streams(states)
            self._has_told = bool(states)
        if self._reports % _MENTION_EVERY == 0:
            clients = frozenset((*self.clients(), *self.streams()))
            if clients:
                self._link.keep_clients(clients)
