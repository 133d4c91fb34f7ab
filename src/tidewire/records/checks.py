"""Checks of values against other records: unique fields, and lookups of living records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

from tidewire.errors import DuplicateValue, ReferenceMissing, ReferenceWrongType
from tidewire.events import Value
from tidewire.records.table import try_find_by_value, try_read_row
from tidewire.schema.catalog import Catalog
from tidewire.schema.field_types import FieldType
from tidewire.schema.model import Field, ObjectType
from tidewire.schema.text_keys import fold_key
from tidewire.storage.store import Reader, Transaction

ReferenceWatch = Callable[[ObjectType, Field, ObjectType, str], None]
"""Called with each new lookup: the object, its field, the target object and id. May raise."""


class KeyChecks:
    """The checks of one unit of work.

    What the unit wrote or found before is not read again: records of a batch share their lookups' targets,
    and buffered inserts need not be flushed for the next check.
    """

    def __init__(self, tx: Transaction, catalog: Catalog) -> None:
        self._tx = tx
        self._catalog = catalog
        self._written: dict[str, Mapping[str, Value] | None] = {}
        self._living: set[str] = set()
        self._holders: dict[tuple[str, str, Value], str] = {}
        self.watch: ReferenceWatch | None = None

    def track(self, obj: ObjectType, record_id: str, after: Mapping[str, Value] | None) -> None:
        """Remember a write; None for a record that is deleted or purged."""
        if after is None and record_id not in self._written:
            self._living.discard(record_id)  # from now on the store says what it is
            return
        self._written[record_id] = after
        if after is not None:
            for field in unique_fields(obj):
                if after.get(field.name) is not None:
                    self._holders[obj.name, field.name, _key(field, after[field.name])] = record_id

    def forget(self) -> None:
        """Forget all: everything written so far is in the store."""
        self._written.clear()
        self._living.clear()
        self._holders.clear()

    def check(self, obj: ObjectType, fresh: Mapping[str, Value], record_id: str) -> None:
        """Check the new values of a record. Raises DuplicateValue, ReferenceWrongType or ReferenceMissing."""
        checked = _checked(obj)
        for name, value in fresh.items():
            field = checked.get(name)
            if field is None or value is None:
                continue
            if field.unique:
                self._check_unique(obj, field, value, record_id)
            if field.type is FieldType.REFERENCE and not field.is_system:
                self._check_reference(obj, field, str(value), record_id)

    def _check_unique(self, obj: ObjectType, field: Field, value: Value, record_id: str) -> None:
        key = _key(field, value)
        holder = self._holders.get((obj.name, field.name, key))
        if holder is not None and holder != record_id:
            held = self._written.get(holder)
            if held is not None and held.get(field.name) is not None and _key(field, held[field.name]) == key:
                raise _duplicate(field, holder)
        # Rows that wait are among the holders, so the store is asked past them.
        check_unique(self._tx.stored, obj, field, value, record_id)

    def _check_reference(self, obj: ObjectType, field: Field, target_id: str, record_id: str) -> None:
        target = self._catalog.try_object_of_id(target_id)
        if target is None or target.name not in field.reference_to:
            raise ReferenceWrongType(
                f"{field.label}: id value of incorrect type: {target_id}", fields=[field.name]
            )
        if target_id != record_id and not self._is_living(target, target_id):
            raise ReferenceMissing("invalid cross reference id", fields=[field.name])
        if self.watch is not None and target_id not in self._written:
            self.watch(obj, field, target, target_id)

    def _is_living(self, obj: ObjectType, record_id: str) -> bool:
        if record_id in self._written:
            return self._written[record_id] is not None
        if record_id not in self._living:
            row = try_read_row(self._tx.stored, obj, record_id)
            if row is None or row.get("IsDeleted"):
                return False
            self._living.add(record_id)
        return True


def check_unique(
    reader: Reader | Transaction, obj: ObjectType, field: Field, value: Value, record_id: str
) -> None:
    """Raise DuplicateValue if another living record holds the value."""
    holder = try_find_by_value(reader, obj, field, value)
    if holder is not None and holder != record_id:
        raise _duplicate(field, holder)


def _duplicate(field: Field, holder: str) -> DuplicateValue:
    return DuplicateValue(
        f"duplicate value found: {field.name} duplicates value on record with id: {holder[:15]}",
        fields=[],
        record_id=holder,
    )


def _key(field: Field, value: Value) -> Value:
    return fold_key(value, case_sensitive=field.case_sensitive) if isinstance(value, str) else value


@lru_cache(maxsize=1024)
def _checked(obj: ObjectType) -> dict[str, Field]:
    return {f.name: f for f in (*lookups(obj), *unique_fields(obj))}


@lru_cache(maxsize=1024)
def lookups(obj: ObjectType) -> tuple[Field, ...]:
    """Return the fields that point at other records, but for those the platform keeps about users."""
    return tuple(f for f in obj.stored_fields if f.type is FieldType.REFERENCE and not f.is_system)


@lru_cache(maxsize=1024)
def unique_fields(obj: ObjectType) -> tuple[Field, ...]:
    """Return the fields that hold each value once."""
    return tuple(f for f in obj.stored_fields if f.unique)
