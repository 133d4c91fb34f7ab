"""The sections `groups` and `queues`: public groups, and queues that may own records.

A member is a username, `group:Name`, `role:Name`, `role_and_subordinates:Name` or `everyone`. The document lists all
members, and all objects of a queue. A role is represented by a Group of type Role with the role in RelatedId, which is
created when it is first needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from tidewire.events import Value
from tidewire.gate.definitions.document import (
    check_name,
    flag_of,
    iter_entries,
    mapping,
    reject,
    text_list,
    text_of,
)
from tidewire.gate.definitions.plan import Step, try_find, update_steps
from tidewire.gate.definitions.roles import try_role_id
from tidewire.records.table import read_all_rows, read_rows
from tidewire.records.work import UnitOfWork
from tidewire.schema.model import ObjectType

_PARTIES = {
    "group": "Regular",
    "queue": "Queue",
    "role": "Role",
    "role_and_subordinates": "RoleAndSubordinates",
}
_EVERYONE = "everyone"
_TYPES = {"groups": "Regular", "queues": "Queue"}
_KEYS = {
    "groups": ("label", "members", "include_bosses"),
    "queues": ("label", "members", "objects", "email", "email_members"),
}
_WORDS = {"groups": "group", "queues": "queue"}


def try_group_id(unit: UnitOfWork, kind: str, name: str) -> str | None:
    """Return the id of a group of this type by DeveloperName, or by the name of its role."""
    groups = [g for g in read_all_rows(unit.tx, unit.catalog.object("Group")) if not g["IsDeleted"]]
    if kind in ("Role", "RoleAndSubordinates"):
        role_id = try_role_id(unit, name)
        return next(
            (str(g["Id"]) for g in groups if role_id and g["Type"] == kind and g["RelatedId"] == role_id),
            None,
        )
    return next((str(g["Id"]) for g in groups if g["Type"] == kind and g["DeveloperName"] == name), None)


def check_party(unit: UnitOfWork, document: Mapping[str, object], party: str, path: str, *kinds: str) -> None:
    """Reject a group, queue or role that neither the org nor the document has; `kinds` are those allowed."""
    kind, colon, name = party.partition(":")
    if party == _EVERYONE and _EVERYONE in kinds:
        return
    if not colon or kind not in kinds:
        reject(
            path, f"{party} must be one of {', '.join(k if k == _EVERYONE else k + ':Name' for k in kinds)}"
        )
    section = "roles" if kind.startswith("role") else kind + "s"
    if name in mapping(document.get(section), section):
        return
    is_role = section == "roles"
    if (try_role_id(unit, name) if is_role else try_group_id(unit, _PARTIES[kind], name)) is None:
        reject(path, f"there is no {section.removesuffix('s')} {name}")


def try_party_id(unit: UnitOfWork, party: str) -> str | None:
    """Return the id of the Group that represents a party, or None if it does not exist yet."""
    kind, _, name = party.partition(":")
    if party == _EVERYONE:
        return try_group_id(unit, "Organization", "AllInternalUsers")
    return try_group_id(unit, _PARTIES[kind], name)


def ensure_party(unit: UnitOfWork, party: str) -> str:
    """Return the id of the Group that represents a party; creates that of a role or of everyone."""
    found = try_party_id(unit, party)
    if found is not None:
        return found
    kind, _, name = party.partition(":")
    groups = unit.catalog.object("Group")
    if party == _EVERYONE:
        values: dict[str, object] = {"Name": "All Internal Users", "DeveloperName": "AllInternalUsers"}
        return unit.create(groups, {**values, "Type": "Organization"})
    values = {"Name": name[:40], "DeveloperName": name, "Type": _PARTIES[kind]}
    return unit.create(groups, {**values, "RelatedId": try_role_id(unit, name)})


def group_steps(unit: UnitOfWork, document: Mapping[str, object]) -> list[Step]:
    """Return steps for groups and queues that are missing or differ, then for their members and objects."""
    steps: list[Step] = []
    members: list[Step] = []
    for section in ("groups", "queues"):
        for name, path, spec in iter_entries(document, section, _KEYS[section]):
            check_name(name, path)
            steps += _own_steps(unit, section, name, spec, path)
            members += _list_steps(unit, document, section, name, spec, path)
    return steps + members


def _own_steps(unit: UnitOfWork, section: str, name: str, spec: Mapping[str, Any], path: str) -> list[Step]:
    groups = unit.catalog.object("Group")
    values: dict[str, object] = {}
    if "label" in spec:
        values["Name"] = text_of(spec, "label", "", path)
    if "email" in spec:
        values["Email"] = text_of(spec, "email", "", path) or None
    for key, field_name in (
        ("include_bosses", "DoesIncludeBosses"),
        ("email_members", "DoesSendEmailToMembers"),
    ):
        if key in spec:
            values[field_name] = flag_of(spec, key, False, path)
    if "Name" in values and not 1 <= len(str(values["Name"]).strip()) <= 40:
        reject(f"{path}.label", "must have 1 to 40 characters")
    group_id = try_group_id(unit, _TYPES[section], name)
    if group_id is None:
        new = {"Name": name.replace("_", " ")[:40], **values, "DeveloperName": name, "Type": _TYPES[section]}
        return [Step(f"create {_WORDS[section]} {name}", partial(unit.create, groups, new))]
    (row,) = read_rows(unit.tx, groups, "Id", [group_id])
    return update_steps(unit, groups, row, values, f"{_WORDS[section]} {name}")


def _list_steps(
    unit: UnitOfWork,
    document: Mapping[str, object],
    section: str,
    name: str,
    spec: Mapping[str, Any],
    path: str,
) -> list[Step]:
    steps: list[Step] = []
    group_id = try_group_id(unit, _TYPES[section], name)
    where = f"{_WORDS[section]} {name}"
    if "members" in spec:
        members = list(dict.fromkeys(text_list(spec["members"], f"{path}.members")))
        for member in members:
            _check_member(unit, document, section, name, member, f"{path}.members")
        wanted = [_try_member_id(unit, member) for member in members]
        stored = _stored(unit, "GroupMember", "GroupId", group_id, "UserOrGroupId")
        if None in wanted or set(wanted) != stored.keys():
            line = f"set the members of {where}: {', '.join(members) or 'none'}"
            steps.append(Step(line, partial(_set_members, unit, section, name, members)))
    if "objects" in spec:
        listed = text_list(spec["objects"], f"{path}.objects")
        entities = {_owned_by_queues(unit.catalog.object(entity), path).name for entity in listed}
        stored = _stored(unit, "QueueSobject", "QueueId", group_id, "SobjectType")
        if entities != stored.keys():
            line = f"set the objects of {where}: {', '.join(sorted(entities)) or 'none'}"
            steps.append(Step(line, partial(_set_objects, unit, name, sorted(entities))))
    return steps


def _owned_by_queues(obj: ObjectType, path: str) -> ObjectType:
    owner = obj.try_field("OwnerId")
    if owner is None or not (obj.custom or "Group" in owner.reference_to):
        reject(f"{path}.objects", f"a queue cannot own {obj.name}")
    return obj


def _check_member(
    unit: UnitOfWork, document: Mapping[str, object], section: str, name: str, member: str, path: str
) -> None:
    if ":" in member or member == _EVERYONE:
        if member == f"group:{name}" and section == "groups":
            reject(path, "a group cannot be a member of itself")
        check_party(unit, document, member, path, "group", "role", "role_and_subordinates", _EVERYONE)
    elif member not in mapping(document.get("users"), "users") and _try_member_id(unit, member) is None:
        reject(path, f"there is no user {member}")


def _try_member_id(unit: UnitOfWork, member: str) -> str | None:
    if ":" in member or member == _EVERYONE:
        return try_party_id(unit, member)
    return try_find(unit, "User", "Username", member)


def _stored(unit: UnitOfWork, entity: str, parent: str, group_id: str | None, name: str) -> dict[Value, str]:
    if group_id is None:
        return {}
    rows = read_rows(unit.tx, unit.catalog.object(entity), parent, [group_id])
    return {row[name]: str(row["Id"]) for row in rows}


def _set_members(unit: UnitOfWork, section: str, name: str, members: list[str]) -> None:
    is_party = {m: ":" in m or m == _EVERYONE for m in members}
    wanted = [ensure_party(unit, m) if is_party[m] else str(_try_member_id(unit, m)) for m in members]
    _set_rows(
        unit, "GroupMember", "GroupId", try_group_id(unit, _TYPES[section], name), "UserOrGroupId", wanted
    )


def _set_objects(unit: UnitOfWork, name: str, entities: list[str]) -> None:
    _set_rows(unit, "QueueSobject", "QueueId", try_group_id(unit, "Queue", name), "SobjectType", entities)


def _set_rows(
    unit: UnitOfWork, entity: str, parent: str, group_id: str | None, name: str, wanted: list[str]
) -> None:
    """Create and delete rows of a group until exactly the wanted values are there."""
    obj = unit.catalog.object(entity)
    stored = _stored(unit, entity, parent, group_id, name)
    for value, row_id in stored.items():
        if value not in wanted:
            unit.delete(obj, row_id)
    for each in wanted:
        if each not in stored:
            unit.create(obj, {parent: group_id, name: each})
