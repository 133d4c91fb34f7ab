"""Applying an org definition: compare it with the org, show the plan, make it so in one transaction.

Idempotent: what is already there is left alone. Additive for now: types, fields, permission sets, users and
push topics are added, and permissions
and passwords brought up to date; a field whose kind differs from the stored one is refused rather than
guessed at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tidewire.access.definition import SECTIONS, check_keys, mapping, parse_custom_fields, parse_field
from tidewire.access.grants import is_permissionable
from tidewire.access.passwords import hash_password, hash_token
from tidewire.errors import DefinitionInvalid
from tidewire.ids import key_prefix
from tidewire.names import is_api_name
from tidewire.records.numbers import take_number
from tidewire.records.table import read_rows, try_find_by_value
from tidewire.records.types import Types
from tidewire.records.work import UnitOfWork
from tidewire.schema.catalog import Catalog
from tidewire.schema.layout import FIRST_CUSTOM_TABLE, add_fields, custom_object
from tidewire.schema.model import EventType, Field, FieldType, ObjectType

_OBJECT_KEYS = ("label", "plural", "name", "fields", "capture")
_SET_KEYS = ("label", "permissions", "objects", "fields")
_USER_KEYS = ("password", "first_name", "last_name", "email", "alias", "profile", "permission_sets", "active")
_OBJECT_RIGHTS = {
    "create": "PermissionsCreate",
    "read": "PermissionsRead",
    "edit": "PermissionsEdit",
    "delete": "PermissionsDelete",
    "view_all": "PermissionsViewAllRecords",
    "modify_all": "PermissionsModifyAllRecords",
}


@dataclass(frozen=True)
class _Step:
    line: str
    run: Callable[[], object]


def apply_definition(
    unit: UnitOfWork, types: Types, document: Mapping[str, object], *, is_dry_run: bool
) -> list[str]:
    """Bring the org to what the document says; returns the plan, a line a step. Runs inside a solo
    transaction.
    """
    check_keys(mapping(document, "definition"), SECTIONS, "definition")
    plan: list[str] = []
    catalog = _apply_types(unit, types, document, plan, is_dry_run=is_dry_run)
    unit.catalog = catalog
    for make_steps in (_permission_sets, _users, _push_topics, _connected_apps):
        for step in make_steps(unit, document):
            plan.append(step.line)
            if not is_dry_run:
                step.run()
    return plan


def _apply_types(
    unit: UnitOfWork, types: Types, document: Mapping[str, object], plan: list[str], *, is_dry_run: bool
) -> Catalog:
    current = unit.catalog
    objects = [
        changed
        for name, spec in mapping(document.get("objects"), "objects").items()
        if (changed := _object(unit, name, mapping(spec, f"objects.{name}"), plan, is_dry_run)) is not None
    ]
    events = [
        event
        for name, spec in mapping(document.get("events"), "events").items()
        if (event := _event(unit, name, mapping(spec, f"events.{name}"), plan, is_dry_run)) is not None
    ]
    known = current.with_objects(objects)
    for obj in objects:
        for field in obj.fields:
            for target in field.reference_to:
                known.object(target)
    captured = _captured(known, document, plan)
    if not objects and not events and captured is None:
        return current
    if is_dry_run:
        return known.with_events(events)
    unit.tx.progress.access_generation += 1  # channels may show more, or other, events now
    return types.change(unit.tx, objects=objects, events=events, captured=captured)


def _object(
    unit: UnitOfWork, name: str, spec: Mapping[str, Any], plan: list[str], is_dry_run: bool
) -> ObjectType | None:
    path = f"objects.{name}"
    check_keys(spec, _OBJECT_KEYS, path)
    fields = parse_custom_fields(spec.get("fields"), f"{path}.fields")
    known = unit.catalog.try_object(name)
    if known is not None:
        missing = [f for f in fields if known.try_field(f.name) is None]
        for f in fields:
            _check_same_kind(known, f)
        plan += [f"add field {known.name}.{f.name} ({f.type.value})" for f in missing]
        return add_fields(known, missing) if missing else None
    if not (is_api_name(name) and name.endswith("__c")):
        raise DefinitionInvalid(f"{path}: a custom object's name ends in __c", path=path)
    label = str(spec.get("label", name.removesuffix("__c").replace("_", " ")))
    plan.append(f"create object {name} with {len(fields)} fields")
    number = 0 if is_dry_run else take_number(unit.tx, "custom objects", 0)
    return custom_object(
        name,
        label,
        str(spec.get("plural", label + "s")),
        key_prefix(number, "a"),
        FIRST_CUSTOM_TABLE + number,
        _name_field(spec.get("name"), label, f"{path}.name"),
        fields,
    )


def _name_field(value: object, label: str, path: str) -> Field | None:
    if value is None:
        return None
    field = parse_field("Name", value, path, frozenset({FieldType.TEXT, FieldType.AUTO_NUMBER}))
    length = min(field.length, 80)
    if "label" in mapping(value, path):
        label = field.label
    return replace(field, label=label, custom=False, length=length)


def _check_same_kind(obj: ObjectType, wanted: Field) -> None:
    stored = obj.try_field(wanted.name)
    if stored is not None and stored.type is not wanted.type:
        raise DefinitionInvalid(
            f"{obj.name}.{stored.name} is {stored.type.value}; changing it to {wanted.type.value} is not supported",
            path=f"objects.{obj.name}.fields.{wanted.name}",
        )


def _event(
    unit: UnitOfWork, name: str, spec: Mapping[str, Any], plan: list[str], is_dry_run: bool
) -> EventType | None:
    path = f"events.{name}"
    check_keys(spec, ("label", "plural", "fields"), path)
    fields = parse_custom_fields(spec.get("fields"), f"{path}.fields", for_event=True)
    known = unit.catalog.try_event(name)
    if known is not None:
        names = {f.name for f in known.fields}
        missing = tuple(f for f in fields if f.name not in names)
        plan += [f"add field {name}.{f.name} ({f.type.value})" for f in missing]
        return replace(known, fields=known.fields + missing) if missing else None
    if not (is_api_name(name) and name.endswith("__e")):
        raise DefinitionInvalid(f"{path}: a platform event's name ends in __e", path=path)
    label = str(spec.get("label", name.removesuffix("__e").replace("_", " ")))
    plan.append(f"create platform event {name} with {len(fields)} fields")
    number = 0 if is_dry_run else take_number(unit.tx, "platform events", 0)
    return EventType(
        name=name,
        label=label,
        label_plural=str(spec.get("plural", label + "s")),
        key_prefix=key_prefix(number, "e"),
        fields=fields,
    )


def _captured(catalog: Catalog, document: Mapping[str, object], plan: list[str]) -> frozenset[str] | None:
    wanted = document.get("capture", [])
    if not isinstance(wanted, list):
        raise DefinitionInvalid("capture must be a list of object names", path="capture")
    names = {catalog.object(str(name)).name for name in wanted}
    for name, spec in mapping(document.get("objects"), "objects").items():
        if mapping(spec, f"objects.{name}").get("capture"):
            names.add(catalog.object(name).name)
    fresh = sorted(names - catalog.captured)
    for name in fresh:
        if catalog.object(name).is_setup:
            raise DefinitionInvalid(f"changes of {name} cannot be captured", path="capture")
    plan += [f"capture changes of {name}" for name in fresh]
    return catalog.captured | names if fresh else None


def _permission_sets(unit: UnitOfWork, document: Mapping[str, object]) -> list[_Step]:
    steps: list[_Step] = []
    sets = unit.catalog.object("PermissionSet")
    for name, value in mapping(document.get("permission_sets"), "permission_sets").items():
        path = f"permission_sets.{name}"
        spec = mapping(value, path)
        check_keys(spec, _SET_KEYS, path)
        flags = {f"Permissions{p}": True for p in spec.get("permissions", ())}
        unknown = [flag for flag in flags if sets.try_field(flag) is None]
        if unknown:
            raise DefinitionInvalid(
                f"{path}: unknown permission {unknown[0].removeprefix('Permissions')}", path=path
            )
        objects, fields = _rights(unit.catalog, spec, path)
        set_id = try_find_by_value(unit.tx, sets, sets.by_name["name"], name)
        if set_id is not None and _held(unit, set_id) == (flags.keys(), objects, fields):
            continue
        line = f"{'update' if set_id else 'create'} permission set {name}"
        steps.append(
            _Step(line, _store_set(unit, name, set_id, str(spec.get("label", name)), flags, objects, fields))
        )
    return steps


_ObjectRights = dict[str, frozenset[str]]
_FieldRights = dict[tuple[str, str], bool]


def _rights(catalog: Catalog, spec: Mapping[str, Any], path: str) -> tuple[_ObjectRights, _FieldRights]:
    objects: _ObjectRights = {}
    fields: _FieldRights = {}
    for name, rights in mapping(spec.get("objects"), f"{path}.objects").items():
        target = catalog.try_event(name) or catalog.object(name)
        check_keys(dict.fromkeys(rights), _OBJECT_RIGHTS, f"{path}.objects.{name}")
        objects[target.name] = frozenset(_OBJECT_RIGHTS[r] for r in rights)
    for name, rules in mapping(spec.get("fields"), f"{path}.fields").items():
        obj = catalog.object(name)
        for field_name, right in mapping(rules, f"{path}.fields.{name}").items():
            if right not in ("read", "edit", "none"):
                raise DefinitionInvalid(f"{path}.fields.{name}.{field_name}: read, edit or none", path=path)
            if field_name == "*":
                named = [f for f in obj.fields if is_permissionable(f)]
            elif (found := obj.try_field(field_name)) is not None:
                named = [found, *obj.components(found.name)]
            else:
                raise DefinitionInvalid(f"{path}: {obj.name} has no field {field_name}", path=path)
            for f in named:
                fields.pop((obj.name, f.name), None)
                if right != "none":
                    fields[obj.name, f.name] = right == "edit"
    return objects, fields


def _held(unit: UnitOfWork, set_id: str) -> tuple[Any, _ObjectRights, _FieldRights]:
    catalog = unit.catalog
    (row,) = read_rows(unit.tx, catalog.object("PermissionSet"), "Id", [set_id])
    flags = {n: True for n, v in row.items() if n.startswith("Permissions") and v}.keys()
    objects = {
        str(r["SobjectType"]): frozenset(n for n in _OBJECT_RIGHTS.values() if r[n])
        for r in read_rows(unit.tx, catalog.object("ObjectPermissions"), "ParentId", [set_id])
    }
    fields: _FieldRights = {}
    for r in read_rows(unit.tx, catalog.object("FieldPermissions"), "ParentId", [set_id]):
        entity, _, name = str(r["Field"]).partition(".")
        fields[entity, name] = bool(r["PermissionsEdit"])
    return flags, objects, fields


def _store_set(
    unit: UnitOfWork,
    name: str,
    set_id: str | None,
    label: str,
    flags: Mapping[str, bool],
    objects: _ObjectRights,
    fields: _FieldRights,
) -> Callable[[], None]:
    def run() -> None:
        catalog = unit.catalog
        sets = catalog.object("PermissionSet")
        if set_id is None:
            own_id = unit.create(sets, {"Name": name, "Label": label, **flags})
        else:
            own_id = set_id
            cleared = {f.name: False for f in sets.fields if f.name.startswith("Permissions")}
            unit.update(sets, own_id, {"Label": label, **cleared, **flags})
            for child in ("ObjectPermissions", "FieldPermissions"):
                for row in read_rows(unit.tx, catalog.object(child), "ParentId", [own_id]):
                    unit.delete(catalog.object(child), str(row["Id"]))
        for entity, rights in objects.items():
            unit.create(
                catalog.object("ObjectPermissions"),
                {"ParentId": own_id, "SobjectType": entity, **dict.fromkeys(rights, True)},
            )
        for (entity, field_name), is_editable in fields.items():
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

    return run


def _users(unit: UnitOfWork, document: Mapping[str, object]) -> list[_Step]:
    steps: list[_Step] = []
    users = unit.catalog.object("User")
    for username, value in mapping(document.get("users"), "users").items():
        path = f"users.{username}"
        spec = mapping(value, path)
        check_keys(spec, _USER_KEYS, path)
        user_id = try_find_by_value(unit.tx, users, users.by_name["username"], username)
        if user_id is None:
            steps.append(_Step(f"create user {username}", _create_user(unit, username, spec)))
            continue
        (row,) = read_rows(unit.tx, users, "Id", [user_id])
        is_active = bool(spec.get("active", True))
        if bool(row["IsActive"]) != is_active:
            word = "activate" if is_active else "deactivate"
            change = {"IsActive": is_active}
            steps.append(_Step(f"{word} user {username}", partial(unit.update, users, user_id, change)))
        steps += _assignments(unit, username, user_id, spec)
    return steps


def _create_user(unit: UnitOfWork, username: str, spec: Mapping[str, Any]) -> Callable[[], None]:
    def run() -> None:
        catalog = unit.catalog
        profiles = catalog.object("Profile")
        profile = str(spec.get("profile", "Standard User"))
        profile_id = try_find_by_value(unit.tx, profiles, profiles.by_name["name"], profile)
        if profile_id is None:
            raise DefinitionInvalid(
                f"users.{username}: there is no profile {profile}", path=f"users.{username}"
            )
        local = username.partition("@")[0]
        user_id = unit.create(
            catalog.object("User"),
            {
                "Username": username,
                "FirstName": spec.get("first_name"),
                "LastName": spec.get("last_name", local),
                "Email": spec.get("email", username),
                "Alias": str(spec.get("alias", local))[:8],
                "CommunityNickname": local[:40],
                "ProfileId": profile_id,
                "IsActive": bool(spec.get("active", True)),
                "TimeZoneSidKey": "GMT",
                "LocaleSidKey": "en_US",
                "LanguageLocaleKey": "en_US",
                "EmailEncodingKey": "UTF-8",
            },
        )
        if spec.get("password"):
            set_password(unit, user_id, str(spec["password"]))
        for step in _assignments(unit, username, user_id, spec):
            step.run()

    return run


def set_password(unit: UnitOfWork, user_id: str, password: str) -> None:
    """Store a user's password, as a hash."""
    unit.tx.execute(
        "INSERT INTO passwords (user_id, hash) VALUES (?, ?) ON CONFLICT (user_id) DO UPDATE SET hash = excluded.hash",
        (user_id, hash_password(password)),
    )


