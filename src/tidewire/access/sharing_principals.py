"""Sharing principals: the user, roles, groups and queues through which a user gains access to records.

With the role hierarchy on, a record that is shared with somebody is shared with everybody above them, so a user also
has the principals of the people below. Groups may contain groups. A group of type Role or RoleAndSubordinates stands
for the people in the role that its RelatedId names, and one of type Organization for all users.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tidewire.events import Value
from tidewire.records.table import read_all_rows
from tidewire.records.types import read_sharing_rules
from tidewire.schema.catalog import Catalog
from tidewire.schema.sharing_rules import SharingRule
from tidewire.storage.store import Reader, Transaction

_ROLE_TYPES = ("Role", "RoleAndSubordinates")
_CHUNK = 500


@dataclass(frozen=True, slots=True)
class RuleOwners:
    """The owners whose records a rule shares: users with these roles, members of these groups, and these queues."""

    role_ids: tuple[str, ...] = ()
    group_ids: tuple[str, ...] = ()
    queue_ids: tuple[str, ...] = ()
    is_everyone: bool = False


@dataclass(frozen=True, slots=True)
class AppliedRule:
    """A sharing rule and whom it applies to. Without `owners` its criteria select the records."""

    rule: SharingRule
    owners: RuleOwners | None
    is_own: bool  # it applies to the user, not only to somebody below them


@dataclass(frozen=True, slots=True)
class SharingPrincipals:
    """One user's principals. The tuples that end in `_below` add those of people below the user."""

    user_id: str = ""
    role_id: str = ""
    roles_below: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    groups_below: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    queues_below: tuple[str, ...] = ()
    rules: tuple[AppliedRule, ...] = ()
    child_access: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """By role and field (`CaseAccessForAccountOwner`): Read or Edit, the access that owning an account gives."""
    every_rule: tuple[AppliedRule, ...] = ()
    """All sharing rules of the org in the order of their names, also those for other users."""
    every_child_access: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """`child_access` for all roles."""


NO_PRINCIPALS = SharingPrincipals()


def read_sharing_principals(
    reader: Reader | Transaction, catalog: Catalog, user: Mapping[str, Value]
) -> SharingPrincipals:
    """Read the user's principals, as of this reader's commit."""
    roles = _read_undeleted(reader, catalog, "UserRole")
    groups = {str(row["Id"]): row for row in _read_undeleted(reader, catalog, "Group")}
    role_id = str(user.get("UserRoleId") or "")
    below = _roles_below(roles, role_id)
    own = _groups_of(reader, catalog, groups, roles, str(user["Id"]), role_id)
    above = own | _groups_of_subordinates(reader, catalog, groups, roles, below)
    queues = frozenset(g for g, row in groups.items() if row["Type"] == "Queue")
    every_rule = tuple(
        AppliedRule(
            rule, _rule_owners(reader, catalog, groups, roles, rule.owned_by_id), rule.shared_with_id in own
        )
        for rule in read_sharing_rules(reader)
    )
    return SharingPrincipals(
        user_id=str(user["Id"]),
        role_id=role_id,
        roles_below=tuple(sorted(below)),
        groups=tuple(sorted(own - queues)),
        groups_below=tuple(sorted(above - queues)),
        queues=tuple(sorted(own & queues)),
        queues_below=tuple(sorted(above & queues)),
        rules=tuple(opened for opened in every_rule if opened.rule.shared_with_id in above),
        child_access=_child_access(roles, {role_id, *below}),
        every_rule=every_rule,
        every_child_access=_child_access(roles, {str(row["Id"]) for row in roles}),
    )


def _read_undeleted(reader: Reader | Transaction, catalog: Catalog, entity: str) -> list[dict[str, Value]]:
    return [row for row in read_all_rows(reader, catalog.object(entity)) if not row["IsDeleted"]]


def _roles_below(roles: Iterable[Mapping[str, Value]], role_id: str) -> frozenset[str]:
    """Return all roles below this one."""
    children: dict[str, list[str]] = {}
    for row in roles:
        children.setdefault(str(row["ParentRoleId"] or ""), []).append(str(row["Id"]))
    found: set[str] = set()
    pending = list(children.get(role_id, ())) if role_id else []
    while pending:
        each = pending.pop()
        if each not in found:
            found.add(each)
            pending += children.get(each, ())
    return frozenset(found)


def _with_roles_above(roles: Iterable[Mapping[str, Value]], role_ids: Iterable[str]) -> frozenset[str]:
    """Return these roles and all roles above them."""
    parents = {str(row["Id"]): str(row["ParentRoleId"] or "") for row in roles}
    found: set[str] = set()
    for each in role_ids:
        while each and each not in found:
            found.add(each)
            each = parents.get(each, "")
    return frozenset(found)


def _groups_of(
    reader: Reader | Transaction,
    catalog: Catalog,
    groups: Mapping[str, Mapping[str, Value]],
    roles: list[dict[str, Value]],
    user_id: str,
    role_id: str,
) -> frozenset[str]:
    """Return the groups that the user belongs to, directly, through their role or through other groups."""
    direct = _groups_with_member(reader, catalog, [user_id])
    above = _with_roles_above(roles, [role_id])
    for group_id, row in groups.items():
        related = str(row["RelatedId"] or "")
        is_role = row["Type"] == "Role" and related == role_id
        is_under = row["Type"] == "RoleAndSubordinates" and related in above
        if row["Type"] == "Organization" or (role_id and (is_role or is_under)):
            direct.add(group_id)
    return _with_enclosing_groups(reader, catalog, direct & groups.keys(), groups)


