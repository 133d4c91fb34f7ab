"""A subscription: one channel, one place in the log, one wire form.

Theory of operation. A subscription owns nothing but its position. `take` answers from the ring when the ring
still holds everything after the position; otherwise it asks the hub for one page of the log and answers from
that page when it has come. Live is therefore replay whose page is found in memory, and the hand-over from one
to the other cannot lose or repeat an event: both read strictly after the same position.

A log row is delivered whole. Whenever something may be ready the hub calls `wake`, on the loop; the owner
answers by calling `take` when it has room. `error`, once set, ends the subscription.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from tidewire.access.principal import Principal
from tidewire.capture.generic import is_meant_for
from tidewire.delivery.forms import WireForm
from tidewire.delivery.link import ChannelGrant
from tidewire.delivery.ring import EventRing
from tidewire.delivery.shared_view import Run, SharedView
from tidewire.delivery.usage import UsageCounter
from tidewire.errors import PlatformError
from tidewire.events import Event, Family

_AT_A_TIME = 100  # events that are encoded before it shows how many of them are too many bytes
_LOOKED_AT = 2000  # events in one turn, whether or not this form carries them


class Feed(Protocol):
    """What a subscription asks of its hub."""

    head: int
    ring: EventRing

    def encode_run(self, events: Sequence[Event], view: SharedView, *, is_shared: bool) -> list[bytes]:
        """The bytes of each event for a view, none of those that it does not show; unless shared, nobody
        else's will do.
        """

    def view(self, grant: ChannelGrant, form: WireForm) -> SharedView:
        """What all subscriptions of this grant and form share."""

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
        "_page",
        "_page_through",
        "_view",
        "api_version",
        "channel",
        "error",
        "grant",
        "is_closed",
        "is_filling",
        "is_stale",
        "position",
        "principal",
        "usage_counter",
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
        self.usage_counter: UsageCounter | None = (
            None  # of those whose deliveries count against an allocation
        )
        self.is_closed = False
        # changed by the hub
        self.is_filling = False
        self.is_stale = False
        self._page: tuple[Event, ...] = ()
        self._page_through = position
        self._view = hub.view(grant, form)
        self.grant = self._view.grant

    def regrant(self, grant: ChannelGrant) -> None:
        """Go on under a newer grant. Called by the hub."""
        if grant.needs_core or self.grant.needs_core or grant.topics != self.grant.topics:
            # What was prepared for older rights, or lacks a topic, is read again.
            self.drop_page()
        self._view = self._hub.view(grant, self._form)
        self.grant = self._view.grant
        self.is_stale = False

    def take(self, max_events: int, max_bytes: int) -> list[bytes]:
        """The next events, encoded, oldest first, moving the position past them.

        Returns at least one event if one is ready, however large; never blocks. An empty list means that
        nothing is ready now: `wake` will be called when that may have changed.
        """
        if self.error is not None or self.is_closed or self.is_stale or self.is_filling:
            return []
        hub, view, page = self._hub, self._view, self._page
        if not page:
            if self.position >= hub.head:
                return []
            run = view.run
            if (
                run is not None
                and run.after == self.position
                and run.head == hub.head
                and self._page_through <= self.position
                and len(run.encoded) <= max_events
                and run.size_bytes <= max_bytes
            ):
                self.position = run.head
                return self._metered(list(run.encoded))
        started = self.position
        out: list[bytes] = []
        size_bytes = looked_at = 0
        while len(out) < max_events and size_bytes < max_bytes:
            if looked_at >= _LOOKED_AT:
                hub.wake_later(self)
                break
            wanted = min(max_events - len(out), _AT_A_TIME)
            is_live = not self._page
            events = self._next_events(wanted)
            if not events:
                break
            looked_at += len(events)
            encoded = self._encode(events)
            run_bytes = sum(map(len, encoded))
            if size_bytes + run_bytes <= max_bytes:
                out += filter(None, encoded)
                size_bytes += run_bytes
                self.position = events[-1].position
            else:
                for event, each in zip(events, encoded, strict=True):
                    is_whole = event.position != self.position  # what shares a position is never parted
                    if out and is_whole and size_bytes + len(each) > max_bytes:
                        self._give_back(events, event)
                        return self._metered(out)
                    if each:
                        out.append(each)
                        size_bytes += len(each)
                    self.position = event.position
            if len(events) < wanted and not self._page and self._page_through <= self.position:
                if is_live:
                    # The ring had no more; asking again would only search it again.
                    self.position = max(self.position, hub.head)
                    if not page and self._page_through <= started:
                        view.offer(Run(started, hub.head, tuple(out), size_bytes))
                    break
                if out:
                    break
                # Nobody wakes a reader of whose page nothing was wanted: go on behind it.
        return self._metered(out)

    def reached(self) -> int:
        """The position up to which nothing is left for this subscriber: the log's head when it is caught up."""
        if self.error is None and not (self._page or self.is_filling or self.is_stale):
            ring, topics = self._hub.ring, self.grant.topics
            if ring.covers(topics, self.position) and not ring.read_after(topics, self.position, 1):
                self.position = max(self.position, self._hub.head)
        return self.position

    def offer_page(self, events: tuple[Event, ...], through: int) -> None:
        """Take over a page of the log that the hub has read for us."""
        self._page = events
        self._page_through = through

    def drop_page(self, through: int | None = None) -> None:
        """Forget what is left of the page, or of the page that went so far; it is read again from the
        position.
        """
        if through is None or through == self._page_through:
            self._page = ()
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
            if self.usage_counter is not None:
                self.usage_counter.close()
            self._hub.forget(self)

    def _encode(self, events: Sequence[Event]) -> list[bytes]:
        hub, view, is_shared = self._hub, self._view, not self.grant.enriched
        if self.grant.family is not Family.GENERIC:
            return hub.encode_run(events, view, is_shared=is_shared)
        user_id = self.principal.user_id
        return [
            hub.encode_run((event,), view, is_shared=is_shared)[0] if is_meant_for(event, user_id) else b""
            for event in events
        ]

    def _next_events(self, max_events: int) -> Sequence[Event]:
        page = self._page
        if page:
            count = min(max_events, len(page))
            while count < len(page) and page[count].position == page[count - 1].position:
                count += 1
            self._page = page[count:]
            return page[:count]
        if self._page_through > self.position:
            self.position = self._page_through
        ring, topics = self._hub.ring, self.grant.topics
        is_covered = ring.covers(topics, self.position)
        ready = ring.read_after(topics, self.position, max_events) if is_covered else []
        if is_covered and not ready:
            # Caught up: a quiet channel must not fall behind what retention drops of the others.
            self.position = max(self.position, self._hub.head)
        elif not is_covered or self.grant.needs_core:
            self._hub.fill(self)
            return []
        return ready

    def _metered(self, taken: list[bytes]) -> list[bytes]:
        if taken and self.usage_counter is not None:
            self.usage_counter.count(len(taken))
        return taken

    def _give_back(self, events: Sequence[Event], first_left: Event) -> None:
        # Only a page must be refilled; the ring is read again from the position.
        if events and self._page_through > self.position:
            left = [e for e in events if e.position >= first_left.position]
            self._page = (*left, *self._page)
