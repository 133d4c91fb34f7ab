"""A subscription: one channel, one place in the log, one wire form.

Theory of operation. A subscription owns nothing but its position. `take` answers from the ring when the ring
still holds
everything after the position; otherwise it asks the hub for one page of the log and answers from that page
when it has come.
Live is therefore replay whose page is found in memory, and the hand-over from one to the other cannot lose or
repeat an event:
both read strictly after the same position.

A log row is delivered whole. Whenever something may be ready the hub calls `wake`, on the loop; the owner
answers by calling
`take` when it has room. `error`, once set, ends the subscription.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from tidewire.access.principal import Principal
from tidewire.delivery.forms import FormKey, WireForm
from tidewire.delivery.link import ChannelGrant
from tidewire.delivery.ring import EventRing
from tidewire.errors import PlatformError
from tidewire.events import Event

_NOTHING_HIDDEN: frozenset[str] = frozenset()
_LOOKED_AT = 2000  # events in one turn, whether or not this form carries them


class Feed(Protocol):
    """What a subscription asks of its hub."""

    head: int
    ring: EventRing

    def encode(self, event: Event, key: FormKey, form: WireForm) -> bytes:
        """The event's bytes for one form."""

    def fill(self, subscription: Subscription) -> None:
        """Read one page of the log for this subscription, then wake it."""

    def forget(self, subscription: Subscription) -> None:
        """Drop a closed subscription."""

    def wake_later(self, subscription: Subscription) -> None:
        """Wake it after the others have had their turn."""


class Subscription:
    """Made by `Hub.subscribe`. Not safe for use off the loop."""

    __slots__ = (
        "_form",
        "_hub",
        "_keys",
        "_page",
        "_page_through",
        "api_version",
        "channel",
        "error",
        "grant",
        "is_closed",
        "is_filling",
        "is_stale",
        "position",
        "principal",
        "wake",
    )

    def __init__(
        self,
        hub: Feed,
        principal: Principal,
        grant: ChannelGrant,
        api_version: float,
        position: int,
        form: WireForm,
        wake: Callable[[], None],
    ) -> None:
        self._hub = hub
        self._form = form
        self.principal = principal
        self.channel = grant.channel
        self.api_version = api_version
        self.position = position
        self.wake = wake
        self.error: PlatformError | None = None
        self.is_closed = False
        # changed by the hub
        self.is_filling = False
        self.is_stale = False
        self._page: deque[Event] = deque()
        self._page_through = position
        self.grant = grant
        self._keys: dict[str, FormKey] = {}
        self.regrant(grant)

    def regrant(self, grant: ChannelGrant) -> None:
        """Go on under a newer grant. Called by the hub."""
        if grant.sifted or self.grant.sifted or grant.topics != self.grant.topics:
            # What was sifted for older rights, or lacks a topic, is read again.
            self.drop_page()
        self.grant = grant
        hidden = dict(grant.hidden)
        self._keys = {
            topic: (self._form.name, self.channel, hidden.get(topic, _NOTHING_HIDDEN))
            for topic in grant.topics
        }
        self.is_stale = False

    def take(self, max_events: int, max_bytes: int) -> list[bytes]:
        """The next events, encoded, oldest first, moving the position past them.

        Returns at least one event if one is ready, however large; never blocks. An empty list means that
        nothing is ready now:
        `wake` will be called when that may have changed.
        """
        if self.error is not None or self.is_closed or self.is_stale or self.is_filling:
            return []
        out: list[bytes] = []
        size_bytes = looked_at = 0
        while len(out) < max_events and size_bytes < max_bytes:
            if looked_at >= _LOOKED_AT:
                self._hub.wake_later(self)
                break
            wanted = max_events - len(out)
            events = self._next_events(wanted)
            if not events:
                break
            looked_at += len(events)
            for event in events:
                # The key is missing when a new grant no longer covers a topic of an older page.
                key = self._keys.get(event.topic)
                if key is not None:
                    encoded = self._hub.encode(event, key, self._form)
                    if out and size_bytes + len(encoded) > max_bytes:
                        self._give_back(events, event)
                        return out
                    if encoded:
                        out.append(encoded)
                        size_bytes += len(encoded)
                self.position = event.position
            if len(events) < wanted and not self._page and self._page_through <= self.position:
                break  # the ring had no more; asking again would only search it again
        return out

    def reached(self) -> int:
        """The position up to which nothing is left for this subscriber: the log's head when it is caught up."""
        if self.error is None and not (self._page or self.is_filling or self.is_stale):
            ring, topics = self._hub.ring, self.grant.topics
            if ring.covers(topics, self.position) and not ring.read_after(topics, self.position, 1):
                self.position = max(self.position, self._hub.head)
        return self.position

    def offer_page(self, events: tuple[Event, ...], through: int) -> None:
        """Take over a page of the log that the hub has read for us."""
        self._page.extend(events)
        self._page_through = through

    def drop_page(self, through: int | None = None) -> None:
        """Forget what is left of the page, or of the page that went so far; it is read again from the position."""
        if through is None or through == self._page_through:
            self._page.clear()
            self._page_through = self.position

    def end(self, error: PlatformError) -> None:
        """Stop with an error, which the owner reports in its protocol's words."""
        if self.error is None and not self.is_closed:
            self.error = error
            self.wake()

    def close(self) -> None:
        """Stop quietly. Idempotent."""
        if not self.is_closed:
            self.is_closed = True
            self._hub.forget(self)

    def _next_events(self, max_events: int) -> list[Event]:
        if self._page:
            return [self._page.popleft() for _ in range(min(max_events, len(self._page)))]
        if self._page_through > self.position:
            self.position = self._page_through
        ring, topics = self._hub.ring, self.grant.topics
        is_covered = ring.covers(topics, self.position)
        ready = ring.read_after(topics, self.position, max_events) if is_covered else []
        if is_covered and not ready:
            # Caught up: a quiet channel must not fall behind what retention drops of the others.
            self.position = max(self.position, self._hub.head)
        elif not is_covered or self.grant.sifted:
            self._hub.fill(self)
            return []
        return ready

    def _give_back(self, events: list[Event], first_left: Event) -> None:
        # Only a page must be refilled; the ring is read again from the position.
        if events and self._page_through > self.position:
            left = [e for e in events if e.position >= first_left.position]
            self._page.extendleft(reversed(left))
