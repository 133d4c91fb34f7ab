"""A subscription: one channel, one position in the log, one wire form.

Theory of operation. A subscription owns only its position. `take` reads from the ring if the ring still has
everything after the position. Otherwise it asks the hub for one page of the log, and reads from that page
once it is there. Live delivery is thus replay whose page is in memory. Switching between the two can neither
lose nor repeat an event, because both read strictly after the same position.

A log row is delivered whole: enrichment may turn one row into several events with the same position, and a
client that resumed between them would miss some. The hub calls `wake`, on the loop, whenever events may be
ready; the owner calls `take` when it has room. Once `error` is set, the subscription has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from tidewire.access.principal import Principal
from tidewire.capture.generic import is_meant_for
from tidewire.delivery.forms import WireForm
from tidewire.delivery.ring import EventRing
from tidewire.delivery.shared_view import Run, SharedView
from tidewire.delivery.usage import UsageCounter
from tidewire.errors import PlatformError
from tidewire.events import Event, Family
from tidewire.matching.channel_values import ChannelGrant

_ENCODE_BATCH = 100  # events encoded at once; the byte limit is checked after each batch
_MAX_EXAMINED = (
    2000  # events per call of `take`, delivered or filtered out, so that it does not block the loop
)


class Feed(Protocol):
    """The hub, as subscriptions see it."""

    head: int
    ring: EventRing

    def encode_run(self, events: Sequence[Event], view: SharedView, *, is_shared: bool) -> list[bytes]:
        """Encode events for a view; empty bytes for those it does not show.

        `is_shared` allows cached results.
        """

    def view(self, grant: ChannelGrant, form: WireForm) -> SharedView:
        """Return the state that all subscriptions with this grant and form share."""

    def fill(self, subscription: Subscription) -> None:
        """Read one page of the log for this subscription, then wake it."""

    def forget(self, subscription: Subscription) -> None:
        """Remove a closed subscription."""

    def wake_later(self, subscription: Subscription) -> None:
        """Wake it in the next turn of the loop."""


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
        self.usage_counter: UsageCounter | None = None  # set if its deliveries count against an allocation
        self.is_closed = False
        # changed by the hub
        self.is_filling = False  # a page is being read
        self.is_stale = False  # the grant is being renewed; delivers nothing meanwhile
        # The rest of a page, and the position up to which the page shows everything, which may be past its
        # last event.
        self._page: tuple[Event, ...] = ()
        self._page_through = position
        self._view = hub.view(grant, form)
        self.grant = self._view.grant

    def renew_grant(self, grant: ChannelGrant) -> None:
        """Continue with a newer grant. Called by the hub."""
        if grant.needs_core or self.grant.needs_core or grant.topics != self.grant.topics:
            # The page was filtered for the old rights, or lacks a topic: read it again.
            self.drop_page()
        self._view = self._hub.view(grant, self._form)
        self.grant = self._view.grant
        self.is_stale = False

    def take(self, max_events: int, max_bytes: int) -> list[bytes]:
        """Return the next events, encoded, oldest first, and move the position past them.

        Returns at least one event if one is ready, however large. Never blocks. An empty list means that
        nothing is ready: `wake` will be called when that may have changed.
        """
        if self.error is not None or self.is_closed or self.is_stale or self.is_filling:
            return []
        hub, view, page = self._hub, self._view, self._page
        if not page:
            if self.position >= hub.head:
                return []
            # The fast path of a commit with many equal subscribers: another one has encoded this very run. It
            # must fit whole, because it is shared and cannot be split.
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
                return self._counted(list(run.encoded))
        started = self.position
        out: list[bytes] = []
        size_bytes = examined = 0
        while len(out) < max_events and size_bytes < max_bytes:
            if examined >= _MAX_EXAMINED:
                hub.wake_later(self)  # continue after the others have had their turn
                break
            wanted = min(max_events - len(out), _ENCODE_BATCH)
            is_live = not self._page
            events = self._next_events(wanted)
            if not events:
                break
            examined += len(events)
            encoded = self._encode(events)
            run_bytes = sum(map(len, encoded))
            if size_bytes + run_bytes <= max_bytes:
                # Empty bytes are events that the form does not carry; the position moves past them too.
                out += filter(None, encoded)
                size_bytes += run_bytes
                self.position = events[-1].position
            else:
                for event, each in zip(events, encoded, strict=True):
                    is_new_row = event.position != self.position  # events of one row are never split
                    if out and is_new_row and size_bytes + len(each) > max_bytes:
                        self._return_events(events, event)
                        return self._counted(out)
                    if each:
                        out.append(each)
                        size_bytes += len(each)
                    self.position = event.position
            if len(events) < wanted and not self._page and self._page_through <= self.position:
                if is_live:
                    # The ring has nothing more up to the head. Offer the run to the others if it is complete:
                    # it began at a live position, without the rest of a page before it.
                    self.position = max(self.position, hub.head)
                    if not page and self._page_through <= started:
                        view.offer(Run(started, hub.head, tuple(out), size_bytes))
                    break
                if out:
                    break
                # Everything in the page was filtered out: no commit may ever wake us, so continue behind it.
        return self._counted(out)

    def reached(self) -> int:
        """Return the position up to which nothing is left to deliver; the head of the log if caught up."""
        if self.error is None and not (self._page or self.is_filling or self.is_stale):
            ring, topics = self._hub.ring, self.grant.topics
            if ring.covers(topics, self.position) and not ring.read_after(topics, self.position, 1):
                self.position = max(self.position, self._hub.head)
        return self.position

    def offer_page(self, events: tuple[Event, ...], through: int) -> None:
        """Set the page of the log that the hub has read. Called by the hub."""
        self._page = events
        self._page_through = through

    def drop_page(self, through: int | None = None) -> None:
        """Drop the rest of the page; it is read again from the position.

        With `through`, only if it is still the page that ends there: timers drop a page that may be gone by
        then.
        """
        if through is None or through == self._page_through:
            self._page = ()
            self._page_through = self.position

    def end(self, error: PlatformError) -> None:
        """End with an error, which the owner reports in the form of its protocol."""
        if self.error is None and not self.is_closed:
            self.error = error
            self.wake()

    def close(self) -> None:
        """End without an error. Idempotent."""
        if not self.is_closed:
            self.is_closed = True
            if self.usage_counter is not None:
                self.usage_counter.close()
            self._hub.forget(self)

    def _encode(self, events: Sequence[Event]) -> list[bytes]:
        hub, view, is_shared = self._hub, self._view, not self.grant.enriched
        if self.grant.family is not Family.GENERIC:
            return hub.encode_run(events, view, is_shared=is_shared)
        # A generic event can name its receivers, so each one is checked for this user.
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
                count += 1  # keep the events of one row together
            self._page = page[count:]
            return page[:count]
        if self._page_through > self.position:  # the page is used up: nothing is left up to its end
            self.position = self._page_through
        ring, topics = self._hub.ring, self.grant.topics
        is_covered = ring.covers(topics, self.position)
        ready = ring.read_after(topics, self.position, max_events) if is_covered else []
        if is_covered and not ready:
            # Caught up. Without this, the position of a quiet channel would fall behind the trimmed part of
            # the log.
            self.position = max(self.position, self._hub.head)
        elif (
            not is_covered or self.grant.needs_core
        ):  # filters and enrichment need the core, even for live events
            self._hub.fill(self)
            return []
        return ready

    def _counted(self, taken: list[bytes]) -> list[bytes]:
        if taken and self.usage_counter is not None:
            self.usage_counter.count(len(taken))
        return taken

    def _return_events(self, events: Sequence[Event], first_left: Event) -> None:
        # Only events of a page must be put back; the ring is read again from the position.
        if events and self._page_through > self.position:
            left = [e for e in events if e.position >= first_left.position]
            self._page = (*left, *self._page)
