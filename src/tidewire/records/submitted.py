"""Submitted values of a write: which fields it may set, and the defaults of a new record."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from tidewire.errors import FieldNotWriteable, FieldUnknown
from tidewire.events import Value
from tidewire.records.references import IsSeen, find_referenced, parse_reference, try_lookup
from tidewire.schema.catalog import Catalog
from tidewire.schema.field_types import FieldType
from tidewire.schema.model import Field, ObjectType
from tidewire.schema.values import parse_value
from tidewire.storage.store import Transaction

ID_NAMES = frozenset({"Id", "id", "ID", "iD"})
"""The id's name in any letter case."""


def parse_submitted(
    tx: Transaction,
    catalog: Catalog,
    obj: ObjectType,
    values: Mapping[str, object],
    *,
    is_create: bool,
    is_seen: IsSeen | None,
) -> dict[str, Value]:
    """Parse the values of a create or update; return them by the fields' own names.

    A lookup that is set by a key of its target finds only records for which `is_seen` is true. Raises
    FieldUnknown, FieldNotWriteable, or the error of a value.
    """
    parsed: dict[str, Value] = {}
    refused: list[str] = []
    settable = _settable(obj, is_create)
    for name, raw in values.items():
        if name in settable:
            parsed[name] = parse_value(settable[name], raw)
            continue
        if name.lower() == "attributes":  # the record's own label, which clients send back to us
            continue
        field = obj.try_field(name)
        lookup = None if field is not None else try_lookup(obj, name)
        known = field or lookup
        if known is None:
            raise FieldUnknown(
                f"No such column '{name}' on sobject of type {obj.name}", field=name, entity=obj.name
            )
        if not (known.createable if is_create else known.updateable) or not known.column:
            refused.append(known.name)
        elif lookup is not None and raw is not None:
            reference = parse_reference(catalog, lookup, name, raw)
            parsed[lookup.name] = find_referenced(tx, reference, lookup, is_seen)
        else:
            parsed[known.name] = parse_value(known, raw)
    if refused:
        raise not_writeable(refused)
    return parsed


def not_writeable(names: list[str]) -> FieldNotWriteable:
    """Return the error for a write to fields that the call or the user cannot set."""
    return FieldNotWriteable(
        f"Unable to create/update fields: {', '.join(names)}. Please check the security settings of this"
        " field and verify that it is read/write for your profile or permission set.",
        fields=names,
    )


@lru_cache(maxsize=1024)
def defaults(obj: ObjectType) -> dict[str, Value]:
    """Return a new record's values before anybody sets one. Shared: copy before changing."""
    row: dict[str, Value] = {}
    for field in obj.stored_fields:
        if field.default is not None:
            row[field.name] = field.default
        else:
            row[field.name] = False if field.type is FieldType.CHECKBOX else None
    return row


@lru_cache(maxsize=1024)
def required_names(obj: ObjectType) -> tuple[str, ...]:
    """Return the fields that a create must set."""
    return tuple(f.name for f in obj.stored_fields if f.required and f.type is not FieldType.AUTO_NUMBER)


@lru_cache(maxsize=2048)
def _settable(obj: ObjectType, is_create: bool) -> dict[str, Field]:
    """Return the fields that a create, or an update, may set by their own names."""
    return {f.name: f for f in obj.stored_fields if (f.createable if is_create else f.updateable)}


@lru_cache(maxsize=1024)
def stamp_names(obj: ObjectType, is_edit: bool, is_create: bool) -> tuple[list[str], list[str]]:
    """Return the audit fields that a write sets: dates, and users."""
    dates, people = ["SystemModstamp"], []
    if is_edit:
        dates.append("LastModifiedDate")
        people.append("LastModifiedById")
    if is_create:
        dates.append("CreatedDate")
        people.append("CreatedById")
    return [n for n in dates if obj.try_field(n)], [n for n in people if obj.try_field(n)]


@lru_cache(maxsize=1024)
def auto_numbers(obj: ObjectType) -> tuple[Field, ...]:
    """Return the fields that count the records."""
    return tuple(f for f in obj.fields if f.type is FieldType.AUTO_NUMBER)
