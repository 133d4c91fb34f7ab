"""What subscriptions of equal grant and form have in common: the keys of their events, and the newest run of
them.

When a commit wakes a thousand subscribers who stand at the same position and see the same, the first of them
looks into the ring and encodes; the others find the outcome here.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakValueDictionary

from tidewire.delivery.forms import FormAfterStart, FormKey, WireForm, filtered_form
from tidewire.delivery.link import ChannelGrant
from tidewire.events import Family

_NOTHING_HIDDEN: frozenset[str] = frozenset()
_RUN_BYTES = 4096  # there may be as many views as subscriptions


@dataclass(frozen=True, slots=True)
class Run:
    """Everything that the ring held after one position, when the log ended at `head`."""

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
        # What the core prepares, and what is meant for some users only, is each subscriber's own.
        self._is_shareable = not grant.needs_core and grant.family is not Family.GENERIC
        self.run: Run | None = None

    def offer(self, run: Run) -> None:
        """Keep the newest run for the others, if it is small and would be theirs too."""
        if self._is_shareable and run.size_bytes <= _RUN_BYTES:
            self.run = run


class SharedViews:
    """The views of one hub, each kept while a subscription has it."""

    __slots__ = ("_views",)

    def __init__(self) -> None:
        self._views: WeakValueDictionary[tuple[str, ChannelGrant], SharedView] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._views)

    def view(self, grant: ChannelGrant, form: WireForm) -> SharedView:
        """The view of a grant in a form; equal ones are the same."""
        key = (form.name, grant)
        found = self._views.get(key)
        if found is None:
            found = self._views[key] = SharedView(grant, form)
        return found
