"""Wire forms: how one protocol spells an event.

Front ends supply them; delivery encodes each event once per form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol
from weakref import WeakValueDictionary

import orjson

from tidewire.events import Event
from tidewire.matching.filters import NotificationFilter
from tidewire.schema.codec import EventSchema

_ENTRY_OVERHEAD_BYTES = 250  # a rough price of the objects around the bytes, which may be none

FormKey = tuple[str, str, frozenset[str]]
"""Form name, channel, hidden fields: events with the same key share their encoded bytes."""


class WireForm(Protocol):
    """One protocol's spelling of events. Two forms with the same `name` must encode alike."""

    name: str

    def encode(self, event: Event, channel: str, hidden: frozenset[str], schema: EventSchema | None) -> bytes:
        """The event as this protocol sends it on `channel`, without the `hidden` fields.

        Called on the loop, once per event and key, so it must be quick and must not raise. `schema` is set
        for events that have a schema id. Empty bytes mean that this form does not carry the event at all.
        """


class EncodedEvents:
    """A bounded memory of encoded events. One per hub.

    What is used goes into the younger of two halves. When that is full it becomes the older one, and what was
    in the older one and not used again is forgotten.
    """

    def __init__(self, budget_bytes: int) -> None:
        self._half_bytes = budget_bytes // 2
        self._young_bytes = 0
        self._young: dict[FormKey, dict[int, bytes]] = {}
        self._old: dict[FormKey, dict[int, bytes]] = {}

    def __len__(self) -> int:
        return sum(len(kept) for half in (self._young, self._old) for kept in half.values())

    def encode_run(
        self,
        events: Sequence[Event],
        keys: Mapping[str, FormKey],
        form: WireForm,
        schemas: Mapping[str, EventSchema],
    ) -> list[bytes]:
        """The bytes of events by the keys of their topics, from memory where some subscriber had them before;
        none of an event whose topic has no key.
        """
        encoded: list[bytes] = []
        young = old = _NONE_KEPT
        topic = channel = ""
        hidden: frozenset[str] = frozenset()
        for event in events:
            position = event.position
            if event.topic != topic:
                key = keys.get(event.topic)
                if key is None:
                    encoded.append(b"")
                    continue
                topic = event.topic
                _, channel, hidden = key
                young = self._young.setdefault(key, {})
                old = self._old.get(key, _NONE_KEPT)
            found = young.get(position)
            if found is None:
                found = old.get(position)
                if found is None:
                    found = form.encode(event, channel, hidden, schemas.get(event.schema_id))
                young[position] = found
                self._young_bytes += len(found) + _ENTRY_OVERHEAD_BYTES
                if self._young_bytes > self._half_bytes:
                    self._old, self._young, self._young_bytes = self._young, {}, 0
                    topic = ""
            encoded.append(found)
        return encoded


_NONE_KEPT: dict[int, bytes] = {}  # never added to


class FilteredForm:
    """A wire form of those notifications only that are wanted; use `filtered_form` to share them."""

    __slots__ = ("__weakref__", "_form", "_wanted", "name")

    def __init__(self, form: WireForm, wanted: NotificationFilter) -> None:
        self.name = f"{form.name} {wanted!r}"
        self._form = form
        self._wanted = wanted

    def encode(self, event: Event, channel: str, hidden: frozenset[str], schema: EventSchema | None) -> bytes:
        """See `WireForm`."""
        if not self._wanted.passes(orjson.loads(event.payload)):
            return b""
        return self._form.encode(event, channel, hidden, schema)


class FormAfterStart:
    """A wire form of what follows the start_positions of topics on a channel."""

    __slots__ = ("_after", "_form", "name")

    def __init__(self, form: WireForm, start_positions: tuple[tuple[str, int], ...]) -> None:
        self.name = f"{form.name} after {start_positions!r}"
        self._form = form
        self._after = dict(start_positions)

    def encode(self, event: Event, channel: str, hidden: frozenset[str], schema: EventSchema | None) -> bytes:
        """See `WireForm`."""
        if event.position <= self._after.get(event.topic, 0):
            return b""
        return self._form.encode(event, channel, hidden, schema)


_FORMS: WeakValueDictionary[tuple[str, NotificationFilter], FilteredForm] = WeakValueDictionary()


def filtered_form(form: WireForm, wanted: NotificationFilter) -> WireForm:
    """The form of the wanted ones; made once for each filter, and kept while a subscription has it."""
    key = (form.name, wanted)
    found = _FORMS.get(key)
    if found is None:
        found = _FORMS[key] = FilteredForm(form, wanted)
    return found
