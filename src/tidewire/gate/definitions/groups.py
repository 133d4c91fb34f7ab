"""The sections `groups` and `queues`: people under one name, and the queues that may own records.

A member is a user name, `group:Name`, `role:Name` or `role_and_subordinates:Name`; `everyone` is all users. The
list of members, and of a queue's objects, is what the document says, no more and no less. For a role there is
a Group of type Role that has the role in RelatedId; it is made when somebody first needs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from tidewire.events import Value
from tidewire.gate.definitions.custom_fields import check_keys, mapping
from tidewire.gate.definitions.document import flag_of, refuse, text_list, text_of
from tidewire.gate.definitions.plan import Step
from tidewire.gate.definitions.roles import try_role_id
from tidewire.names import is_api_name
from tidewire.records.table import read_all_rows, read_rows, try_find_by_value
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
    """The id of a living group of this type, by its DeveloperName, or by the role's for the groups of roles."""
    groups = [g for g in read_all_rows(unit.tx, unit.catalog.object("Group")) if not g["IsDeleted"]]
    if kind in ("Role", "RoleAndSubordinates"):
        role_id = try_role_id(unit, name)
        return next(
            (str(g["Id"]) for g in groups if role_id and g["Type"] == kind and g["RelatedId"] == role_id),
            None,
        )
    return next((str(g["Id"]) for g in groups if g["Type"] == kind and g["DeveloperName"] == name), None)


def check_party(unit: UnitOfWork, document: Mapping[str, object], party: str, path: str, *kinds: str) -> None:
    """Refuse the name of a group, queue or role that neither the org nor the document has."""
    kind, colon, name = party.partition(":")
    if party == _EVERYONE and _EVERYONE in kinds:
        return
    if not colon or kind not in kinds:
        refuse(path, f"{party} is none of {', '.join(k if k == _EVERYONE else k + ':Name' for k in kinds)}")
    section = "roles" if kind.startswith("role") else kind + "s"
    if name in mapping(document.get(section), section):
        return
    is_role = section == "roles"
    if (try_role_id(unit, name) if is_role else try_group_id(unit, _PARTIES[kind], name)) is None:
        refuse(path, f"there is no {section.removesuffix('s')} {name}")


def try_party_id(unit: UnitOfWork, party: str) -> str | None:
    """The id of the Group that stands for a party, or None if there is none yet."""
    kind, _, name = party.partition(":")
    if party == _EVERYONE:
        return try_group_id(unit, "Organization", "AllInternalUsers")
    return try_group_id(unit, _PARTIES[kind], name)


def ensure_party(unit: UnitOfWork, party: str) -> str:
    """The id of the Group that stands for a party; for a role, or everyone, it is made."""
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
    """A step for each group and queue that is missing or differs, and one for its members."""
    steps: list[Step] = []
    members: list[Step] = []
    for section in ("groups", "queues"):
        for name, value in mapping(document.get(section), section).items():
            path = f"{section}.{name}"
            spec = mapping(value, path)
            check_keys(spec, _KEYS[section], path)
            if not is_api_name(name):
                refuse(path, "the name has letters, digits and underscores only")
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
        refuse(f"{path}.label", "1 to 40 characters")
    group_id = try_group_id(unit, _TYPES[section], name)
    if group_id is None:
        fresh = {
            "Name": name.replace("_", " ")[:40],
            **values,
            "DeveloperName": name,
            "Type": _TYPES[section],
        }
        return [Step(f"create {_WORDS[section]} {name}", partial(unit.create, groups, fresh))]
    (row,) = read_rows(unit.tx, groups, "Id", [group_id])
    differing = {n: v for n, v in values.items() if row.get(n) != v}
    if not differing:
        return []
    line = f"update {_WORDS[section]} {name}: {', '.join(sorted(differing))}"
    return [Step(line, partial(unit.update, groups, group_id, differing))]


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
        held = _held(unit, "GroupMember", "GroupId", group_id, "UserOrGroupId")
        if None in wanted or set(wanted) != held.keys():
            line = f"set the members of {where}: {', '.join(members) or 'none'}"
            steps.append(Step(line, partial(_set_members, unit, section, name, members)))
    if "objects" in spec:
        listed = text_list(spec["objects"], f"{path}.objects")
        entities = {_owned_by_queues(unit.catalog.object(entity), path).name for entity in listed}
        held = _held(unit, "QueueSobject", "QueueId", group_id, "SobjectType")
        if entities != held.keys():
            line = f"set the objects of {where}: {', '.join(sorted(entities)) or 'none'}"
            steps.append(Step(line, partial(_set_objects, unit, name, sorted(entities))))
    return steps


def _owned_by_queues(obj: ObjectType, path: str) -> ObjectType:
    owner = obj.try_field("OwnerId")
    if owner is None or not (obj.custom or "Group" in owner.reference_to):
        refuse(f"{path}.objects", f"a queue cannot own {obj.name}")
    return obj


def _check_member(
    unit: UnitOfWork, document: Mapping[str, object], section: str, name: str, member: str, path: str
) -> None:
    if ":" in member or member == _EVERYONE:
        if member == f"group:{name}" and section == "groups":
            refuse(path, "a group is no member of itself")
        check_party(unit, document, member, path, "group", "role", "role_and_subordinates", _EVERYONE)
    elif member not in mapping(document.get("users"), "users") and _try_member_id(unit, member) is None:
        refuse(path, f"there is no user {member}")


def _try_member_id(unit: UnitOfWork, member: str) -> str | None:
    if ":" in member or member == _EVERYONE:
        return try_party_id(unit, member)
    users = unit.catalog.object("User")
    return try_find_by_value(unit.tx, users, users.by_name["username"], member)


def _held(unit: UnitOfWork, entity: str, parent: str, group_id: str | None, name: str) -> dict[Value, str]:
    if group_id is None:
        return {}
    rows = read_rows(unit.tx, unit.catalog.object(entity), parent, [group_id])
    return {row[name]: str(row["Id"]) for row in rows}


def _set_members(unit: UnitOfWork, section: str, name: str, members: list[str]) -> None:
    group_id = try_group_id(unit, _TYPES[section], name)
    obj = unit.catalog.object("GroupMember")
    held = _held(unit, "GroupMember", "GroupId", group_id, "UserOrGroupId")
    is_party = {m: ":" in m or m == _EVERYONE for m in members}
    wanted = [ensure_party(unit, m) if is_party[m] else str(_try_member_id(unit, m)) for m in members]
    for member_id, row_id in held.items():
        if member_id not in wanted:
            unit.delete(obj, row_id)
    for member_id in wanted:
        if member_id not in held:
            unit.create(obj, {"GroupId": group_id, "UserOrGroupId": member_id})


def _set_objects(unit: UnitOfWork, name: str, entities: list[str]) -> None:
    group_id = try_group_id(unit, "Queue", name)
    obj = unit.catalog.object("QueueSobject")
    held = _held(unit, "QueueSobject", "QueueId", group_id, "SobjectType")
    for entity, row_id in held.items():
        if entity not in entities:
            unit.delete(obj, row_id)
    for entity in entities:
        if entity not in held:
            unit.create(obj, {"QueueId": group_id, "SobjectType": entity})
