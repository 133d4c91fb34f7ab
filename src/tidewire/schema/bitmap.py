"""Field bitmaps of change event headers: which fields were changed, nulled or sent as a difference.

Form: `0x` and upper-case hex for the top-level fields, then `<index>-0x<hex>` for the parts of each compound
field, whose own bit stays clear. Bit i is the field at position i, counted from the least significant; the
hex has whole bytes and no more of them than needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from tidewire.errors import FieldUnknown, PayloadInvalid
from tidewire.schema.codec import EventSchema

_ENTRY = re.compile(r"(?:([0-9]{1,5})-)?0x([0-9A-Fa-f]+)")


def encode_bitmap(schema: EventSchema, names: Iterable[str]) -> list[str]:
    """Return the bitmap of these fields, named like `Phone` or `BillingAddress.City`. Raises FieldUnknown."""
    top = 0
    nested: dict[int, int] = {}
    for name in names:
        field, _, component = name.partition(".")
        index = _position(schema, schema.field_names, field, name)
        if component:
            bit = _position(schema, schema.component_names(field), component, name)
            nested[index] = nested.get(index, 0) | 1 << bit
        else:
            top |= 1 << index
    entries = [_render_bits(top)] if top else []
    entries += [f"{index}-{_render_bits(bits)}" for index, bits in sorted(nested.items())]
    return entries


def decode_bitmap(schema: EventSchema, entries: Iterable[str]) -> list[str]:
    """Return the fields of a bitmap, top-level ones first, each group in schema order. Raises PayloadInvalid."""
    wanted = tuple(entries)
    return list(_decode(schema, wanted)) if wanted else []


# Cached: updates of one kind of record mostly change the same few fields.
@lru_cache(maxsize=4096)
def _decode(schema: EventSchema, entries: tuple[str, ...]) -> tuple[str, ...]:
    names: list[str] = []
    for entry in entries:
        match = _ENTRY.fullmatch(entry)
        if match is None:
            raise PayloadInvalid(f"Not a field bitmap: {entry[:64]}")
        parent, digits = match.groups()
        if parent is None:
            names += _names_of(schema.field_names, digits)
            continue
        if int(parent) >= len(schema.field_names):
            raise PayloadInvalid(
                f"A field bitmap of {schema.name} names field {parent}, which does not exist."
            )
        field = schema.field_names[int(parent)]
        names += [f"{field}.{part}" for part in _names_of(schema.component_names(field), digits)]
    return tuple(names)


def _position(schema: EventSchema, names: Sequence[str], wanted: str, shown: str) -> int:
    try:
        return names.index(wanted)
    except ValueError:
        raise FieldUnknown(f"{schema.name} has no field {shown}.", field=shown, entity=schema.name) from None


def _render_bits(bits: int) -> str:
    size = (bits.bit_length() + 7) // 8
    return "0x" + bits.to_bytes(size, "big").hex().upper()


def _names_of(names: Sequence[str], digits: str) -> list[str]:
    bits = int(digits, 16)
    if bits >> len(names):
        raise PayloadInvalid("A field bitmap has bits for fields that do not exist.")
    return [name for i, name in enumerate(names) if bits >> i & 1]
