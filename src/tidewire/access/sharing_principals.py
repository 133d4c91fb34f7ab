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
    tree = _Hierarchy(reader, catalog, roles, groups)
    role_id = str(user.get("UserRoleId") or "")
    below = tree.roles_below(role_id)
    own = tree.groups_of(str(user["Id"]), role_id)
    above = own | tree.groups_of_subordinates(below)
    queues = frozenset(g for g, row in groups.items() if row["Type"] == "Queue")
    every_rule = tuple(
        AppliedRule(rule, tree.rule_owners(rule.owned_by_id), rule.shared_with_id in own)
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


@dataclass(frozen=True, slots=True)
class _Hierarchy:
    """The roles and groups of an org, in one snapshot."""

    reader: Reader | Transaction
    catalog: Catalog
    roles: list[dict[str, Value]]
    groups: Mapping[str, Mapping[str, Value]]

    def roles_below(self, role_id: str) -> frozenset[str]:
        """Return all roles below this one."""
        children: dict[str, list[str]] = {}
        for row in self.roles:
            children.setdefault(str(row["ParentRoleId"] or ""), []).append(str(row["Id"]))
        found: set[str] = set()
        pending = list(children.get(role_id, ())) if role_id else []
        while pending:
            each = pending.pop()
            if each not in found:
                found.add(each)
                pending += children.get(each, ())
        return frozenset(found)

    def _with_roles_above(self, role_ids: Iterable[str]) -> frozenset[str]:
        """Return these roles and all roles above them."""
        parents = {str(row["Id"]): str(row["ParentRoleId"] or "") for row in self.roles}
        found: set[str] = set()
        for each in role_ids:
            while each and each not in found:
                found.add(each)
                each = parents.get(each, "")
        return frozenset(found)

    def groups_of(self, user_id: str, role_id: str) -> frozenset[str]:
        """Return the groups that the user belongs to, directly, through their role or through other groups."""
        direct = self._groups_with_member([user_id])
        direct |= {group_id for group_id, row in self.groups.items() if row["Type"] == "Organization"}
        if role_id:
            direct |= self._groups_of_roles(frozenset({role_id}))
        return self._with_enclosing_groups(direct)

    def groups_of_subordinates(self, below: frozenset[str]) -> frozenset[str]:
        """Return the groups of people below, except those that do not grant access to their members' managers."""
        if not below:
            return frozenset()
        direct = self._groups_of_roles(below)
        members, users = self.catalog.object("GroupMember"), self.catalog.object("User")
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
            direct |= {str(group_id) for (group_id,) in self.reader.execute(sql, chunk)}
        enclosing = self._with_enclosing_groups(direct)
        return frozenset(g for g in enclosing if self.groups[g]["DoesIncludeBosses"])

    def _groups_of_roles(self, role_ids: frozenset[str]) -> set[str]:
        """Return the groups that stand for the people in one of these roles."""
        above = self._with_roles_above(role_ids)
        return {
            group_id
            for group_id, row in self.groups.items()
            if (row["Type"] == "Role" and row["RelatedId"] in role_ids)
            or (row["Type"] == "RoleAndSubordinates" and row["RelatedId"] in above)
        }

    def _groups_with_member(self, member_ids: list[str]) -> set[str]:
        """Return the groups that have one of these as a direct member."""
        members = self.catalog.object("GroupMember")
        columns = members.by_name
        found: set[str] = set()
        for start in range(0, len(member_ids), _CHUNK):
            chunk = member_ids[start : start + _CHUNK]
            sql = (
                f"SELECT DISTINCT {columns['groupid'].column} FROM {members.table}"  # noqa: S608
                f" WHERE {columns['isdeleted'].column} = 0"
                f" AND {columns['userorgroupid'].column} IN ({', '.join('?' * len(chunk))})"
            )
            found |= {str(group_id) for (group_id,) in self.reader.execute(sql, chunk)}
        return found

    def _with_enclosing_groups(self, group_ids: set[str]) -> frozenset[str]:
        """Return these groups and all groups that contain them, directly or not."""
        found = group_ids & self.groups.keys()
        pending = sorted(found)
        while pending:
            fresh = (self._groups_with_member(pending) & self.groups.keys()) - found
            found |= fresh
            pending = sorted(fresh)
        return frozenset(found)

    def rule_owners(self, group_id: str) -> RuleOwners | None:
        """Return the owners that a group stands for, nested groups included; None without a group."""
        if not group_id:
            return None
        groups = self.groups
        inside: set[str] = set()
        pending = [group_id] if group_id in groups else []
        while pending:
            each = pending.pop()
            if each not in inside:
                inside.add(each)
                pending += [m for m in self._member_groups(each) if m in groups]
        of_roles = {
            g: groups[g] for g in inside if groups[g]["Type"] in _ROLE_TYPES and groups[g]["RelatedId"]
        }
        role_ids = {str(row["RelatedId"]) for row in of_roles.values()}
        for row in of_roles.values():
            if row["Type"] == "RoleAndSubordinates":
                role_ids |= self.roles_below(str(row["RelatedId"]))
        queue_ids = (group_id,) if group_id in inside and groups[group_id]["Type"] == "Queue" else ()
        return RuleOwners(
            role_ids=tuple(sorted(role_ids)),
            group_ids=tuple(sorted(inside - of_roles.keys() - set(queue_ids))),
            queue_ids=queue_ids,
            is_everyone=any(groups[g]["Type"] == "Organization" for g in inside),
        )

    def _member_groups(self, group_id: str) -> list[str]:
        members = self.catalog.object("GroupMember")
        columns = members.by_name
        sql = (
            f"SELECT {columns['userorgroupid'].column} FROM {members.table}"  # noqa: S608
            f" WHERE {columns['isdeleted'].column} = 0 AND {columns['groupid'].column} = ?"
            f" AND substr({columns['userorgroupid'].column}, 1, 3) = ?"
        )
        prefix = self.catalog.object("Group").key_prefix
        return [str(member) for (member,) in self.reader.execute(sql, (group_id, prefix))]


def _child_access(roles: Iterable[Mapping[str, Value]], role_ids: set[str]) -> dict[tuple[str, str], str]:
    return {
        (str(row["Id"]), name): str(level)
        for row in roles
        if str(row["Id"]) in role_ids
        for name, level in row.items()
        if name.endswith("AccessForAccountOwner") and level in ("Read", "Edit")
    }
