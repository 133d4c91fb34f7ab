"""Renaming objects, platform events, fields, permission sets and profiles; records and rights stay."""

from __future__ import annotations

from dataclasses import replace

from tidewire.gate.definitions.plan import try_find
from tidewire.gate.definitions.removal import Removal, check_unused
from tidewire.gate.metadata.properties import reject
from tidewire.gate.metadata.registry import field_id
from tidewire.names import change_event_name, is_api_name
from tidewire.records.numbers import auto_number_key, move_number
from tidewire.records.service import Records
from tidewire.records.table import read_rows
from tidewire.records.types import read_sharing_rules
from tidewire.records.work import UnitOfWork
from tidewire.schema.field_types import FieldType
from tidewire.schema.model import EventType, Field, ObjectType

_ADMINISTRATOR = "System Administrator"
_BY_OBJECT = ("ObjectPermissions", "FieldPermissions", "RecordType", "QueueSobject")  # by SobjectType


def rename_object(records: Records, unit: UnitOfWork, old_name: str, new_name: str) -> list[str]:
    """Rename a custom object or a platform event.

    Lookups, roll-ups, permissions, record types, queues and sharing rules are updated; later events have the new name.
    Raises DefinitionInvalid if a push topic names the object: its query is not rewritten.
    """
    old = unit.catalog.try_event(old_name) or unit.catalog.try_object(old_name)
    if old is None or (isinstance(old, ObjectType) and (not old.custom or old.shares)):
        reject(f"{old_name} cannot be renamed", "INVALID_OPERATION")
    suffix = "__e" if isinstance(old, EventType) else "__c"
    if not (is_api_name(new_name) and new_name.endswith(suffix)):
        reject(f"{new_name[:80]} is not a name for {old.name}", "INVALID_FULL_NAME", ["fullName"])
    unit.tx.progress.access_generation += 1
    if isinstance(old, EventType):
        _move_rows(unit, old.name, new_name)
        event = replace(old, name=new_name, fields=tuple(_with_id(old.name, f) for f in old.fields))
        selection = unit.catalog.selection.with_renamed(old.name, new_name)
        unit.catalog = records.types.change(
            unit.tx,
            events=[event],
            removed_events=[old.name],
            selection=selection,
            base=unit.catalog,
        )
        return [f"rename platform event {old.name} to {new_name}"]
    _check_push_topics(unit, old)
    _move_rows(unit, old.name, new_name)
    rules = [rule for rule in read_sharing_rules(unit.tx) if rule.entity == old.name]
    if rules:
        renamed_rules = [replace(rule, entity=new_name) for rule in rules]
        records.types.change_sharing_rules(unit.tx, renamed_rules, [rule.key for rule in rules])
    for f in old.fields:
        if f.type is FieldType.AUTO_NUMBER:
            keys = (auto_number_key(old.name, f.name), auto_number_key(new_name, f.name))
            move_number(unit.tx, *keys, f.start_number)
    fields = tuple(_pointed(_with_id(old.name, f), old.name, new_name) for f in old.fields)
    others = [
        replace(o, fields=tuple(_pointed(f, old.name, new_name) for f in o.fields))
        for o in unit.catalog.objects
        if not o.shares and o.name != old.name and any(_points_to(f, old.name) for f in o.fields)
    ]
    renamed = replace(old, name=new_name, fields=fields)
    unit.catalog = records.types.rename_object(unit.tx, old, renamed, others, unit.catalog)
    return [f"rename object {old.name} to {new_name}"]


def _with_id(entity: str, f: Field) -> Field:
    """Return a custom field with its present id, which is otherwise derived from its name."""
    return replace(f, field_id=field_id(entity, f)) if f.custom else f


def _points_to(f: Field, entity: str) -> bool:
    return entity in f.reference_to or (f.roll_up is not None and f.roll_up.child == entity)


def _pointed(f: Field, old: str, new: str) -> Field:
    """Return the field with the new name of an object that it refers to."""
    roll_up = f.roll_up
    if roll_up is not None and roll_up.child == old:
        roll_up = replace(roll_up, child=new)
    return replace(f, reference_to=tuple(new if t == old else t for t in f.reference_to), roll_up=roll_up)


def _check_push_topics(unit: UnitOfWork, obj: ObjectType) -> None:
    removal = Removal(objects=(obj.name,), named={"push_topics": ()})
    check_unused(unit, replace(unit.catalog, objects=()), removal, [], {})


def _move_rows(unit: UnitOfWork, old: str, new: str) -> None:
    for entity in _BY_OBJECT:
        obj = unit.catalog.object(entity)
        for row in read_rows(unit.tx, obj, "SobjectType", [old]):
            values = {"SobjectType": new}
            if entity == "FieldPermissions":
                values["Field"] = new + str(row["Field"]).removeprefix(old)
            unit.store(obj, row, values)


