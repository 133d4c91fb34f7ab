"""Tells the core who listens to generic channels: it is asked by those who push events there.

The core hears of a user's first subscription to a channel through this edge and of the end of the last one, and
of nothing in between. When an edge dies the core drops all that it was told by it.
"""

from __future__ import annotations

from collections import Counter

from tidewire.delivery.link import ChannelGrant, CoreLink
from tidewire.events import Family


class Listening:
    """How many subscriptions each user has to each generic channel, on one edge."""

    def __init__(self, link: CoreLink) -> None:
        self._link = link
        self._counts: Counter[tuple[str, str]] = Counter()

    async def begin(self, grant: ChannelGrant, user_id: str) -> None:
        """Count a subscription, which `end` is called for whether or not this raises."""
        for key in _keys(grant, user_id):
            self._counts[key] += 1
            if self._counts[key] == 1:
                await self._link.begin_listening(*key)

    def end(self, grant: ChannelGrant, user_id: str) -> None:
        """Take back what was counted for a subscription."""
        for key in _keys(grant, user_id):
            self._counts[key] -= 1
            if self._counts[key] <= 0:
                del self._counts[key]
                self._link.end_listening(*key)


def _keys(grant: ChannelGrant, user_id: str) -> list[tuple[str, str]]:
    return [(topic, user_id) for topic in grant.topics] if grant.family is Family.GENERIC else []
