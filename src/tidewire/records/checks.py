"""What a value must be in the light of other records: alone in a unique field, or the id of a living record."""

from __future__ import annotations

from functools import lru_cache

from tidewire.errors import DuplicateValue, ReferenceMissing, ReferenceWrongType
from tidewire.events import Value
from tidewire.records.table import try_find_by_value, try_read_row
from tidewire.schema.catalog import Catalog
from tidewire.schema.model import Field, FieldType, ObjectType
from tidewire.storage.store import Transaction


def check_unique(tx: Transaction, obj: ObjectType, field: Field, value: Value, record_id: str) -> None:
    """Raise DuplicateValue if another living record holds the value."""
    holder = try_find_by_value(tx, obj, field, value)
    if holder is not None and holder != record_id:
        raise DuplicateValue(
            f"duplicate value found: {field.name} duplicates value on record with id: {holder[:15]}",
            fields=[],
            record_id=holder,
        )


def check_reference(tx: Transaction, catalog: Catalog, field: Field, target_id: str, record_id: str) -> None:
    """Raise ReferenceWrongType or ReferenceMissing unless the lookup's target lives, or is the record itself."""
    target = catalog.try_object_of_id(target_id)
    if target is None or target.name not in field.reference_to:
        raise ReferenceWrongType(
            f"{field.label}: id value of incorrect type: {target_id}", fields=[field.name]
        )
    if target_id == record_id:
        return
    row = try_read_row(tx, target, target_id)
    if row is None or row.get("IsDeleted"):
        raise ReferenceMissing("invalid cross reference id", fields=[field.name])


@lru_cache(maxsize=1024)
def lookups(obj: ObjectType) -> tuple[Field, ...]:
    """The fields that point at other records, but for those the platform keeps about users."""
    return tuple(f for f in obj.stored_fields if f.type is FieldType.REFERENCE and not f.is_system)


@lru_cache(maxsize=1024)
def unique_fields(obj: ObjectType) -> tuple[Field, ...]:
    """The fields that hold each value once."""
    return tuple(f for f in obj.stored_fields if f.unique)
