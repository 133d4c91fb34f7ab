"""State shared by subscriptions with equal grant and form: cache keys, and the newest encoded run of events.

When a commit wakes a thousand equal subscribers at the same position, the first one reads the ring and
encodes; the others take its result from here.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakValueDictionary

from tidewire.delivery.forms import FormAfterStart, FormKey, WireForm, filtered_form
from tidewire.events import Family
from tidewire.matching.channel_values import ChannelGrant

_NOTHING_HIDDEN: frozenset[str] = frozenset()
_RUN_BYTES = 4096  # there can be as many views as subscriptions, so runs must be small


@dataclass(frozen=True, slots=True)
class Run:
    """All events after one position, encoded, when the log ended at `head`."""

    after: int
    head: int
    encoded: tuple[bytes, ...]
    size_bytes: int


class SharedView:
    """One grant in one wire form. Made by `SharedViews`."""

    __slots__ = ("__weakref__", "_is_shareable", "form", "grant", "keys", "run")

    def __init__(self, grant: ChannelGrant, form: WireForm) -> None:
        self.grant = grant
        self.form = (
            form if grant.notification_filter is None else filtered_form(form, grant.notification_filter)
        )
        if grant.start_positions:
            self.form = FormAfterStart(self.form, grant.start_positions)
        hidden = dict(grant.hidden)
        self.keys: dict[str, FormKey] = {
            topic: (self.form.name, grant.channel, hidden.get(topic, _NOTHING_HIDDEN))
            for topic in grant.topics
        }
        # Pages that the core filters or enriches, and events for some users only, differ between subscribers.
        self._is_shareable = not grant.needs_core and grant.family is not Family.GENERIC
        self.run: Run | None = None

    def offer(self, run: Run) -> None:
        """Keep a run for the other subscribers, if it is small and the same for all."""
        if self._is_shareable and run.size_bytes <= _RUN_BYTES:
            self.run = run


class SharedViews:
    """The views of one hub, each kept while a subscription uses it."""

    __slots__ = ("_views",)

    def __init__(self) -> None:
        self._views: WeakValueDictionary[tuple[str, ChannelGrant], SharedView] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._views)

    def view(self, grant: ChannelGrant, form: WireForm) -> SharedView:
        """Return the view of a grant in a form; equal ones are the same object."""
        key = (form.name, grant)
        found = self._views.get(key)
        if found is None:
            found = self._views[key] = SharedView(grant, form)
        return found
