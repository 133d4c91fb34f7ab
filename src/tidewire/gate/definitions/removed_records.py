"""Removing what is kept as records or rows: push topics, permission sets, profiles, roles, groups, apps, rules.

What somebody still has is refused: a profile or role its users, a role those below it, a group or role a rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from tidewire.access.apps import delete_app, try_read_app
from tidewire.gate.definitions.document import refuse
from tidewire.gate.definitions.groups import try_group_id
from tidewire.gate.definitions.plan import Step
from tidewire.gate.definitions.roles import read_roles
from tidewire.records.table import read_all_rows, read_rows, try_find_by_value
from tidewire.records.types import Types, read_sharing_rules
from tidewire.records.work import UnitOfWork
from tidewire.schema.model import ObjectType

_STANDARD_PROFILES = ("System Administrator", "Standard User")


def removal_steps(unit: UnitOfWork, types: Types, named: Mapping[str, tuple[str, ...]]) -> list[Step]:
    """A step for each that is still there; `named` is by section. Rules go first, then whom they name."""
    steps: list[Step] = []
    rules = {rule.key for rule in read_sharing_rules(unit.tx)}
    for key in (key for key in named["sharing_rules"] if key in rules):
        remove = partial(types.change_sharing_rules, unit.tx, (), [key])
        steps.append(Step(f"remove sharing rule {key}", remove))
    topics = unit.catalog.object("PushTopic")
    for name in named["push_topics"]:
        topic_id = _try_id(unit, "PushTopic", name)
        if topic_id is not None:
            steps.append(Step(f"remove push topic {name}", partial(unit.delete, topics, topic_id)))
    for name in named["permission_sets"]:
        set_id = _try_id(unit, "PermissionSet", name)
        if set_id is not None:
            steps.append(Step(f"remove permission set {name}", partial(_remove_set, unit, set_id)))
    steps += _groups(unit, named)
    steps += _roles(unit, named)
    for name in named["profiles"]:
        steps += _profile(unit, name)
    for client_id in named["connected_apps"]:
        if try_read_app(unit.tx, client_id) is not None:
            steps.append(Step(f"remove connected app {client_id}", partial(delete_app, unit.tx, client_id)))
    return steps


def _try_id(unit: UnitOfWork, entity: str, name: str) -> str | None:
    obj = unit.catalog.object(entity)
    return try_find_by_value(unit.tx, obj, obj.by_name["name"], name)


def _remove_set(unit: UnitOfWork, set_id: str) -> None:
    catalog = unit.catalog
    for entity, name in (
        ("PermissionSetAssignment", "PermissionSetId"),
        ("ObjectPermissions", "ParentId"),
        ("FieldPermissions", "ParentId"),
        ("PermissionSet", "Id"),
    ):
        delete_where(unit, catalog.object(entity), name, [set_id])


def delete_where(unit: UnitOfWork, obj: ObjectType, name: str, values: Sequence[str]) -> None:
    """Delete the records whose field holds one of these values."""
    for row in read_rows(unit.tx, obj, name, values):
        unit.delete(obj, str(row["Id"]))


def _groups(unit: UnitOfWork, named: Mapping[str, tuple[str, ...]]) -> list[Step]:
    steps: list[Step] = []
    groups = unit.catalog.object("Group")
    for section, kind in (("groups", "Regular"), ("queues", "Queue")):
        for name in named[section]:
            group_id = try_group_id(unit, kind, name)
            if group_id is not None:
                _check_rules(unit, group_id, named, f"remove.{section}", name)
                delete = partial(unit.delete, groups, group_id)
                steps.append(Step(f"remove {section.removesuffix('s')} {name}", delete))
    return steps


def _check_rules(
    unit: UnitOfWork, group_id: str, named: Mapping[str, tuple[str, ...]], path: str, name: str
) -> None:
    for rule in read_sharing_rules(unit.tx):
        if rule.key not in named["sharing_rules"] and group_id in (rule.shared_with_id, rule.owned_by_id):
            refuse(path, f"the sharing rule {rule.key} names {name}; remove it first")


def _roles(unit: UnitOfWork, named: Mapping[str, tuple[str, ...]]) -> list[Step]:
    held = read_roles(unit)
    gone = [name for name in named["roles"] if name in held]
    ids = {str(held[name]["Id"]): name for name in gone}
    for name, row in held.items():
        if name not in gone and row["ParentRoleId"] in ids:
            refuse("remove.roles", f"{name} stands below {ids[str(row['ParentRoleId'])]}")
    users = unit.catalog.object("User")
    for user in read_rows(unit.tx, users, "UserRoleId", list(ids)):
        refuse("remove.roles", f"{user['Username']} has the role {ids[str(user['UserRoleId'])]}")
    groups = unit.catalog.object("Group")
    own = [g for g in read_all_rows(unit.tx, groups) if g["RelatedId"] in ids and not g["IsDeleted"]]
    for group in own:
        _check_rules(unit, str(group["Id"]), named, "remove.roles", ids[str(group["RelatedId"])])
    # Whoever stands lower goes first, so that no role is ever left without its parent.
    order = sorted(gone, key=lambda name: -_depth(held, name))
    return [Step(f"remove role {name}", partial(_remove_role, unit, str(held[name]["Id"]))) for name in order]


def _depth(held: Mapping[str, Mapping[str, object]], name: str) -> int:
    names = {row["Id"]: name for name, row in held.items()}
    depth, above = 0, held[name]["ParentRoleId"]
    while above in names and depth < len(names):
        depth, above = depth + 1, held[names[above]]["ParentRoleId"]
    return depth


def _remove_role(unit: UnitOfWork, role_id: str) -> None:
    delete_where(unit, unit.catalog.object("Group"), "RelatedId", [role_id])
    unit.delete(unit.catalog.object("UserRole"), role_id)


def _profile(unit: UnitOfWork, name: str) -> list[Step]:
    profile_id = _try_id(unit, "Profile", name)
    if profile_id is None:
        return []
    if name in _STANDARD_PROFILES:
        refuse("remove.profiles", f"{name} is a standard profile")
    for user in read_rows(unit.tx, unit.catalog.object("User"), "ProfileId", [profile_id]):
        refuse("remove.profiles", f"{user['Username']} has the profile {name}")
    return [Step(f"remove profile {name}", partial(_remove_profile, unit, profile_id))]


def _remove_profile(unit: UnitOfWork, profile_id: str) -> None:
    for row in read_rows(unit.tx, unit.catalog.object("PermissionSet"), "ProfileId", [profile_id]):
        _remove_set(unit, str(row["Id"]))
    unit.delete(unit.catalog.object("Profile"), profile_id)
