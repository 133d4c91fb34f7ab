"""Redacts change events for readers who may not see every field, on the stored bytes.

Nothing is decoded that need not be: visible fields are copied as they are, hidden ones become the byte of a
null, and of the header only the three bitmaps at its end change. A subscriber with hidden fields then costs a
copy per event, not a decode and an encode.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from tidewire.schema.bitmap import decode_bitmap, encode_bitmap
from tidewire.schema.codec import EventSchema
from tidewire.schema.header_matching import has_usual_header, match_header, try_common_header

_HEADER = "ChangeEventHeader"
_BITMAPS = ("nulledFields", "diffFields", "changedFields")
_CACHED_BITMAPS = 1024  # per redactor
_NOT_CACHED = b""  # no bitmaps are as short: None says that a header cannot be redacted by its pattern
_TEXT = '["null", "string"]'
_NO_PARTS: frozenset[str] = frozenset()
_count_nulls = re.compile(rb"\0*").match


def redact_fields(schema: EventSchema, payload: bytes, hidden: frozenset[str]) -> bytes:
    """Return the change event with the `hidden` fields null and their bits cleared in the header.

    A hidden name is that of a field, of a whole compound, or of a component as `component_field` names it.
    """
    return _redactor(schema, hidden).apply(payload)


def component_field(compound: str, part: str) -> str:
    """Return the name of the field that is a part of a compound.

    `BillingCity` is `City` of `BillingAddress`, `Site__Latitude__s` is `Latitude` of `Site__c`, and a person's
    `LastName` keeps its own name in `Name`.
    """
    if compound.endswith("__c"):
        return f"{compound.removesuffix('__c')}__{part}__s"
    return compound.removesuffix("Address") + part if compound.endswith("Address") else part


class _Redactor:
    """Redacts the same fields in events of one schema. Threads share it: only the cache of bitmaps changes."""

    def __init__(self, schema: EventSchema, hidden: frozenset[str]) -> None:
        self._schema = schema
        self._read_header = schema.field_readers[0].read
        self._is_usual = has_usual_header(schema)
        self._bitmaps: dict[tuple[bytes, bytes, bytes], bytes | None] = {}
        self._bits: set[str] = set()  # every name that hidden fields may have in a bitmap
        self._whole: set[int] = set()  # places of hidden fields, counted from behind the header
        self._parts: dict[int, frozenset[str]] = {}  # places of compounds, with their hidden components
        for place, field in enumerate(schema.field_names[1:]):
            components = schema.component_names(field)
            if field in hidden:
                self._whole.add(place)
                self._bits.add(field)
                self._bits.update(f"{field}.{name}" for name in components)
            elif names := frozenset(name for name in components if component_field(field, name) in hidden):
                self._parts[place] = names
                self._bits.update(f"{field}.{name}" for name in names)
        # Behind the last hidden field the rest is copied without looking at it.
        self._end = max((*self._whole, *self._parts), default=-1) + 1

    def apply(self, payload: bytes) -> bytes:
        """Return the redacted event."""
        if not self._bits:  # none of the hidden fields is in this schema
            return payload
        pieces: list[bytes] = []
        p = self._try_redact_usual_header(payload, pieces)
        if p is None:
            header, p = self._read_header(payload, 0)
            pieces.append(self._redact_header(header))
        self._redact_body(payload, p, pieces)
        return b"".join(pieces)

    def _try_redact_usual_header(self, payload: bytes, pieces: list[bytes]) -> int | None:
        """Add the redacted header and return where it ended, or None if it is not of the usual shape."""
        found = match_header(payload) if self._is_usual else None
        if found is None:
            return None
        # Headers that share entity, change type and bitmaps share the redacted bitmaps too: events of one kind of
        # update differ in ids and times only.
        shared = found[1], found[3], found[9]
        at, end = found.span(9)
        # One lookup, not a test and a lookup: another thread may clear the cache in between.
        bitmaps = self._bitmaps.get(shared, _NOT_CACHED)
        if bitmaps == _NOT_CACHED:
            if len(self._bitmaps) >= _CACHED_BITMAPS:
                self._bitmaps.clear()
            # The pattern only looked at the bytes; their lengths must say the same before it is trusted. The bitmaps
            # come last, so the redacted header is equal up to where they begin.
            is_known = try_common_header(*shared) is not None
            header = self._read_header(payload, 0)[0] if is_known else None
            bitmaps = None if header is None else self._redact_header(header)[at:]
            self._bitmaps[shared] = bitmaps
        if bitmaps is None:
            return None
        pieces += payload[:at], bitmaps
        return end

    def _redact_header(self, header: dict[str, Any]) -> bytes:
        for bitmap in _BITMAPS:
            if header[bitmap]:
                names = [
                    name for name in decode_bitmap(self._schema, header[bitmap]) if name not in self._bits
                ]
                header[bitmap] = encode_bitmap(self._schema, names)
        return self._schema.encode_field(_HEADER, header)

    def _redact_body(self, payload: bytes, p: int, pieces: list[bytes]) -> None:
        """Add the redacted fields that follow the header, which ends at `p`."""
        fields = self._schema.field_readers
        # Bytes up to here are in `pieces`; visible fields are copied in one slice with their neighbours.
        copied_to = p
        place = 0
        while True:
            # A null is one zero byte, so a run of zeros is as many fields to skip.
            start = _count_nulls(payload, p).end()  # type: ignore[union-attr]  # it matches everywhere
            place += start - p
            if place >= self._end:
                break
            name, spelled, _, read, _ = fields[place + 1]
            value = None
            # A text of fewer than 64 bytes: branch 1 (byte 2), then an even byte that is twice its length. It is
            # skipped without being decoded; 129 are the bits of a longer or negative length.
            if spelled == _TEXT and payload[start] == 2 and not payload[start + 1] & 129:
                p = start + 2 + (payload[start + 1] >> 1)
            else:
                value, p = read(payload, start)
            hidden_parts = self._parts.get(place, _NO_PARTS)
            if place in self._whole:
                pieces += payload[copied_to:start], b"\0"
                copied_to = p
            elif hidden_parts and isinstance(value, dict):  # the Name of a business account is a text
                kept = {part: None if part in hidden_parts else held for part, held in value.items()}
                # A compound without any visible part becomes null: the record itself would tell that there is one.
                shown = kept if any(held is not None for held in kept.values()) else None
                pieces += payload[copied_to:start], self._schema.encode_field(name, shown)
                copied_to = p
            place += 1
        pieces.append(payload[copied_to:])


# By schema and hidden fields: users of one profile share both.
_redactor = lru_cache(maxsize=256)(_Redactor)
