"""How objects are laid out in tables, and the fields that all of them have.

Stored rows outlive the code, so the layout only ever grows. Columns are numbered in the order in which
the fields stand; a standard field added later, wherever it stands in the order, is given its `column` by
hand, past the last one in use. Fields that an org adds to a standard object start at FIRST_ADDED_COLUMN, and
its own objects at table FIRST_CUSTOM_TABLE, so that neither collides with a later release.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tidewire.errors import DefinitionInvalid
from tidewire.schema.field_types import FieldType
from tidewire.schema.fields import datetime, derived, lookup, system, text
from tidewire.schema.model import Field, ObjectType

FIRST_ADDED_COLUMN = 201
FIRST_CUSTOM_TABLE = 1001


def identity_fields(*, has_is_deleted: bool = True) -> tuple[Field, ...]:
    """Return Id and, for objects whose records can be deleted, IsDeleted."""
    record_id = system("Id", "Record ID", FieldType.ID, length=18, in_change_events=False)
    deleted = system("IsDeleted", "Deleted", FieldType.CHECKBOX, default=False, in_change_events=False)
    return (record_id, deleted) if has_is_deleted else (record_id,)


def owner_field(*owners: str) -> Field:
    """Return OwnerId, by default the creator; `owners` are Group and User where queues may own records."""
    return lookup("OwnerId", "Owner ID", owners or "User", "Owner", delete_constraint="Restrict")


def record_type_field() -> Field:
    """Return the record type, for objects that can have several.

    It comes last: events have it only in orgs with record types, and the other fields must keep their places.
    """
    return lookup("RecordTypeId", "Record Type ID", "RecordType", "RecordType", delete_constraint="Restrict")


def viewed_fields() -> tuple[Field, ...]:
    """Return the two fields that say when the caller last used the record."""
    return (
        derived(datetime("LastViewedDate", "Last Viewed Date")),
        derived(datetime("LastReferencedDate", "Last Referenced Date")),
    )


def _kept(field: Field) -> Field:
    return replace(field, is_system=True, createable=False, updateable=False)


def audit_fields() -> tuple[Field, ...]:
    """Return the fields that say who created and last changed the record, and when."""
    return (
        system("CreatedDate", "Created Date", FieldType.DATETIME),
        _kept(lookup("CreatedById", "Created By ID", "User", "CreatedBy")),
        system("LastModifiedDate", "Last Modified Date", FieldType.DATETIME),
        _kept(lookup("LastModifiedById", "Last Modified By ID", "User", "LastModifiedBy")),
        system("SystemModstamp", "System Modstamp", FieldType.DATETIME, in_change_events=False),
    )


def with_columns(fields: Iterable[Field], first: int = 1) -> tuple[Field, ...]:
    """Assign the next column to each stored field that has none."""
    placed = []
    number = first
    for f in fields:
        if f.column or not f.type.row.has_column:
            placed.append(f)
        elif f.type is FieldType.ID:
            placed.append(replace(f, column="id"))
        else:
            placed.append(replace(f, column=f"c{number}"))
            number += 1
    return tuple(placed)


def added_from(first_column: int, *fields: Field) -> tuple[Field, ...]:
    """Return standard fields that were added after an object's first release, with columns from this number on."""
    return with_columns(fields, first_column)


def standard_object(
    table_number: int,
    key_prefix: str,
    name: str,
    fields: Iterable[Field],
    *,
    label: str = "",
    plural: str = "",
    is_setup: bool = False,
    createable: bool = True,
    updateable: bool = True,
    deletable: bool = True,
    named_by: str = "",
    id_lookup: str = "",
) -> ObjectType:
    """Return a standard object with its table and columns; its plural is by default its label with an s."""
    return ObjectType(
        name=name,
        label=label or name,
        label_plural=plural or f"{label or name}s",
        key_prefix=key_prefix,
        fields=with_columns(fields),
        table=f"o{table_number}_0",
        is_setup=is_setup,
        createable=createable,
        updateable=updateable,
        deletable=deletable,
        named_by=named_by,
        id_lookup=id_lookup,
    )


def _next_column(obj: ObjectType) -> int:
    used = [int(f.column[1:]) for f in obj.fields if f.column and f.column != "id"]
    floor = 1 if obj.custom else FIRST_ADDED_COLUMN
    return max([floor, *(number + 1 for number in used)])


def add_fields(obj: ObjectType, fields: Iterable[Field]) -> ObjectType:
    """Return the object with these custom fields after its own, each with the next free column.

    A field that has a column keeps it, as one read from a stored definition does. Formulas are not in change
    events; the fields they read are. Raises DefinitionInvalid when a name or a column is taken.
    """
    added = tuple(
        replace(f, custom=True, in_change_events=f.in_change_events and not f.formula) for f in fields
    )
    known = replace(obj, fields=obj.fields + tuple(f for f in added if f.column))
    merged = obj.fields + with_columns(added, _next_column(known))
    names: set[str] = set()
    columns: set[str] = set()
    for f in merged:
        if f.name.lower() in names:
            raise DefinitionInvalid(f"{obj.name} has two fields named {f.name}", path=f"{obj.name}.{f.name}")
        if f.column and f.column in columns:
            raise DefinitionInvalid(f"{obj.name}.{f.name} shares its column", path=f"{obj.name}.{f.name}")
        names.add(f.name.lower())
        columns.add(f.column)
    return replace(obj, fields=merged)


def custom_object(
    name: str,
    label: str,
    label_plural: str,
    key_prefix: str,
    table_number: int,
    name_field: Field | None,
    fields: Iterable[Field],
) -> ObjectType:
    """Return an org's own object: the fields every custom object has, then these.

    Without `name_field`, Name is Text(80). A detail has no owner of its own; its master's owner owns it.
    """
    fields = tuple(fields)
    owner = () if any(f.is_master_detail for f in fields) else (owner_field("Group", "User"),)
    named = name_field or text("Name", f"{label} Name", 80)
    own = ObjectType(
        name=name,
        label=label,
        label_plural=label_plural,
        key_prefix=key_prefix,
        fields=with_columns(
            (*identity_fields(), *owner, replace(named, name="Name", custom=False), *audit_fields())
        ),
        table=f"o{table_number}_0",
        custom=True,
    )
    return add_fields(own, fields)
