"""The sections `permission_sets` and `profiles`: they grant exactly what the document lists.

A profile row holds its system permissions. What it grants on objects and fields is in a permission set that belongs
to the profile and cannot be assigned to anybody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tidewire.access.grant_validation import NEEDED_RIGHTS
from tidewire.access.grants import is_permissionable
from tidewire.events import Value
from tidewire.gate.definitions.document import (
    check_keys,
    check_name,
    iter_entries,
    mapping,
    reject,
    text_list,
    text_map,
    text_of,
)
from tidewire.gate.definitions.plan import Step
from tidewire.records.table import read_rows, try_find_by_value
from tidewire.records.work import UnitOfWork
from tidewire.schema.catalog import Catalog
from tidewire.schema.model import Field, ObjectType
from tidewire.storage.store import Reader, Transaction

_SET_KEYS = ("label", "description", "permissions", "objects", "fields")
_PROFILE_KEYS = ("description", "permissions", "objects", "fields")
_ADMINISTRATOR = "System Administrator"
_TEXT_LIMITS = {"label": 80, "description": 255}
OBJECT_RIGHTS = {
    "create": "PermissionsCreate",
    "read": "PermissionsRead",
    "edit": "PermissionsEdit",
    "delete": "PermissionsDelete",
    "view_all": "PermissionsViewAllRecords",
    "modify_all": "PermissionsModifyAllRecords",
}


@dataclass(frozen=True, slots=True)
class Rights:
    """Grants of a set: system permissions, rights by object, and by readable field whether it may be edited."""

    flags: frozenset[str]
    objects: Mapping[str, frozenset[str]]
    fields: Mapping[tuple[str, str], bool]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A permission set or profile as the document wants it, and its stored row, None if it is new."""

    name: str
    row: Mapping[str, Value] | None
    texts: Mapping[str, str | None]
    rights: Rights


def permission_set_steps(unit: UnitOfWork, document: Mapping[str, object]) -> list[Step]:
    """Return a step for each permission set that is missing or differs."""
    steps: list[Step] = []
    sets = unit.catalog.object("PermissionSet")
    for name, path, spec in iter_entries(document, "permission_sets", _SET_KEYS):
        check_name(name, path)
        rights = _parse_rights(unit.catalog, spec, path)
        row = try_read_by_name(unit.tx, sets, name)
        if row is not None and row["IsOwnedByProfile"]:
            reject(path, f"{name} belongs to a profile; change the profile instead")
        texts = _texts(spec, path, Label="label", Description="description")
        wanted = _Wanted(name, row, texts, rights)
        if row is None or not _is_as_wanted(unit, row, [str(row["Id"])], wanted):
            line = f"{'create' if row is None else 'update'} permission set {name}"
            steps.append(Step(line, partial(_store_set, unit, wanted)))
    return steps


def profile_steps(unit: UnitOfWork, document: Mapping[str, object]) -> list[Step]:
    """Return a step for each profile that is missing or differs."""
    steps: list[Step] = []
    profiles = unit.catalog.object("Profile")
    for name, path, spec in iter_entries(document, "profiles", _PROFILE_KEYS):
        if name == _ADMINISTRATOR:
            reject(path, "the profile of administrators cannot be changed")
        if not name.strip() or name != name.strip() or len(name) > 255:
            reject(path, "the name must have 1 to 255 characters, without leading or trailing blanks")
        rights = _parse_rights(unit.catalog, spec, path)
        texts = _texts(spec, path, Description="description")
        row = try_read_by_name(unit.tx, profiles, name)
        set_ids = [] if row is None else read_profile_sets(unit.tx, unit.catalog, str(row["Id"]))
        wanted = _Wanted(name, row, texts, rights)
        if row is None or not _is_as_wanted(unit, row, set_ids, wanted):
            line = f"{'create' if row is None else 'update'} profile {name}"
            steps.append(Step(line, partial(_store_profile, unit, wanted)))
    return steps


def _texts(spec: Mapping[str, Any], path: str, **keys: str) -> dict[str, str | None]:
    """Return the texts that the document sets, by field."""
    texts: dict[str, str | None] = {}
    for field_name, key in keys.items():
        if key in spec:
            texts[field_name] = text_of(spec, key, "", path) or None
            if len(texts[field_name] or "") > _TEXT_LIMITS[key] or (key == "label" and not texts[field_name]):
                reject(f"{path}.{key}", f"must have at most {_TEXT_LIMITS[key]} characters")
    return texts


def try_read_by_name(reader: Reader | Transaction, obj: ObjectType, name: str) -> Mapping[str, Value] | None:
    """Read a permission set or profile by name, or None."""
    row_id = try_find_by_value(reader, obj, obj.by_name["name"], name)
    return None if row_id is None else read_rows(reader, obj, "Id", [row_id])[0]


