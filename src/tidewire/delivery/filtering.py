"""Filters at delivery: a wire form that does not carry what a subscriber does not want, or a channel does not show.

Because encoded events are shared by all who have the same form, a filter is tried once per event however many
subscribers have it.
"""

from __future__ import annotations

from weakref import WeakValueDictionary

import orjson

from tidewire.delivery.forms import WireForm
from tidewire.events import Event
from tidewire.matching.filters import WantedRecords
from tidewire.schema.codec import EventSchema


class FilteredForm:
    """A wire form of those notifications only that are wanted; use `filtered_form` to share them."""

    __slots__ = ("__weakref__", "_form", "_wanted", "name")

    def __init__(self, form: WireForm, wanted: WantedRecords) -> None:
        self.name = f"{form.name} {wanted!r}"
        self._form = form
        self._wanted = wanted

    def encode(self, event: Event, channel: str, hidden: frozenset[str], schema: EventSchema | None) -> bytes:
        """See `WireForm`."""
        if not self._wanted.passes(orjson.loads(event.payload)):
            return b""
        return self._form.encode(event, channel, hidden, schema)


class LaterForm:
    """A wire form of what follows the beginnings of topics on a channel."""

    __slots__ = ("_after", "_form", "name")

    def __init__(self, form: WireForm, beginnings: tuple[tuple[str, int], ...]) -> None:
        self.name = f"{form.name} after {beginnings!r}"
        self._form = form
        self._after = dict(beginnings)

    def encode(self, event: Event, channel: str, hidden: frozenset[str], schema: EventSchema | None) -> bytes:
        """See `WireForm`."""
        if event.position <= self._after.get(event.topic, 0):
            return b""
        return self._form.encode(event, channel, hidden, schema)


_FORMS: WeakValueDictionary[tuple[str, WantedRecords], FilteredForm] = WeakValueDictionary()


def filtered_form(form: WireForm, wanted: WantedRecords) -> WireForm:
    """The form of the wanted ones; made once for each filter, and kept while a subscription has it."""
    key = (form.name, wanted)
    found = _FORMS.get(key)
    if found is None:
        found = _FORMS[key] = FilteredForm(form, wanted)
    return found