def rename_field(records: Records, unit: UnitOfWork, old_full_name: str, new_full_name: str) -> list[str]:
    """Rename a custom field; values and rights stay, later events have the new name.

    Renaming a field of a platform event gives the event a new schema, and publishers must use the new name. Raises
    DefinitionInvalid if a formula, roll-up, sharing rule or push topic names the field.
    """
    entity, _, old_name = old_full_name.partition(".")
    new_entity, _, new_name = new_full_name.partition(".")
    event = unit.catalog.try_event(entity)
    if event is not None:
        return _rename_event_field(records, unit, event, old_name, new_full_name)
    obj = unit.catalog.try_object(entity)
    old = obj.try_field(old_name) if obj is not None else None
    if obj is None or old is None or not old.custom:
        reject(f"{old_full_name} cannot be renamed", "INVALID_OPERATION")
    if new_entity.lower() != obj.name.lower() or not (is_api_name(new_name) and new_name.endswith("__c")):
        reject(f"{new_full_name} is not a name for a field of {obj.name}", "INVALID_FULL_NAME", ["fullName"])
    if obj.name == "Contact" and records.types.settings.person_accounts:
        reject("Fields of Contact cannot be renamed in an org with person accounts", "INVALID_OPERATION")
    renamed = replace(obj, fields=tuple(_renamed(obj, f, old, new_name) for f in obj.fields))
    pairs = {f.name: new.name for f, new in zip(obj.fields, renamed.fields, strict=True) if f is not new}
    removal = Removal(fields={obj.name: frozenset(pairs)}, named={"push_topics": ()})
    check_unused(unit, unit.catalog.with_objects([renamed]), removal, [], {})
    _move_rights(unit, obj, pairs)
    for before, after in pairs.items():
        unit.tx.execute(
            "UPDATE recycle_bin SET field = ? WHERE entity = ? AND field = ?", (after, obj.name, before)
        )
    if old.type is FieldType.AUTO_NUMBER:
        keys = (auto_number_key(obj.name, old.name), auto_number_key(obj.name, new_name))
        move_number(unit.tx, *keys, old.start_number)
    unit.tx.progress.access_generation += 1
    unit.catalog = records.types.change(
        unit.tx,
        objects=[renamed],
        selection=unit.catalog.selection.with_renamed_field(change_event_name(obj.name), old.name, new_name),
        removed_fields=[(obj.name, name) for name in pairs],
        base=unit.catalog,
    )
    return [f"rename field {obj.name}.{old.name} to {new_name}"]


def _rename_event_field(
    records: Records, unit: UnitOfWork, event: EventType, old_name: str, new_full_name: str
) -> list[str]:
    new_entity, _, new_name = new_full_name.partition(".")
    old = next((f for f in event.fields if f.name.lower() == old_name.lower()), None)
    if old is None:
        reject(f"{event.name}.{old_name[:80]} cannot be renamed", "INVALID_OPERATION")
    if new_entity.lower() != event.name.lower() or not (is_api_name(new_name) and new_name.endswith("__c")):
        reject(
            f"{new_full_name[:80]} is not a name for a field of {event.name}",
            "INVALID_FULL_NAME",
            ["fullName"],
        )
    if any(f is not old and f.name.lower() == new_name.lower() for f in event.fields):
        reject(f"{event.name} has a field {new_name} already", "DUPLICATE_DEVELOPER_NAME", ["fullName"])
    fields = tuple(replace(_with_id(event.name, f), name=new_name) if f is old else f for f in event.fields)
    renamed = replace(event, fields=fields)
    check_unused(unit, unit.catalog.with_events([renamed]), Removal(named={"push_topics": ()}), [], {})
    unit.tx.progress.access_generation += 1  # subscribers must switch to the new schema
    unit.catalog = records.types.change(unit.tx, events=[renamed], base=unit.catalog)
    return [f"rename field {event.name}.{old.name} to {new_name}"]


def _renamed(obj: ObjectType, f: Field, old: Field, new_name: str) -> Field:
    stem, new_stem = old.name.removesuffix("__c"), new_name.removesuffix("__c")
    if f.name == old.name:
        is_usual = f.relationship_name == f"{stem}__r"
        relationship = f"{new_stem}__r" if is_usual else f.relationship_name
        return replace(_with_id(obj.name, f), name=new_name, relationship_name=relationship)
    if f.compound == old.name:
        return replace(_with_id(obj.name, f), name=new_stem + f.name.removeprefix(stem), compound=new_name)
    return f


def _move_rights(unit: UnitOfWork, obj: ObjectType, pairs: dict[str, str]) -> None:
    rights = unit.catalog.object("FieldPermissions")
    names = {f"{obj.name}.{old}": f"{obj.name}.{new}" for old, new in pairs.items()}
    for row in read_rows(unit.tx, rights, "Field", list(names)):
        unit.store(rights, row, {"Field": names[str(row["Field"])]})


def rename_row(unit: UnitOfWork, entity: str, old: str, new: str) -> list[str]:
    """Rename a permission set or a profile."""
    if entity == "PermissionSet" and not is_api_name(new):
        reject(f"{new[:80]} is not a name for a permission set", "INVALID_FULL_NAME", ["fullName"])
    if _ADMINISTRATOR in (old, new) or not new.strip():
        reject(f"{old} cannot be renamed", "INVALID_OPERATION")
    obj = unit.catalog.object(entity)
    row_id = try_find(unit, entity, "Name", old)
    if row_id is None:
        reject(f"no {entity} named {old} found", "INVALID_CROSS_REFERENCE_KEY", ["fullName"])
    unit.update(obj, row_id, {"Name": new})
    return [f"rename {entity} {old} to {new}"]
