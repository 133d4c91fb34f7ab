"""Change events cut to what a reader may see, straight in their stored bytes: what stays is copied as it is."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from tidewire.schema.bitmap import decode_bitmap, encode_bitmap
from tidewire.schema.codec import EventSchema
from tidewire.schema.header_matching import has_usual_header, match_header, try_common_header

_HEADER = "ChangeEventHeader"
_BITMAPS = ("nulledFields", "diffFields", "changedFields")
_BITMAPS_KEPT = 1024  # per cut
_NOT_KEPT = b""  # no bitmaps are as short
_TEXT = '["null", "string"]'
_NO_PARTS: frozenset[str] = frozenset()
_count_nulls = re.compile(rb"\0*").match


def redact_fields(schema: EventSchema, payload: bytes, hidden: frozenset[str]) -> bytes:
    """The change event without the `hidden` fields: their values null, their bits cleared in the header.

    A hidden name is a field's, a whole compound's, or a compound's component as `component_field` names it.
    """
    return _cut(schema, hidden).apply(payload)


def component_field(compound: str, part: str) -> str:
    """The field that is a part of a compound: `BillingCity` is `City` of `BillingAddress`,
    `Site__Latitude__s` is `Latitude` of `Site__c`, and a person's `LastName` keeps its own name in `Name`.
    """
    if compound.endswith("__c"):
        return f"{compound.removesuffix('__c')}__{part}__s"
    return compound.removesuffix("Address") + part if compound.endswith("Address") else part


class _Cut:
    """Takes the same fields out of events of one schema."""

    def __init__(self, schema: EventSchema, hidden: frozenset[str]) -> None:
        self._schema = schema
        self._read_header = schema.field_readers[0].read
        self._is_usual = has_usual_header(schema)
        self._bitmaps: dict[tuple[bytes, bytes, bytes], bytes | None] = {}
        self._marks: set[str] = set()  # every name that hidden fields may have in a bitmap
        self._whole: set[int] = set()
        self._parts: dict[int, frozenset[str]] = {}
        for place, field in enumerate(schema.field_names[1:]):
            components = schema.component_names(field)
            if field in hidden:
                self._whole.add(place)
                self._marks.add(field)
                self._marks.update(f"{field}.{name}" for name in components)
            elif cut := frozenset(name for name in components if component_field(field, name) in hidden):
                self._parts[place] = cut
                self._marks.update(f"{field}.{name}" for name in cut)
        self._end = max((*self._whole, *self._parts), default=-1) + 1

    def apply(self, payload: bytes) -> bytes:
        """The event without what is hidden."""
        if not self._marks:
            return payload
        pieces: list[bytes] = []
        p = self._try_cut_usual_header(payload, pieces)
        if p is None:
            header, p = self._read_header(payload, 0)
            pieces.append(self._cut_header(header))
        self._cut_body(payload, p, pieces)
        return b"".join(pieces)

    def _try_cut_usual_header(self, payload: bytes, pieces: list[bytes]) -> int | None:
        """Add the header and tell where it ends, if its shape is known: then its bitmaps alone are replaced."""
        found = match_header(payload) if self._is_usual else None
        if found is None:
            return None
        shared = found[1], found[3], found[9]
        at, end = found.span(9)
        # Asked for once: another thread may forget them all in between.
        bitmaps = self._bitmaps.get(shared, _NOT_KEPT)
        if bitmaps == _NOT_KEPT:
            if len(self._bitmaps) >= _BITMAPS_KEPT:
                self._bitmaps.clear()
            # Only the bitmaps differ, and they come last.
            is_known = try_common_header(*shared) is not None
            header = self._read_header(payload, 0)[0] if is_known else None
            bitmaps = None if header is None else self._cut_header(header)[at:]
            self._bitmaps[shared] = bitmaps
        if bitmaps is None:
            return None
        pieces += payload[:at], bitmaps
        return end

    def _cut_header(self, header: dict[str, Any]) -> bytes:
        for bitmap in _BITMAPS:
            if header[bitmap]:
                names = [
                    name for name in decode_bitmap(self._schema, header[bitmap]) if name not in self._marks
                ]
                header[bitmap] = encode_bitmap(self._schema, names)
        return self._schema.encode_field(_HEADER, header)

    def _cut_body(self, payload: bytes, p: int, pieces: list[bytes]) -> None:
        """Add what is behind the header, which ends at `p`."""
        fields = self._schema.field_readers
        copied_to = p
        place = 0
        while True:
            # A null is one byte of zero, so a run of such bytes is as many fields to pass over.
            start = _count_nulls(payload, p).end()  # type: ignore[union-attr]  # it matches everywhere
            place += start - p
            if place >= self._end:
                break
            name, spelled, _, read, _ = fields[place + 1]
            value = None
            if spelled == _TEXT and payload[start] == 2 and not payload[start + 1] & 129:
                p = start + 2 + (payload[start + 1] >> 1)
            else:
                value, p = read(payload, start)
            cut = self._parts.get(place, _NO_PARTS)
            if place in self._whole:
                pieces += payload[copied_to:start], b"\0"
                copied_to = p
            elif cut and isinstance(value, dict):  # the Name of a business account is a text
                kept = {part: None if part in cut else held for part, held in value.items()}
                # An address whose every visible part is null says no more than no address.
                shown = kept if any(held is not None for held in kept.values()) else None
                pieces += payload[copied_to:start], self._schema.encode_field(name, shown)
                copied_to = p
            place += 1
        pieces.append(payload[copied_to:])


_cut = lru_cache(maxsize=256)(_Cut)
