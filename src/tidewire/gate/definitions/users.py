"""The section `users`: who may log in, with which profile, role and permission sets.

A password is stored as a hash and cannot be compared. The one in the document is set when the user is created, and
later only with `reset_password: true`, which ends the user's sessions.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from tidewire.access.passwords import hash_password
from tidewire.access.sessions import end_sessions
from tidewire.access.user_logins import store_password
from tidewire.events import Value
from tidewire.gate.definitions.document import flag_of, iter_entries, mapping, reject, text_list, text_of
from tidewire.gate.definitions.plan import Step, try_find
from tidewire.records.table import read_all_rows, read_rows
from tidewire.records.work import UnitOfWork

_ATTRIBUTES = {
    "first_name": "FirstName",
    "last_name": "LastName",
    "email": "Email",
    "alias": "Alias",
    "nickname": "CommunityNickname",
    "time_zone": "TimeZoneSidKey",
    "locale": "LocaleSidKey",
    "language": "LanguageLocaleKey",
    "title": "Title",
    "department": "Department",
    "federation_id": "FederationIdentifier",
}
# Records that a user refers to: object, the field that names it in the document, and the lookup of User.
_LINKS = {
    "profile": ("Profile", "Name", "ProfileId"),
    "role": ("UserRole", "DeveloperName", "UserRoleId"),
    "manager": ("User", "Username", "ManagerId"),
}
_USUAL = {"profile": "Standard User"}
_SECTIONS = {"profile": "profiles", "role": "roles", "manager": "users"}
_USER_KEYS = (*_ATTRIBUTES, *_LINKS, "password", "reset_password", "permission_sets", "active")


def user_steps(unit: UnitOfWork, document: Mapping[str, object]) -> list[Step]:
    """Return steps for users who are missing or differ in what the document names."""
    steps: list[Step] = []
    for username, path, spec in iter_entries(document, "users", _USER_KEYS):
        _check(unit, document, spec, path)
        user_id = _try_link(unit, "manager", username)
        if user_id is None:
            steps.append(Step(f"create user {username}", partial(_create_user, unit, username, spec)))
        else:
            steps += _update_steps(unit, username, user_id, spec)
    return steps


def manager_steps(unit: UnitOfWork, document: Mapping[str, object]) -> list[Step]:
    """Return steps for users who get another manager; run once every user exists."""
    steps: list[Step] = []
    users = unit.catalog.object("User")
    for username, path, spec in iter_entries(document, "users"):
        if "manager" not in spec:
            continue
        manager = str(spec["manager"])
        if manager.lower() == username.lower():
            reject(f"{path}.manager", "users cannot be their own manager")
        rows = read_rows(unit.tx, users, "Id", [_try_link(unit, "manager", username)])
        stored = rows[0]["ManagerId"] if rows else None
        if stored != _try_link(unit, "manager", manager) or (manager and stored is None):
            line = f"set the manager of {username}: {manager or 'nobody'}"
            steps.append(Step(line, partial(_set_manager, unit, username, manager)))
    return steps


def _set_manager(unit: UnitOfWork, username: str, manager: str) -> None:
    user_id = _try_link(unit, "manager", username)
    unit.update(unit.catalog.object("User"), str(user_id), {"ManagerId": _try_link(unit, "manager", manager)})


def _check(unit: UnitOfWork, document: Mapping[str, object], spec: Mapping[str, Any], path: str) -> None:
    for key in (*_ATTRIBUTES, *_LINKS, "password"):
        text_of(spec, key, "", path)
    for key in ("active", "reset_password"):
        flag_of(spec, key, False, path)
    if spec.get("reset_password") and not spec.get("password"):
        reject(f"{path}.reset_password", "needs `password` as well")
    for key, name in [(key, spec.get(key, _USUAL.get(key, ""))) for key in _LINKS]:
        if not name and key != "profile":
            continue
        planned = mapping(document.get(_SECTIONS[key]), _SECTIONS[key])
        if name not in planned and _try_link(unit, key, name) is None:
            reject(f"{path}.{key}", f"there is no {key} {name}")
    sets = mapping(document.get("permission_sets"), "permission_sets")
    for name in text_list(spec.get("permission_sets"), f"{path}.permission_sets"):
        if name not in sets and try_find(unit, "PermissionSet", "Name", name) is None:
            reject(f"{path}.permission_sets", f"there is no permission set {name}")


def _update_steps(unit: UnitOfWork, username: str, user_id: str, spec: Mapping[str, Any]) -> list[Step]:
    users = unit.catalog.object("User")
    (row,) = read_rows(unit.tx, users, "Id", [user_id])
    steps: list[Step] = []
    is_active = spec.get("active", row["IsActive"])
    if bool(row["IsActive"]) != is_active:
        word = "activate" if is_active else "deactivate"
        change: dict[str, object] = {"IsActive": is_active}
        steps.append(Step(f"{word} user {username}", partial(unit.update, users, user_id, change)))
    wanted: dict[str, object] = {
        name: spec[key].strip() or None for key, name in _ATTRIBUTES.items() if key in spec
    }
    differing = {name: value for name, value in wanted.items() if row.get(name) != value}
    # A profile or role that the document creates has no id yet, which differs from every stored one.
    linked = [key for key in ("profile", "role") if key in spec and _differs(unit, row, key, spec[key])]
    if differing or linked:
        names = sorted([*differing, *(_LINKS[key][2] for key in linked)])
        line = f"update user {username}: {', '.join(names)}"
        steps.append(Step(line, partial(_update_user, unit, user_id, differing, linked, spec)))
    if spec.get("reset_password"):
        steps.append(
            Step(f"reset the password of {username}", partial(_reset, unit, user_id, spec["password"]))
        )
    return steps + _assignments(unit, username, user_id, spec)


def _differs(unit: UnitOfWork, row: Mapping[str, Value], key: str, name: str) -> bool:
    stored, found = row.get(_LINKS[key][2]), _try_link(unit, key, name)
    return stored != found or (bool(name) and found is None)


def _try_link(unit: UnitOfWork, key: str, name: str) -> str | None:
    """Return the id of the profile, role or user with this name, or None."""
    entity, field_name, _ = _LINKS[key]
    return try_find(unit, entity, field_name, name)


def _update_user(
    unit: UnitOfWork, user_id: str, values: dict[str, object], linked: list[str], spec: Mapping[str, Any]
) -> None:
    links = {_LINKS[key][2]: _try_link(unit, key, spec[key]) for key in linked}
    unit.update(unit.catalog.object("User"), user_id, {**values, **links})


def _create_user(unit: UnitOfWork, username: str, spec: Mapping[str, Any]) -> None:
    local = username.partition("@")[0]
    values: dict[str, object] = {
        "Username": username,
        "LastName": local,
        "Email": username,
        "Alias": local[:8],
        "CommunityNickname": local[:40],
        "ProfileId": _try_link(unit, "profile", spec.get("profile", _USUAL["profile"])),
        "UserRoleId": _try_link(unit, "role", spec.get("role", "")),
        "IsActive": spec.get("active", True),
        **_org_defaults(unit),
        "EmailEncodingKey": "UTF-8",
    }
    values |= {name: spec[key] for key, name in _ATTRIBUTES.items() if key in spec}
    user_id = unit.create(unit.catalog.object("User"), values)
    if spec.get("password"):
        set_password(unit, user_id, spec["password"])
    for step in _assignments(unit, username, user_id, spec):
        step.run()


def _org_defaults(unit: UnitOfWork) -> dict[str, object]:
    """Return time zone, locale and language of the org; a new org has none yet."""
    rows = read_all_rows(unit.tx, unit.catalog.object("Organization"))
    row: Mapping[str, Value] = rows[0] if rows else {}
    return {
        "TimeZoneSidKey": row.get("TimeZoneSidKey") or "GMT",
        "LocaleSidKey": row.get("DefaultLocaleSidKey") or "en_US",
        "LanguageLocaleKey": row.get("LanguageLocaleKey") or "en_US",
    }


def set_password(unit: UnitOfWork, user_id: str, password: str) -> None:
    """Store a user's password, as a hash."""
    store_password(unit.tx, unit.catalog, user_id, hash_password(password), unit.now_ms)


def _reset(unit: UnitOfWork, user_id: str, password: str) -> None:
    set_password(unit, user_id, password)
    end_sessions(unit.tx, "user_id", user_id)


def _assignments(unit: UnitOfWork, username: str, user_id: str, spec: Mapping[str, Any]) -> list[Step]:
    assignments = unit.catalog.object("PermissionSetAssignment")
    stored = {r["PermissionSetId"] for r in read_rows(unit.tx, assignments, "AssigneeId", [user_id])}
    steps: list[Step] = []
    for name in dict.fromkeys(text_list(spec.get("permission_sets"), f"users.{username}.permission_sets")):
        known = try_find(unit, "PermissionSet", "Name", name)
        if known is None or known not in stored:
            steps.append(Step(f"assign {name} to {username}", partial(_assign, unit, name, user_id)))
    return steps


def _assign(unit: UnitOfWork, name: str, user_id: str) -> None:
    set_id = try_find(unit, "PermissionSet", "Name", name)
    assignments = unit.catalog.object("PermissionSetAssignment")
    unit.create(assignments, {"PermissionSetId": set_id, "AssigneeId": user_id})