def _assignments(unit: UnitOfWork, username: str, user_id: str, spec: Mapping[str, Any]) -> list[_Step]:
    catalog = unit.catalog
    assignments = catalog.object("PermissionSetAssignment")
    held = {r["PermissionSetId"] for r in read_rows(unit.tx, assignments, "AssigneeId", [user_id])}
    steps: list[_Step] = []
    for name in spec.get("permission_sets", ()):

        def run(name: str = name) -> None:
            sets = catalog.object("PermissionSet")
            set_id = try_find_by_value(unit.tx, sets, sets.by_name["name"], name)
            if set_id is None:
                raise DefinitionInvalid(
                    f"users.{username}: there is no permission set {name}", path=f"users.{username}"
                )
            unit.create(assignments, {"PermissionSetId": set_id, "AssigneeId": user_id})

        sets = catalog.object("PermissionSet")
        known = try_find_by_value(unit.tx, sets, sets.by_name["name"], name)
        if known is None or known not in held:
            steps.append(_Step(f"assign {name} to {username}", run))
    return steps


def _push_topics(unit: UnitOfWork, document: Mapping[str, object]) -> list[_Step]:
    steps: list[_Step] = []
    topics = unit.catalog.object("PushTopic")
    for name, value in mapping(document.get("push_topics"), "push_topics").items():
        spec = mapping(value, f"push_topics.{name}")
        values = {"ApiVersion": 67.0, **spec}
        topic_id = try_find_by_value(unit.tx, topics, topics.by_name["name"], name)
        if topic_id is None:
            steps.append(
                _Step(f"create push topic {name}", partial(unit.create, topics, {"Name": name, **values}))
            )
            continue
        (row,) = read_rows(unit.tx, topics, "Id", [topic_id])
        if any(
            row.get(topics.by_name[k.lower()].name) != v
            for k, v in values.items()
            if k.lower() in topics.by_name
        ):
            steps.append(_Step(f"update push topic {name}", partial(unit.update, topics, topic_id, values)))
    return steps


def _connected_apps(unit: UnitOfWork, document: Mapping[str, object]) -> list[_Step]:
    steps: list[_Step] = []
    for client_id, value in mapping(document.get("connected_apps"), "connected_apps").items():
        spec = mapping(value, f"connected_apps.{client_id}")
        check_keys(spec, ("secret", "label"), f"connected_apps.{client_id}")
        secret_hash = hash_token(str(spec.get("secret", "")))
        rows = unit.tx.execute("SELECT secret_hash FROM connected_apps WHERE client_id = ?", (client_id,))
        if rows and rows[0][0] == secret_hash:
            continue
        params = (client_id, secret_hash, str(spec.get("label", client_id)))
        steps.append(_Step(f"store connected app {client_id}", partial(_store_app, unit, params)))
    return steps


def _store_app(unit: UnitOfWork, params: tuple[str, str, str]) -> None:
    unit.tx.execute(
        "INSERT INTO connected_apps (client_id, secret_hash, label) VALUES (?, ?, ?)"
        " ON CONFLICT (client_id) DO UPDATE SET secret_hash = excluded.secret_hash, label = excluded.label",
        params,
    )
