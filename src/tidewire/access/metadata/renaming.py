"""Another name for a field, a permission set or a profile; what it holds and whom it concerns stay."""

from __future__ import annotations

from dataclasses import replace

from tidewire.access.definitions.removal import Removal, check_unused
from tidewire.access.metadata.values import refuse
from tidewire.names import is_api_name
from tidewire.records.service import Records
from tidewire.records.table import read_rows, try_find_by_value
from tidewire.records.work import UnitOfWork
from tidewire.schema.model import Field, ObjectType

_ADMINISTRATOR = "System Administrator"


def rename_field(records: Records, unit: UnitOfWork, old_full_name: str, new_full_name: str) -> list[str]:
    """Rename a custom field: its records and the rights on it stay, but events from now on have the new name.

    Raises DefinitionInvalid where a formula, roll-up, sharing rule or push topic names it.
    """
    entity, _, old_name = old_full_name.partition(".")
    new_entity, _, new_name = new_full_name.partition(".")
    obj = unit.catalog.try_object(entity)
    old = obj.try_field(old_name) if obj is not None else None
    if obj is None or old is None or not old.custom:
        refuse(f"{old_full_name} cannot be renamed", "INVALID_OPERATION")
    if new_entity.lower() != obj.name.lower() or not (is_api_name(new_name) and new_name.endswith("__c")):
        refuse(f"{new_full_name} is not a name for a field of {obj.name}", "INVALID_FULL_NAME", ["fullName"])
    if obj.name == "Contact" and records.types.settings.person_accounts:
        refuse("Fields of Contact cannot be renamed in an org with person accounts", "INVALID_OPERATION")
    renamed = replace(obj, fields=tuple(_renamed(f, old, new_name) for f in obj.fields))
    pairs = {f.name: new.name for f, new in zip(obj.fields, renamed.fields, strict=True) if f is not new}
    removal = Removal(fields={obj.name: frozenset(pairs)}, named={"push_topics": ()})
    check_unused(unit, unit.catalog.with_objects([renamed]), removal, [], {})
    _move_rights(unit, obj, pairs)
    unit.tx.progress.access_generation += 1
    unit.catalog = records.types.change(
        unit.tx,
        objects=[renamed],
        removed_fields=[(obj.name, name) for name in pairs],
        base=unit.catalog,
    )
    return [f"rename field {obj.name}.{old.name} to {new_name}"]


def _renamed(f: Field, old: Field, new_name: str) -> Field:
    stem, new_stem = old.name.removesuffix("__c"), new_name.removesuffix("__c")
    if f.name == old.name:
        is_usual = f.relationship_name == f"{stem}__r"
        relationship = f"{new_stem}__r" if is_usual else f.relationship_name
        return replace(f, name=new_name, relationship_name=relationship)
    if f.compound == old.name:
        return replace(f, name=new_stem + f.name.removeprefix(stem), compound=new_name)
    return f


def _move_rights(unit: UnitOfWork, obj: ObjectType, pairs: dict[str, str]) -> None:
    rights = unit.catalog.object("FieldPermissions")
    names = {f"{obj.name}.{old}": f"{obj.name}.{new}" for old, new in pairs.items()}
    for row in read_rows(unit.tx, rights, "Field", list(names)):
        unit.store(rights, row, {"Field": names[str(row["Field"])]})


def rename_row(unit: UnitOfWork, entity: str, old: str, new: str) -> list[str]:
    """Rename a permission set or a profile."""
    if entity == "PermissionSet" and not is_api_name(new):
        refuse(f"{new[:80]} is not a name for a permission set", "INVALID_FULL_NAME", ["fullName"])
    if _ADMINISTRATOR in (old, new) or not new.strip():
        refuse(f"{old} cannot be renamed", "INVALID_OPERATION")
    obj = unit.catalog.object(entity)
    row_id = try_find_by_value(unit.tx, obj, obj.by_name["name"], old)
    if row_id is None:
        refuse(f"no {entity} named {old} found", "INVALID_CROSS_REFERENCE_KEY", ["fullName"])
    unit.update(obj, row_id, {"Name": new})
    return [f"rename {entity} {old} to {new}"]