def _groups_of_subordinates(
    reader: Reader | Transaction,
    catalog: Catalog,
    groups: Mapping[str, Mapping[str, Value]],
    roles: list[dict[str, Value]],
    below: frozenset[str],
) -> frozenset[str]:
    """Return the groups of people below, except those that do not grant access to their members' managers."""
    if not below:
        return frozenset()
    known = _with_roles_above(roles, below)
    direct = {
        group_id
        for group_id, row in groups.items()
        if (row["Type"] == "Role" and row["RelatedId"] in below)
        or (row["Type"] == "RoleAndSubordinates" and row["RelatedId"] in known)
    }
    members, users = catalog.object("GroupMember"), catalog.object("User")
    columns = members.by_name
    for start in range(0, len(below), _CHUNK):
        chunk = sorted(below)[start : start + _CHUNK]
        # Names come from the catalog only.
        sql = (
            f"SELECT DISTINCT m.{columns['groupid'].column} FROM {members.table} AS m"  # noqa: S608
            f" JOIN {users.table} AS u ON u.id = m.{columns['userorgroupid'].column}"
            f" WHERE m.{columns['isdeleted'].column} = 0"
            f" AND u.{users.by_name['userroleid'].column} IN ({', '.join('?' * len(chunk))})"
        )
        direct |= {str(group_id) for (group_id,) in reader.execute(sql, chunk)}
    enclosing = _with_enclosing_groups(reader, catalog, direct & groups.keys(), groups)
    return frozenset(g for g in enclosing if groups[g]["DoesIncludeBosses"])


def _groups_with_member(reader: Reader | Transaction, catalog: Catalog, member_ids: list[str]) -> set[str]:
    """Return the groups that have one of these as a direct member."""
    members = catalog.object("GroupMember")
    columns = members.by_name
    found: set[str] = set()
    for start in range(0, len(member_ids), _CHUNK):
        chunk = member_ids[start : start + _CHUNK]
        sql = (
            f"SELECT DISTINCT {columns['groupid'].column} FROM {members.table}"  # noqa: S608
            f" WHERE {columns['isdeleted'].column} = 0"
            f" AND {columns['userorgroupid'].column} IN ({', '.join('?' * len(chunk))})"
        )
        found |= {str(group_id) for (group_id,) in reader.execute(sql, chunk)}
    return found


def _with_enclosing_groups(
    reader: Reader | Transaction,
    catalog: Catalog,
    group_ids: Iterable[str],
    groups: Mapping[str, Mapping[str, Value]],
) -> frozenset[str]:
    """Return these groups and all groups that contain them, directly or not."""
    found = set(group_ids)
    pending = sorted(found)
    while pending:
        fresh = (_groups_with_member(reader, catalog, pending) & groups.keys()) - found
        found |= fresh
        pending = sorted(fresh)
    return frozenset(found)


def _rule_owners(
    reader: Reader | Transaction,
    catalog: Catalog,
    groups: Mapping[str, Mapping[str, Value]],
    roles: list[dict[str, Value]],
    group_id: str,
) -> RuleOwners | None:
    """Return the owners that a group stands for, nested groups included; None without a group."""
    if not group_id:
        return None
    inside: set[str] = set()
    pending = [group_id] if group_id in groups else []
    while pending:
        each = pending.pop()
        if each not in inside:
            inside.add(each)
            pending += [m for m in _members(reader, catalog, each) if m in groups]
    of_roles = {g: groups[g] for g in inside if groups[g]["Type"] in _ROLE_TYPES and groups[g]["RelatedId"]}
    role_ids = {str(row["RelatedId"]) for row in of_roles.values()}
    for row in of_roles.values():
        if row["Type"] == "RoleAndSubordinates":
            role_ids |= _roles_below(roles, str(row["RelatedId"]))
    queue_ids = (group_id,) if group_id in inside and groups[group_id]["Type"] == "Queue" else ()
    return RuleOwners(
        role_ids=tuple(sorted(role_ids)),
        group_ids=tuple(sorted(inside - of_roles.keys() - set(queue_ids))),
        queue_ids=queue_ids,
        is_everyone=any(groups[g]["Type"] == "Organization" for g in inside),
    )


def _members(reader: Reader | Transaction, catalog: Catalog, group_id: str) -> list[str]:
    members = catalog.object("GroupMember")
    columns = members.by_name
    group = catalog.object("Group")
    sql = (
        f"SELECT {columns['userorgroupid'].column} FROM {members.table}"  # noqa: S608
        f" WHERE {columns['isdeleted'].column} = 0 AND {columns['groupid'].column} = ?"
        f" AND substr({columns['userorgroupid'].column}, 1, 3) = ?"
    )
    return [str(member) for (member,) in reader.execute(sql, (group_id, group.key_prefix))]


def _child_access(roles: Iterable[Mapping[str, Value]], role_ids: set[str]) -> dict[tuple[str, str], str]:
    return {
        (str(row["Id"]), name): str(level)
        for row in roles
        if str(row["Id"]) in role_ids
        for name, level in row.items()
        if name.endswith("AccessForAccountOwner") and level in ("Read", "Edit")
    }
