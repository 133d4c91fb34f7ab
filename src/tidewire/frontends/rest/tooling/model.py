"""What an object of the Tooling API is: a type without a table, and where its rows come from."""

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
"""Values by field name, as fields store them; FullName and Metadata are added only to a row that is alone."""

FULL_NAME = "FullName"
METADATA = "Metadata"


@dataclass(frozen=True, slots=True)
class Seen:
    """What one caller sees of the org: `catalog` has only the objects and events that the caller may know of."""

    catalog: Catalog
    grants: Grants
    reader: Reader

    def fields_of(self, obj: ObjectType) -> list[Field]:
        """The fields of an object that the caller may see."""
        return [f for f in obj.fields if self.grants.can_read_field(obj, f)]


@dataclass(frozen=True, slots=True)
class ToolingObject:
    """One object. `key` is the field by which others refer to its rows.

    `complete` gives a row's full name and metadata, for objects that have them; `kind` is the type of component
    that a write changes, empty for objects that can only be read. With `is_reference`, an id that no row has is told as
    a wrong reference, not as a resource that is missing.
    """

    type: ObjectType
    rows: Callable[[Seen], Sequence[Row]]
    key: str = "Id"
    complete: Callable[[Seen, Row], Mapping[str, object]] | None = None
    kind: str = ""
    is_reference: bool = False


def tooling_type(
    name: str, label: str, plural: str, prefix: str, fields: Sequence[Field], *, is_writeable: bool = False
) -> ObjectType:
    """The type of a tooling object; its fields follow the id."""
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


def words(*names: str) -> list[Field]:
    """Text fields."""
    return [text(name, name, 255) for name in names]


def flags(*names: str) -> list[Field]:
    """Checkboxes."""
    return [checkbox(name, name) for name in names]


def metadata_fields() -> list[Field]:
    """The full name and the metadata of a component: neither filtered nor sorted."""
    return [
        Field(name=FULL_NAME, label="Full Name", type=FieldType.TEXT, length=255),
        Field(name=METADATA, label="Metadata", type=FieldType.LONG_TEXT),
    ]


def made_fields() -> list[Field]:
    """Who made the component, and when. Types keep no record of it: the org's own stands in."""
    return [
        datetime("CreatedDate", "Created Date"),
        *words("CreatedById"),
        datetime("LastModifiedDate", "Last Modified Date"),
        *words("LastModifiedById"),
    ]


def made_values(seen: Seen) -> Row:
    """The values of `made_fields`."""
    organization = seen.catalog.try_object("Organization")
    rows = [] if organization is None else read_all_rows(seen.reader, organization)
    org = rows[0] if rows else {}
    return {
        name: org.get(name) for name in ("CreatedDate", "CreatedById", "LastModifiedDate", "LastModifiedById")
    }


def durable_id(each: ObjectType | EventType) -> str:
    """What other objects call an entity: its name, or the id of one of the org's own."""
    return object_id(each) if isinstance(each, EventType) or each.custom else each.name


def link(name: str, target: str, relationship: str, children: str = "") -> Field:
    """The key of a row of another tooling object."""
    return Field(
        name=name,
        label=name,
        type=FieldType.TEXT,
        length=255,
        reference_to=(target,),
        relationship_name=relationship,
        child_relationship_name=children,
    )
