"""Wire forms: how a protocol encodes events.

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

_ENTRY_OVERHEAD_BYTES = 250  # estimated size of the objects around the bytes

FormKey = tuple[str, str, frozenset[str]]
"""Form name, channel, hidden fields: events with the same key share their encoded bytes."""


class WireForm(Protocol):
    """The encoding of events in one protocol. Two forms with the same `name` must encode alike."""

    name: str

    def encode(self, event: Event, channel: str, hidden: frozenset[str], schema: EventSchema | None) -> bytes:
        """Encode an event for `channel`, without the `hidden` fields.

        Called on the loop, once per event and key, so it must be quick and must not raise. `schema` is set
        for events that have a schema id. Empty bytes mean that this form does not carry the event at all.
        """


class EncodedEvents:
    """A bounded cache of encoded events. One per hub.

    Entries that are used go into the younger of two generations. When that is full it becomes the older one,
    and the entries of the previous older one that were not used again are dropped. That is close to LRU at a
    fraction of its cost.
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
        """Encode events by the keys of their topics, from the cache if possible; b"" if a topic has no key."""
        encoded: list[bytes] = []
        young = old = _EMPTY
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
                old = self._old.get(key, _EMPTY)
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


_EMPTY: dict[int, bytes] = {}  # never added to


class FilteredForm:
    """A wire form that omits notifications which a filter rejects; `filtered_form` shares them.

    Encoded events are shared by all subscribers with the same form, so a filter runs once per event however
    many subscribers have it.
    """

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
    """A wire form that omits events up to the start position of their topic on the channel."""

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
    """Return the filtered form; equal filters share one while a subscription uses it."""
    key = (form.name, wanted)
    found = _FORMS.get(key)
    if found is None:
        found = _FORMS[key] = FilteredForm(form, wanted)
    return found
