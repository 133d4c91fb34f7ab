"""The sections `permission_sets` and `profiles`: what their holders may do, exactly as the document says.

A profile keeps its system permissions itself; what it grants on objects and fields stands in a permission set of
its own, which nobody else can be given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tidewire.access.grant_validation import NEEDED_RIGHTS
from tidewire.access.grants import is_permissionable
from tidewire.events import Value
from tidewire.gate.definitions.custom_fields import check_keys, mapping
from tidewire.gate.definitions.document import refuse, text_list, text_map, text_of
from tidewire.gate.definitions.plan import Step
from tidewire.names import is_api_name
from tidewire.records.table import read_rows, try_find_by_value
from tidewire.records.work import UnitOfWork
from tidewire.schema.catalog import Catalog
from tidewire.schema.model import Field, ObjectType

_SET_KEYS = ("label", "description", "permissions", "objects", "fields")
_PROFILE_KEYS = ("description", "permissions", "objects", "fields")
_ADMINISTRATOR = "System Administrator"
_TEXT_LIMITS = {"label": 80, "description": 255}
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
        if not is_api_name(name):
            refuse(path, "the name has letters, digits and underscores only")
        rights = _parse_rights(unit.catalog, spec, path)
        set_id = try_find_by_value(unit.tx, sets, sets.by_name["name"], name)
        if set_id is not None and _is_owned(unit, set_id):
            refuse(path, f"{name} belongs to a profile")
        texts = _texts(spec, path, Label="label", Description="description")
        if set_id is not None and _is_as_wanted(unit, set_id, texts, rights):
            continue
        line = f"{'update' if set_id else 'create'} permission set {name}"
        steps.append(Step(line, partial(_store, unit, name, set_id, texts, rights)))
    return steps


def profile_steps(unit: UnitOfWork, document: Mapping[str, object]) -> list[Step]:
    """A step for each profile that is missing or grants something else."""
    steps: list[Step] = []
    profiles = unit.catalog.object("Profile")
    for name, value in mapping(document.get("profiles"), "profiles").items():
        path = f"profiles.{name}"
        spec = mapping(value, path)
        check_keys(spec, _PROFILE_KEYS, path)
        if name == _ADMINISTRATOR:
            refuse(path, "the administrators' profile stays as it is")
        if not name.strip() or name != name.strip() or len(name) > 255:
            refuse(path, "the name has 1 to 255 characters, and no blanks around it")
        rights = _parse_rights(unit.catalog, spec, path)
        texts = _texts(spec, path, Description="description")
        profile_id = try_find_by_value(unit.tx, profiles, profiles.by_name["name"], name)
        if profile_id is not None and _is_profile_as_wanted(unit, profile_id, texts, rights):
            continue
        line = f"{'update' if profile_id else 'create'} profile {name}"
        steps.append(Step(line, partial(_store_profile, unit, name, profile_id, texts, rights)))
    return steps


def _texts(spec: Mapping[str, Any], path: str, **keys: str) -> dict[str, str | None]:
    """The texts that the document gives, by field."""
    texts: dict[str, str | None] = {}
    for field_name, key in keys.items():
        if key in spec:
            texts[field_name] = text_of(spec, key, "", path) or None
            if len(texts[field_name] or "") > _TEXT_LIMITS[key] or (key == "label" and not texts[field_name]):
                refuse(f"{path}.{key}", f"must have at most {_TEXT_LIMITS[key]} characters")
    return texts


def _is_owned(unit: UnitOfWork, set_id: str) -> bool:
    (row,) = read_rows(unit.tx, unit.catalog.object("PermissionSet"), "Id", [set_id])
    return bool(row["IsOwnedByProfile"])


def _parse_rights(catalog: Catalog, spec: Mapping[str, Any], path: str) -> _Rights:
    sets = catalog.object("PermissionSet")
    flags = {f"Permissions{p}" for p in text_list(spec.get("permissions"), f"{path}.permissions")}
    known = {f.name for f in sets.fields if f.name.startswith("Permissions")}
    for flag in sorted(flags - known):
        refuse(f"{path}.permissions", f"unknown permission {flag.removeprefix('Permissions')}")
    objects: dict[str, frozenset[str]] = {}
    for name, value in mapping(spec.get("objects"), f"{path}.objects").items():
        target = catalog.try_event(name) or catalog.object(name)
        rights = text_list(value, f"{path}.objects.{name}")
        check_keys(dict.fromkeys(rights), _OBJECT_RIGHTS, f"{path}.objects.{name}")
        names = {_OBJECT_RIGHTS[r] for r in rights}
        if catalog.try_event(name) is None:  # who publishes an event need not read any
            names |= {needed for right in names for needed in NEEDED_RIGHTS.get(right, ())}
        objects[target.name] = frozenset(names)
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


def _is_as_wanted(unit: UnitOfWork, set_id: str, texts: Mapping[str, str | None], rights: _Rights) -> bool:
    (row,) = read_rows(unit.tx, unit.catalog.object("PermissionSet"), "Id", [set_id])
    held = _Rights(_flags(row), *_held_rights(unit, [set_id]))
    return held == rights and all(row.get(name) == text for name, text in texts.items())


def _is_profile_as_wanted(
    unit: UnitOfWork, profile_id: str, texts: Mapping[str, str | None], rights: _Rights
) -> bool:
    (row,) = read_rows(unit.tx, unit.catalog.object("Profile"), "Id", [profile_id])
    held = _Rights(_flags(row), *_held_rights(unit, _own_sets(unit, profile_id)))
    return held == rights and all(row.get(name) == text for name, text in texts.items())


def _own_sets(unit: UnitOfWork, profile_id: str) -> list[str]:
    rows = read_rows(unit.tx, unit.catalog.object("PermissionSet"), "ProfileId", [profile_id])
    return [str(row["Id"]) for row in rows if row["IsOwnedByProfile"]]


def _flags(row: Mapping[str, Value]) -> frozenset[str]:
    return frozenset(name for name, value in row.items() if name.startswith("Permissions") and value)


def _held_rights(
    unit: UnitOfWork, set_ids: Sequence[str]
) -> tuple[dict[str, frozenset[str]], dict[tuple[str, str], bool]]:
    catalog = unit.catalog
    objects = {
        str(r["SobjectType"]): frozenset(n for n in _OBJECT_RIGHTS.values() if r[n])
        for r in read_rows(unit.tx, catalog.object("ObjectPermissions"), "ParentId", set_ids)
    }
    fields: dict[tuple[str, str], bool] = {}
    for r in read_rows(unit.tx, catalog.object("FieldPermissions"), "ParentId", set_ids):
        entity, _, name = str(r["Field"]).partition(".")
        fields[entity, name] = bool(r["PermissionsEdit"])
    return objects, fields


def _store(
    unit: UnitOfWork, name: str, set_id: str | None, texts: Mapping[str, str | None], rights: _Rights
) -> None:
    sets = unit.catalog.object("PermissionSet")
    granted = dict.fromkeys(rights.flags, True)
    if set_id is None:
        set_id = unit.create(sets, {"Name": name, "Label": name, **texts, **granted})
    else:
        unit.update(sets, set_id, {**texts, **_no_flags(sets), **granted})
    _store_rights(unit, set_id, rights)


def _store_profile(
    unit: UnitOfWork, name: str, profile_id: str | None, texts: Mapping[str, str | None], rights: _Rights
) -> None:
    profiles, sets = unit.catalog.object("Profile"), unit.catalog.object("PermissionSet")
    granted = dict.fromkeys(rights.flags, True)
    if profile_id is None:
        profile_id = unit.create(profiles, {"Name": name, **texts, **granted})
    else:
        unit.update(profiles, profile_id, {**texts, **_no_flags(profiles), **granted})
    own = _own_sets(unit, profile_id)
    if not own and (rights.objects or rights.fields):
        # Named as the real service names it, by an id that no permission set of a person could have.
        own = [unit.create(sets, {"Name": f"X{profile_id}", "Label": f"X{profile_id}"})]
        row = unit.read(sets, own[0])
        unit.store(sets, row, {"IsOwnedByProfile": True, "ProfileId": profile_id})
    if own:
        _store_rights(unit, own[0], rights)


def _no_flags(obj: ObjectType) -> dict[str, bool]:
    return {f.name: False for f in obj.fields if f.name.startswith("Permissions")}


def _store_rights(unit: UnitOfWork, own_id: str, rights: _Rights) -> None:
    """Make the rights of a set on objects and fields anew."""
    catalog = unit.catalog
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
