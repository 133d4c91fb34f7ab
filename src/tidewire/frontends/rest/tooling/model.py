"""Objects of the Tooling API: a type without a table, and a function that builds its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tidewire.access.grants import Grants
from tidewire.gate.metadata.registry import object_id
from tidewire.records.table import read_all_rows
from tidewire.schema.catalog import Catalog
from tidewire.schema.field_types import FieldType
from tidewire.schema.fields import checkbox, datetime, text
from tidewire.schema.layout import identity_fields
from tidewire.schema.model import EventType, Field, ObjectType
from tidewire.storage.store import Reader

Row = dict[str, object]
"""Stored values by field name; FullName and Metadata are added only to a single row."""

FULL_NAME = "FullName"
METADATA = "Metadata"


@dataclass(frozen=True, slots=True)
class Seen:
    """The org as one caller sees it; `catalog` has only the objects and events that the caller may know."""

    catalog: Catalog
    grants: Grants
    reader: Reader

    def fields_of(self, obj: ObjectType) -> list[Field]:
        """Return the fields of an object that the caller may see."""
        return [f for f in obj.fields if self.grants.can_read_field(obj, f)]


@dataclass(frozen=True, slots=True)
class ToolingObject:
    """One object. `key` is the field by which others refer to its rows.

    `complete` adds a row's full name and metadata, for objects that have them. With `is_reference`, an unknown id is
    reported as a wrong reference, not as a missing resource.
    """

    type: ObjectType
    rows: Callable[[Seen], Sequence[Row]]
    key: str = "Id"
    complete: Callable[[Seen, Row], Mapping[str, object]] | None = None
    is_reference: bool = False

    @property
    def kind(self) -> str:
        """The type of component that a write changes, empty for read-only objects."""
        return self.type.name if self.type.createable else ""


def tooling_type(
    name: str, label: str, plural: str, prefix: str, fields: Sequence[Field], *, is_writeable: bool = False
) -> ObjectType:
    """Return the type of a tooling object; its fields follow the id."""
    return ObjectType(
        name=name,
        label=label,
        label_plural=plural,
        key_prefix=prefix,
        fields=(*identity_fields(has_is_deleted=False), *fields),
        createable=is_writeable,
        updateable=is_writeable,
        deletable=is_writeable,
        is_setup=True,
    )


def text_fields(*names: str) -> list[Field]:
    """Return text fields."""
    return [text(name, name, 255) for name in names]


def checkbox_fields(*names: str) -> list[Field]:
    """Return checkbox fields."""
    return [checkbox(name, name) for name in names]


def metadata_fields() -> list[Field]:
    """Return the full name and metadata of a component, which cannot be filtered or sorted."""
    return [
        Field(name=FULL_NAME, label="Full Name", type=FieldType.TEXT, length=255),
        Field(name=METADATA, label="Metadata", type=FieldType.LONG_TEXT),
    ]


def audit_fields() -> list[Field]:
    """Return the audit fields of a component."""
    return [
        datetime("CreatedDate", "Created Date"),
        *text_fields("CreatedById"),
        datetime("LastModifiedDate", "Last Modified Date"),
        *text_fields("LastModifiedById"),
    ]


def audit_values(seen: Seen) -> Row:
    """Return the values of `audit_fields`: those of the org, because types do not record theirs."""
    organization = seen.catalog.try_object("Organization")
    rows = [] if organization is None else read_all_rows(seen.reader, organization)
    org = rows[0] if rows else {}
    return {
        name: org.get(name) for name in ("CreatedDate", "CreatedById", "LastModifiedDate", "LastModifiedById")
    }


def durable_id(each: ObjectType | EventType) -> str:
    """Return the key of an entity in other objects: a standard object's name, else an id."""
    return object_id(each) if isinstance(each, EventType) or each.custom else each.name


def link(name: str, target: str, relationship: str, children: str = "") -> Field:
    """Return a field that holds the key of another tooling object's row."""
    return Field(
        name=name,
        label=name,
        type=FieldType.TEXT,
        length=255,
        reference_to=(target,),
        relationship_name=relationship,
        child_relationship_name=children,
    )