def _parse_rights(catalog: Catalog, spec: Mapping[str, Any], path: str) -> Rights:
    sets = catalog.object("PermissionSet")
    flags = {f"Permissions{p}" for p in text_list(spec.get("permissions"), f"{path}.permissions")}
    known = {f.name for f in sets.fields if f.name.startswith("Permissions")}
    for flag in sorted(flags - known):
        reject(f"{path}.permissions", f"unknown permission {flag.removeprefix('Permissions')}")
    objects: dict[str, frozenset[str]] = {}
    for name, value in mapping(spec.get("objects"), f"{path}.objects").items():
        target = catalog.try_event(name) or catalog.object(name)
        rights = text_list(value, f"{path}.objects.{name}")
        check_keys(dict.fromkeys(rights), OBJECT_RIGHTS, f"{path}.objects.{name}")
        names = {OBJECT_RIGHTS[r] for r in rights}
        if catalog.try_event(name) is None:  # publishing an event does not need the right to read it
            names |= {needed for right in names for needed in NEEDED_RIGHTS.get(right, ())}
        objects[target.name] = frozenset(names)
    fields: dict[tuple[str, str], bool] = {}
    for name, rules in mapping(spec.get("fields"), f"{path}.fields").items():
        obj = catalog.object(name)
        for field_name, right in text_map(rules, f"{path}.fields.{name}").items():
            if right not in ("read", "edit", "none"):
                reject(f"{path}.fields.{name}.{field_name}", "must be read, edit or none")
            for f in _named_fields(obj, field_name, path):
                fields.pop((obj.name, f.name), None)
                if right != "none":
                    fields[obj.name, f.name] = right == "edit"
    return Rights(frozenset(flags), objects, fields)


def _named_fields(obj: ObjectType, name: str, path: str) -> Iterable[Field]:
    if name == "*":
        return [f for f in obj.fields if is_permissionable(f)]
    found = obj.try_field(name)
    if found is None:
        reject(path, f"{obj.name} has no field {name}")
    return [found, *obj.components(found.name)]


def _is_as_wanted(
    unit: UnitOfWork, row: Mapping[str, Value], set_ids: Sequence[str], wanted: _Wanted
) -> bool:
    stored = read_rights(unit.tx, unit.catalog, row, set_ids)
    return stored == wanted.rights and all(row.get(name) == text for name, text in wanted.texts.items())


def read_profile_sets(reader: Reader | Transaction, catalog: Catalog, profile_id: str) -> list[str]:
    """Read the ids of the permission sets that belong to a profile: one, or none if it grants nothing."""
    rows = read_rows(reader, catalog.object("PermissionSet"), "ProfileId", [profile_id])
    return [str(row["Id"]) for row in rows if row["IsOwnedByProfile"]]


def read_rights(
    reader: Reader | Transaction, catalog: Catalog, row: Mapping[str, Value], set_ids: Sequence[str]
) -> Rights:
    """Read what a permission set or profile grants: `row` is its record, `set_ids` hold its other rights."""
    flags = frozenset(name for name, value in row.items() if name.startswith("Permissions") and value)
    objects = {
        str(r["SobjectType"]): frozenset(n for n in OBJECT_RIGHTS.values() if r[n])
        for r in read_rows(reader, catalog.object("ObjectPermissions"), "ParentId", set_ids)
    }
    fields: dict[tuple[str, str], bool] = {}
    for r in read_rows(reader, catalog.object("FieldPermissions"), "ParentId", set_ids):
        entity, _, name = str(r["Field"]).partition(".")
        fields[entity, name] = bool(r["PermissionsEdit"])
    return Rights(flags, objects, fields)


def _store_set(unit: UnitOfWork, wanted: _Wanted) -> None:
    sets, initial = unit.catalog.object("PermissionSet"), {"Name": wanted.name, "Label": wanted.name}
    _store_rights(unit, _store_row(unit, sets, wanted, initial), wanted.rights)


def _store_profile(unit: UnitOfWork, wanted: _Wanted) -> None:
    profiles, sets, rights = (
        unit.catalog.object("Profile"),
        unit.catalog.object("PermissionSet"),
        wanted.rights,
    )
    profile_id = _store_row(unit, profiles, wanted, {"Name": wanted.name})
    own = read_profile_sets(unit.tx, unit.catalog, profile_id)
    if not own and (rights.objects or rights.fields):
        # Named as the platform does; no permission set that a person names can have this name.
        own = [unit.create(sets, {"Name": f"X{profile_id}", "Label": f"X{profile_id}"})]
        unit.store(sets, unit.read(sets, own[0]), {"IsOwnedByProfile": True, "ProfileId": profile_id})
    if own:
        _store_rights(unit, own[0], rights)


def _store_row(unit: UnitOfWork, obj: ObjectType, wanted: _Wanted, initial: Mapping[str, object]) -> str:
    """Create or update the row of a permission set or profile; returns its id."""
    granted = dict.fromkeys(wanted.rights.flags, True)
    if wanted.row is None:
        return unit.create(obj, {**initial, **wanted.texts, **granted})
    revoked = {f.name: False for f in obj.fields if f.name.startswith("Permissions")}
    row_id = str(wanted.row["Id"])
    unit.update(obj, row_id, {**wanted.texts, **revoked, **granted})
    return row_id


def _store_rights(unit: UnitOfWork, own_id: str, rights: Rights) -> None:
    """Replace the rights of a set on objects and fields."""
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
