"""The section `permission_sets`: what its holders may do, exactly as the document says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from tidewire.access.definition import check_keys, mapping
from tidewire.access.definitions.document import refuse, text_list, text_map, text_of
from tidewire.access.definitions.plan import Step
from tidewire.access.grants import is_permissionable
from tidewire.records.table import read_rows, try_find_by_value
from tidewire.records.work import UnitOfWork
from tidewire.schema.catalog import Catalog
from tidewire.schema.model import Field, ObjectType

_SET_KEYS = ("label", "permissions", "objects", "fields")
_OBJECT_RIGHTS = {
    "create": "PermissionsCreate",
    "read": "PermissionsRead",
    "edit": "PermissionsEdit",
    "delete": "PermissionsDelete",
    "view_all": "PermissionsViewAllRecords",
    "modify_all": "PermissionsModifyAllRecords",
}


@dataclass(frozen=True, slots=True)
class _Rights:
    """What a set grants: system permissions, rights by object, and by field whether it may be edited."""

    flags: frozenset[str]
    objects: Mapping[str, frozenset[str]]
    fields: Mapping[tuple[str, str], bool]


def permission_set_steps(unit: UnitOfWork, document: Mapping[str, object]) -> list[Step]:
    """A step for each set that is missing or grants something else."""
    steps: list[Step] = []
    sets = unit.catalog.object("PermissionSet")
    for name, value in mapping(document.get("permission_sets"), "permission_sets").items():
        path = f"permission_sets.{name}"
        spec = mapping(value, path)
        check_keys(spec, _SET_KEYS, path)
        rights = _parse_rights(unit.catalog, spec, path)
        set_id = try_find_by_value(unit.tx, sets, sets.by_name["name"], name)
        label = text_of(spec, "label", name, path)
        if set_id is not None and _is_as_wanted(unit, set_id, label if "label" in spec else None, rights):
            continue
        line = f"{'update' if set_id else 'create'} permission set {name}"
        steps.append(Step(line, partial(_store, unit, name, set_id, label, rights)))
    return steps


def _parse_rights(catalog: Catalog, spec: Mapping[str, Any], path: str) -> _Rights:
    sets = catalog.object("PermissionSet")
    flags = {f"Permissions{p}" for p in text_list(spec.get("permissions"), f"{path}.permissions")}
    for flag in sorted(flags):
        if flag not in {f.name for f in sets.fields}:
            refuse(path, f"unknown permission {flag.removeprefix('Permissions')}")
    objects: dict[str, frozenset[str]] = {}
    for name, value in mapping(spec.get("objects"), f"{path}.objects").items():
        target = catalog.try_event(name) or catalog.object(name)
        rights = text_list(value, f"{path}.objects.{name}")
        check_keys(dict.fromkeys(rights), _OBJECT_RIGHTS, f"{path}.objects.{name}")
        objects[target.name] = frozenset(_OBJECT_RIGHTS[r] for r in rights)
    fields: dict[tuple[str, str], bool] = {}
    for name, rules in mapping(spec.get("fields"), f"{path}.fields").items():
        obj = catalog.object(name)
        for field_name, right in text_map(rules, f"{path}.fields.{name}").items():
            if right not in ("read", "edit", "none"):
                refuse(f"{path}.fields.{name}.{field_name}", "read, edit or none")
            for f in _named_fields(obj, field_name, path):
                fields.pop((obj.name, f.name), None)
                if right != "none":
                    fields[obj.name, f.name] = right == "edit"
    return _Rights(frozenset(flags), objects, fields)


def _named_fields(obj: ObjectType, name: str, path: str) -> Iterable[Field]:
    if name == "*":
        return [f for f in obj.fields if is_permissionable(f)]
    found = obj.try_field(name)
    if found is None:
        refuse(path, f"{obj.name} has no field {name}")
    return [found, *obj.components(found.name)]


def _is_as_wanted(unit: UnitOfWork, set_id: str, label: str | None, rights: _Rights) -> bool:
    catalog = unit.catalog
    (row,) = read_rows(unit.tx, catalog.object("PermissionSet"), "Id", [set_id])
    objects = {
        str(r["SobjectType"]): frozenset(n for n in _OBJECT_RIGHTS.values() if r[n])
        for r in read_rows(unit.tx, catalog.object("ObjectPermissions"), "ParentId", [set_id])
    }
    fields: dict[tuple[str, str], bool] = {}
    for r in read_rows(unit.tx, catalog.object("FieldPermissions"), "ParentId", [set_id]):
        entity, _, name = str(r["Field"]).partition(".")
        fields[entity, name] = bool(r["PermissionsEdit"])
    flags = frozenset(n for n, v in row.items() if n.startswith("Permissions") and v)
    return _Rights(flags, objects, fields) == rights and label in (None, row["Label"])


def _store(unit: UnitOfWork, name: str, set_id: str | None, label: str, rights: _Rights) -> None:
    catalog = unit.catalog
    sets = catalog.object("PermissionSet")
    granted = dict.fromkeys(rights.flags, True)
    if set_id is None:
        own_id = unit.create(sets, {"Name": name, "Label": label, **granted})
    else:
        own_id = set_id
        cleared = {f.name: False for f in sets.fields if f.name.startswith("Permissions")}
        unit.update(sets, own_id, {"Label": label, **cleared, **granted})
        for child in ("ObjectPermissions", "FieldPermissions"):
            for row in read_rows(unit.tx, catalog.object(child), "ParentId", [own_id]):
                unit.delete(catalog.object(child), str(row["Id"]))
    for entity, names in rights.objects.items():
        unit.create(
            catalog.object("ObjectPermissions"),
            {"ParentId": own_id, "SobjectType": entity, **dict.fromkeys(names, True)},
        )
    for (entity, field_name), is_editable in rights.fields.items():
        unit.create(
            catalog.object("FieldPermissions"),
            {
                "ParentId": own_id,
                "SobjectType": entity,
                "Field": f"{entity}.{field_name}",
                "PermissionsRead": True,
                "PermissionsEdit": is_editable,
            },
        )
