"""Wire forms: how one protocol spells an event. Front ends supply them; delivery encodes each event once per
form.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tidewire.events import Event
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
        for events that
        have a schema id. Empty bytes mean that this form does not carry the event at all.
        """


class EncodedEvents:
    """A bounded memory of encoded events, least recently used out first. One per hub."""

    def __init__(self, budget_bytes: int) -> None:
        self._budget_bytes = budget_bytes
        self._size_bytes = 0
        self._entries: OrderedDict[tuple[int, FormKey], bytes] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def encode(
        self,
        event: Event,
        key: FormKey,
        form: WireForm,
        schema: EventSchema | None,
        *,
        is_shared: bool = True,
    ) -> bytes:
        """The event's bytes for `key`, from memory if some subscriber had them before. An event that is not
        shared is one subscriber's alone.
        """
        if not is_shared:
            return form.encode(event, key[1], key[2], schema)
        slot = (event.position, key)
        found = self._entries.get(slot)
        if found is not None:
            self._entries.move_to_end(slot)
            return found
        encoded = form.encode(event, key[1], key[2], schema)
        self._entries[slot] = encoded
        self._size_bytes += len(encoded) + _ENTRY_OVERHEAD_BYTES
        while self._size_bytes > self._budget_bytes and len(self._entries) > 1:
            _, dropped = self._entries.popitem(last=False)
            self._size_bytes -= len(dropped) + _ENTRY_OVERHEAD_BYTES
        return encoded

    def try_recall(self, events: Sequence[Event], keys: Mapping[str, FormKey]) -> list[bytes] | None:
        """The bytes of shared events by the keys of their topics, if memory has them all."""
        slots = [(event.position, keys.get(event.topic)) for event in events]
        entries: OrderedDict[Any, bytes] = self._entries
        found = [entries.get(slot, b"") for slot in slots]
        if not all(found):
            return None
        if self._size_bytes * 2 > self._budget_bytes:
            # Only when somebody has to go soon does it matter who was used last.
            for slot in slots:
                entries.move_to_end(slot)
        return found
