"""Paths that follow a relationship: `sobjects/Contact/{id}/Account`, `sobjects/Account/{id}/Contacts`.

A lookup leads to its record, a child relationship to the records that look this one up. Relationships that the caller
may not see do not exist.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidewire.access.principal import Principal
from tidewire.errors import FieldUnknown, ResourceUnknown
from tidewire.gate.gate import Gate
from tidewire.schema.model import Field, ObjectType
from tidewire.soql.scope import children_name_of, relationship_of


@dataclass(frozen=True, slots=True)
class ParentRecord:
    """The record that a lookup leads to."""

    entity: str
    record_id: str


@dataclass(frozen=True, slots=True)
class ChildRecords:
    """The records of `entity` whose `lookup` holds `parent_id`."""

    entity: ObjectType
    lookup: Field
    parent_id: str


async def follow(
    gate: Gate, principal: Principal, entity: str, record_id: str, relationship: str
) -> ParentRecord | ChildRecords:
    """Follow a relationship of a record.

    Raises ResourceUnknown if it does not exist or the lookup is empty, and what reading the record raises.
    """
    obj, readable, _ = await gate.visible_fields(principal, entity)
    wanted = relationship.lower()
    lookups = [f for f in obj.fields if f.relationship_name and relationship_of(f).lower() == wanted]
    lookup = next((f for f in lookups if f.name in readable), None)
    rows = await gate.read(principal, obj.name, record_id, None if lookup is None else [lookup.name])
    if lookup is not None:
        parent_id = rows.rows[0].get(lookup.name)
        parent = None if parent_id is None else gate.catalog.try_object_of_id(str(parent_id))
        if parent is None:
            raise ResourceUnknown("The requested resource does not exist")
        return ParentRecord(parent.name, str(parent_id))
    for child in await gate.visible_objects(principal):
        fields = [f for f in child.fields if obj.name in f.reference_to]
        if any(children_name_of(f).lower() == wanted for f in fields):
            _, shown, _ = await gate.visible_fields(principal, child.name)
            for field in fields:
                if children_name_of(field).lower() == wanted and field.name in shown:
                    return ChildRecords(child, field, str(rows.rows[0]["Id"]))
    raise ResourceUnknown("The requested resource does not exist")


async def child_query(
    gate: Gate, principal: Principal, children: ChildRecords, fields: list[str] | None
) -> str:
    """Return the query for children with these fields, or all that the caller may see. Raises FieldUnknown."""
    entity, readable, _ = await gate.visible_fields(principal, children.entity.name)
    if fields is None:
        names = [f.name for f in entity.fields if f.name in readable]
    else:
        names = [_field_name(entity, readable, name) for name in fields]
    # Names come from the catalog and the id from the database.
    return (
        f"SELECT {', '.join(dict.fromkeys(names))} FROM {entity.name} "  # noqa: S608
        f"WHERE {children.lookup.name} = '{children.parent_id}'"
    )


def _field_name(entity: ObjectType, readable: frozenset[str], name: str) -> str:
    field = entity.try_field(name)
    if field is None or field.name not in readable:
        raise FieldUnknown(
            f"No such column '{name}' on sobject of type {entity.name}", field=name, entity=entity.name
        )
    return field.name
