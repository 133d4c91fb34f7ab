"""Upserts of one request that share an external id: it is ambiguous which should win, so all of them fail."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import replace

from tidewire.errors import DuplicateValue
from tidewire.gate.requests import Upsert
from tidewire.ids import try_normalise_id
from tidewire.schema.catalog import Catalog
from tidewire.schema.field_types import DOUBLE_TYPES, FieldType
from tidewire.schema.model import Field


def reject_duplicate_keys(catalog: Catalog, upserts: Sequence[Upsert]) -> list[Upsert]:
    """Return the upserts, with a rejection for each whose key occurs twice; rows without a key fail later."""
    places: dict[Hashable, list[int]] = defaultdict(list)
    names: dict[int, str] = {}
    for place, upsert in enumerate(upserts):
        obj = catalog.try_object(upsert.entity)
        field = None if obj is None else obj.try_field(upsert.field)
        if obj is not None and field is not None and upsert.value not in (None, ""):
            names[place] = field.name
            places[obj.name, _compared(field, upsert.value)].append(place)
    marked = list(upserts)
    for same in places.values():
        for place in same if len(same) > 1 else ():
            shown = str(upserts[place].value)[:80]
            error = DuplicateValue(
                f"Duplicate external id specified: {shown}", fields=[names[place]], external_id=shown
            )
            marked[place] = replace(upserts[place], rejection=error)
    return marked


def _compared(field: Field, value: object) -> Hashable:
    """Normalise a key about as the store compares it."""
    text = str(value).strip()
    if field.type is FieldType.ID:
        return try_normalise_id(text) or text
    if field.type in DOUBLE_TYPES:
        try:
            return float(text)
        except ValueError:
            return text
    return text if field.case_sensitive else text.casefold()
