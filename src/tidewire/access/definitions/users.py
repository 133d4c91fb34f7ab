"""The sections `users` and `connected_apps`: who may sign in, and through what.

A password is stored as a hash and cannot be compared, so one that the document gives is set when the user is
made and afterwards only with `reset_password: true`, which ends the user's sessions.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from tidewire.access.definition import check_keys, mapping
from tidewire.access.definitions.document import flag_of, refuse, text_list, text_of
from tidewire.access.definitions.plan import Step
from tidewire.access.logins import end_sessions
from tidewire.access.passwords import hash_password, hash_token
from tidewire.records.table import read_rows, try_find_by_value
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
}
_USER_KEYS = (*_ATTRIBUTES, "password", "reset_password", "profile", "permission_sets", "active")


def user_steps(unit: UnitOfWork, document: Mapping[str, object]) -> list[Step]:
    """Steps for users who are missing or differ in what the document names."""
    steps: list[Step] = []
    users = unit.catalog.object("User")
    for username, value in mapping(document.get("users"), "users").items():
        path = f"users.{username}"
        spec = mapping(value, path)
        _check(spec, path)
        user_id = try_find_by_value(unit.tx, users, users.by_name["username"], username)
        if user_id is None:
            _profile_id(unit, spec, path)
            steps.append(Step(f"create user {username}", partial(_create_user, unit, username, spec)))
        else:
            steps += _update_steps(unit, username, user_id, spec)
    return steps


def _check(spec: Mapping[str, Any], path: str) -> None:
    check_keys(spec, _USER_KEYS, path)
    for key in (*_ATTRIBUTES, "password", "profile"):
        text_of(spec, key, "", path)
    for key in ("active", "reset_password"):
        flag_of(spec, key, False, path)
    text_list(spec.get("permission_sets"), f"{path}.permission_sets")
    if spec.get("reset_password") and not spec.get("password"):
        refuse(f"{path}.reset_password", "needs a password")


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
    if "profile" in spec:
        wanted["ProfileId"] = _profile_id(unit, spec, f"users.{username}")
    differing = {name: value for name, value in wanted.items() if row.get(name) != value}
    if differing:
        line = f"update user {username}: {', '.join(sorted(differing))}"
        steps.append(Step(line, partial(unit.update, users, user_id, differing)))
    if spec.get("reset_password"):
        steps.append(
            Step(f"reset the password of {username}", partial(_reset, unit, user_id, spec["password"]))
        )
    return steps + _assignments(unit, username, user_id, spec)


def _profile_id(unit: UnitOfWork, spec: Mapping[str, Any], path: str) -> str:
    profiles = unit.catalog.object("Profile")
    profile = str(spec.get("profile", "Standard User"))
    found = try_find_by_value(unit.tx, profiles, profiles.by_name["name"], profile)
    if found is None:
        refuse(path, f"there is no profile {profile}")
    return found


def _create_user(unit: UnitOfWork, username: str, spec: Mapping[str, Any]) -> None:
    local = username.partition("@")[0]
    values: dict[str, object] = {
        "Username": username,
        "LastName": local,
        "Email": username,
        "Alias": local[:8],
        "CommunityNickname": local[:40],
        "ProfileId": _profile_id(unit, spec, f"users.{username}"),
        "IsActive": spec.get("active", True),
        "TimeZoneSidKey": "GMT",
        "LocaleSidKey": "en_US",
        "LanguageLocaleKey": "en_US",
        "EmailEncodingKey": "UTF-8",
    }
    values |= {name: spec[key] for key, name in _ATTRIBUTES.items() if key in spec}
    user_id = unit.create(unit.catalog.object("User"), values)
    if spec.get("password"):
        set_password(unit, user_id, spec["password"])
    for step in _assignments(unit, username, user_id, spec):
        step.run()


def set_password(unit: UnitOfWork, user_id: str, password: str) -> None:
    """Store a user's password, as a hash."""
    unit.tx.execute(
        "INSERT INTO passwords (user_id, hash) VALUES (?, ?) ON CONFLICT (user_id) DO UPDATE SET hash = excluded.hash",
        (user_id, hash_password(password)),
    )


def _reset(unit: UnitOfWork, user_id: str, password: str) -> None:
    set_password(unit, user_id, password)
    end_sessions(unit.tx, "user_id", user_id)


def _assignments(unit: UnitOfWork, username: str, user_id: str, spec: Mapping[str, Any]) -> list[Step]:
    assignments = unit.catalog.object("PermissionSetAssignment")
    sets = unit.catalog.object("PermissionSet")
    held = {r["PermissionSetId"] for r in read_rows(unit.tx, assignments, "AssigneeId", [user_id])}
    steps: list[Step] = []
    for name in dict.fromkeys(text_list(spec.get("permission_sets"), f"users.{username}.permission_sets")):
        known = try_find_by_value(unit.tx, sets, sets.by_name["name"], name)
        if known is None or known not in held:
            steps.append(
                Step(f"assign {name} to {username}", partial(_assign, unit, name, username, user_id))
            )
    return steps


def _assign(unit: UnitOfWork, name: str, username: str, user_id: str) -> None:
    sets = unit.catalog.object("PermissionSet")
    set_id = try_find_by_value(unit.tx, sets, sets.by_name["name"], name)
    if set_id is None:
        refuse(f"users.{username}", f"there is no permission set {name}")
    values = {"PermissionSetId": set_id, "AssigneeId": user_id}
    unit.create(unit.catalog.object("PermissionSetAssignment"), values)


def connected_app_steps(unit: UnitOfWork, document: Mapping[str, object]) -> list[Step]:
    """A step for each app that is missing or has another secret or label."""
    steps: list[Step] = []
    for client_id, value in mapping(document.get("connected_apps"), "connected_apps").items():
        path = f"connected_apps.{client_id}"
        spec = mapping(value, path)
        check_keys(spec, ("secret", "label"), path)
        label = text_of(spec, "label", client_id, path)
        secret = text_of(spec, "secret", "", path)
        if not secret:
            refuse(f"{path}.secret", "must not be empty")
        wanted = (hash_token(secret), label)
        rows = unit.tx.execute(
            "SELECT secret_hash, label FROM connected_apps WHERE client_id = ?", (client_id,)
        )
        if rows and (rows[0] == wanted or ("label" not in spec and rows[0][0] == wanted[0])):
            continue
        steps.append(
            Step(f"store connected app {client_id}", partial(_store_app, unit, (client_id, *wanted)))
        )
    return steps


def _store_app(unit: UnitOfWork, params: tuple[str, str, str]) -> None:
    unit.tx.execute(
        "INSERT INTO connected_apps (client_id, secret_hash, label) VALUES (?, ?, ?)"
        " ON CONFLICT (client_id) DO UPDATE SET secret_hash = excluded.secret_hash, label = excluded.label",
        params,
    )
