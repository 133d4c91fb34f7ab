"""Whom a user stands for when records are shared: themselves, the people below them, and groups of any kind.

A record that is open to somebody is open to everybody above them in the hierarchy of roles too, so a user
reaches what the people below do. Groups may hold groups; one of type Role, or RoleAndSubordinates, stands
for the people of the role in RelatedId, and Organization for all.
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
    """Owners: everybody with one of these roles, the members of these groups, and these queues themselves."""

    role_ids: tuple[str, ...] = ()
    group_ids: tuple[str, ...] = ()
    queue_ids: tuple[str, ...] = ()
    is_everyone: bool = False


@dataclass(frozen=True, slots=True)
class AppliedRule:
    """A sharing rule that opens records to the user; without `owners` it goes by its criteria."""

    rule: SharingRule
    owners: RuleOwners | None
    is_own: bool  # whether it opens them to the user and not only to people below


@dataclass(frozen=True, slots=True)
class SharingPrincipals:
    """Whom one user stands for. The sets that end in `_below` include what only people below are in."""

    user_id: str = ""
    role_id: str = ""
    roles_below: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    groups_below: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    queues_below: tuple[str, ...] = ()
    rules: tuple[AppliedRule, ...] = ()
    child_access: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """By role and field, such as `CaseAccessForAccountOwner`: Read or Edit, what owning an account gives."""
    every_rule: tuple[AppliedRule, ...] = ()
    """The org's sharing rules in the order of their names, whomever they are for."""
    every_child_access: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """`child_access` of all roles."""


NO_PRINCIPALS = SharingPrincipals()


def read_sharing_principals(
    reader: Reader | Transaction, catalog: Catalog, user: Mapping[str, Value]
) -> SharingPrincipals:
    """Whom the user stands for, as of this reader's commit."""
    roles = _living(reader, catalog, "UserRole")
    groups = {str(row["Id"]): row for row in _living(reader, catalog, "Group")}
    role_id = str(user.get("UserRoleId") or "")
    below = _below(roles, role_id)
    own = _groups_of(reader, catalog, groups, roles, str(user["Id"]), role_id)
    above = own | _groups_of_people_below(reader, catalog, groups, roles, below)
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


def _living(reader: Reader | Transaction, catalog: Catalog, entity: str) -> list[dict[str, Value]]:
    return [row for row in read_all_rows(reader, catalog.object(entity)) if not row["IsDeleted"]]


def _below(roles: Iterable[Mapping[str, Value]], role_id: str) -> frozenset[str]:
    """The roles under this one, however far."""
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


def _and_above(roles: Iterable[Mapping[str, Value]], role_ids: Iterable[str]) -> frozenset[str]:
    """These roles and those over them."""
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
    direct = _holding(reader, catalog, [user_id])
    above = _and_above(roles, [role_id])
    for group_id, row in groups.items():
        related = str(row["RelatedId"] or "")
        is_role = row["Type"] == "Role" and related == role_id
        is_under = row["Type"] == "RoleAndSubordinates" and related in above
        if row["Type"] == "Organization" or (role_id and (is_role or is_under)):
            direct.add(group_id)
    return _enclosing(reader, catalog, direct & groups.keys(), groups)


def _groups_of_people_below(
    reader: Reader | Transaction,
    catalog: Catalog,
    groups: Mapping[str, Mapping[str, Value]],
    roles: list[dict[str, Value]],
    below: frozenset[str],
) -> frozenset[str]:
    """Groups that somebody below is in, unless the group keeps to its members."""
    if not below:
        return frozenset()
    known = _and_above(roles, below)
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
    enclosing = _enclosing(reader, catalog, direct & groups.keys(), groups)
    return frozenset(g for g in enclosing if groups[g]["DoesIncludeBosses"])


def _holding(reader: Reader | Transaction, catalog: Catalog, member_ids: list[str]) -> set[str]:
    """The groups that one of these is a member of."""
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


def _enclosing(
    reader: Reader | Transaction,
    catalog: Catalog,
    group_ids: Iterable[str],
    groups: Mapping[str, Mapping[str, Value]],
) -> frozenset[str]:
    """These groups and all that hold them, however deep."""
    found = set(group_ids)
    pending = sorted(found)
    while pending:
        fresh = (_holding(reader, catalog, pending) & groups.keys()) - found
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
    """The owners that a group stands for, groups inside it included."""
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
            role_ids |= _below(roles, str(row["RelatedId"]))
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
