"""Record visibility: the one rule that says which records a user may read, edit or fully control.

The rule for an object is a condition on its records, built from the catalog and the user's sharing principals.
Queries AND it to their WHERE clause (as `Visibility`); writes and deliveries evaluate it for single ids. None means
every record, so public objects and users with View All or Modify All cost no SQL at all.

A record is accessible through any one of: its owner, or somebody below the user in the role hierarchy who owns it; a
share row; a sharing rule; its account; or, where a parent controls it, that parent.

Nothing is precomputed per record. The original platform stores calculated share rows and recalculates them in the
background; here owners, group members and rule criteria are part of the condition itself, so a changed owner, field,
member or rule counts from its commit on, and there is no window in which a stale grant leaks a record.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from functools import cached_property

from tidewire.access.derived_shares import DerivedShares
from tidewire.access.grants import Grants, ObjectGrant
from tidewire.access.sharing_principals import AppliedRule, RuleOwners
from tidewire.errors import RequestError
from tidewire.events import Change
from tidewire.records.rollups import parse_literal
from tidewire.records.work import UnitOfWork
from tidewire.schema.catalog import Catalog
from tidewire.schema.field_types import FieldType
from tidewire.schema.model import Field, ObjectType
from tidewire.schema.share_objects import level_field, parent_field, share_name
from tidewire.schema.standard.access import ACCOUNT_CHILDREN
from tidewire.soql.ast import Operator
from tidewire.soql.bound import (
    BoundAnd,
    BoundCompare,
    BoundCondition,
    BoundIn,
    BoundLike,
    BoundOr,
    BoundQuery,
    BoundSemiJoin,
    Column,
    DerivedRows,
)
from tidewire.soql.compile_sql import Among, compile_sql
from tidewire.soql.like import Wildcard
from tidewire.storage.store import Reader, Transaction

# Objects that have no owner: access to the record behind this lookup decides.
_PARTS = {
    "OpportunityLineItem": "OpportunityId",
    "OpportunityContactRole": "OpportunityId",
    "AccountContactRole": "AccountId",
    "OrderItem": "OrderId",
    "QuoteLineItem": "QuoteId",
    "ContractLineItem": "ServiceContractId",
    "CampaignMember": "CampaignId",
    "EventRelation": "EventId",
    "TaskRelation": "TaskId",
}
# Objects with an owner whose org-wide default may be ControlledByParent; then this lookup's record decides.
_MEMBERS = {"Contact": "AccountId", "Order": "AccountId", "Asset": "AccountId"}
_ACTIVITIES = frozenset({"Task", "Event"})
# Setup objects whose rows name another object: a user sees only the rows about objects that they may read.
_ABOUT_TYPES = frozenset({"RecordType", "QueueSobject"})
_CHUNK = 500  # ids in one statement; the rule's own parameters come on top


class Level(IntEnum):
    """How far a record is accessible. `FULL` is the right to delete it, share it or transfer its ownership."""

    READ = 1
    EDIT = 2
    FULL = 3


# What an org-wide default gives to everybody. No default gives FULL: only the owner side may delete or share.
_PUBLIC = {"Read": Level.READ, "ReadWrite": Level.EDIT}
# Access words of share rows and rules that satisfy a level: a higher grant includes the lower ones.
_LEVEL_WORDS = {
    Level.READ: ("Read", "Edit", "All"),
    Level.EDIT: ("Edit", "All"),
    Level.FULL: ("All",),
}


class Sharing:
    """One user's access to the records of one catalog.

    A value of one access generation and one catalog version: whoever holds it drops it when either changes. The two
    dictionaries only cache. Several threads may fill them at once, and then store equal conditions.
    """

    def __init__(self, grants: Grants, catalog: Catalog) -> None:
        self._grants = grants
        self._principals = grants.principals
        self._catalog = catalog
        self._known: dict[tuple[str, Level], BoundCondition | None] = {}
        self._derived: dict[str, tuple[DerivedRows, ...]] = {}

    @property
    def user_id(self) -> str:
        """The user whose access this is."""
        return self._principals.user_id

    def __call__(self, obj: ObjectType, /) -> BoundCondition | None:
        """Return the condition that queries add, as the protocol `Visibility` asks for it."""
        return self.visibility(obj)

    def derived(self, obj: ObjectType, /) -> tuple[DerivedRows, ...]:
        """Return the computed rows of a share object: those of owners, rules and accounts.

        They are built from the rules of all users (`every_rule`), not only from those that apply to this one: a share
        object lists everybody with access to the records that its reader may see.
        """
        if not obj.shares:
            return ()
        if obj.name not in self._derived:
            shared = self._catalog.object(obj.shares)
            rules = [
                (opened.rule, condition)
                for opened in self._principals.every_rule
                if opened.rule.entity == shared.name and (condition := self._rule(shared, opened)) is not None
            ]
            found = DerivedShares(self._catalog, obj).all(rules, self._principals.every_child_access)
            self._derived[obj.name] = found
        return self._derived[obj.name]

    def grant(self, obj: ObjectType) -> ObjectGrant:
        """Return the user's permissions on an object."""
        return self._grants.on(obj.name)

    def filter_existing(self, reader: Reader, obj: ObjectType, ids: Sequence[str]) -> set[str]:
        """Return the ids of records that exist and are not deleted, whether or not the user sees them."""
        return _select_ids(reader, BoundQuery(obj, ()), ids, include_deleted=False)

    def can_transfer(self, obj: ObjectType) -> bool:
        """Whether edit access is enough to change a record's owner. Otherwise it takes `Level.FULL`."""
        return self._grants.has("TransferAnyEntity") or self._grants.has(f"TransferAny{obj.name}")

    def can_read_object(self, obj: ObjectType) -> bool:
        """Whether the user has read permission on an object."""
        return self._grants.can_read(obj.name)

    def visibility(self, obj: ObjectType) -> BoundCondition | None:
        """Return the condition for readable records; None for all."""
        return self.condition(obj, Level.READ)

    def condition(self, obj: ObjectType, level: Level) -> BoundCondition | None:
        """Return the condition for records accessible at a level; None for all.

        Object permissions are not part of it: callers check those first.
        """
        key = (obj.name, level)
        if key not in self._known:
            self._known[key] = self._condition(obj, level)
        return self._known[key]

    def filter_accessible(
        self, reader: Reader | Transaction, obj: ObjectType, ids: Sequence[str], level: Level
    ) -> set[str]:
        """Return the ids of records, deleted or not, that are accessible at a level."""
        rule = self.condition(obj, level)
        if rule is None:
            return set(ids)
        # Deleted records too: undelete, and notifications of deletes, are subject to the same rule.
        return _select_ids(reader, BoundQuery(obj, (), rule), ids, include_deleted=True)

    def level_to_reference(self, obj: ObjectType, lookup: Field) -> Level:
        """Return the access to the target that setting this lookup needs."""
        if obj.shares and lookup is parent_field(obj):
            return Level.FULL  # whoever writes a share row gives a record away
        # A child of a master changes its master (roll-ups, sharing); so does a record that its account controls.
        is_part = lookup.is_master_detail or _PARTS.get(obj.name) == lookup.name
        is_member = obj.internal_sharing == "ControlledByParent" and _MEMBERS.get(obj.name) == lookup.name
        return Level.EDIT if is_part or is_member else Level.READ

    def _condition(self, obj: ObjectType, level: Level) -> BoundCondition | None:
        # The order matters: each test below relies on the ones above it having returned.
        if self._is_all_open(obj, level):
            return None
        if obj.name == "User":
            return self._users(obj, level)
        if obj.name in _ABOUT_TYPES:
            known = tuple(o.name for o in self._catalog.objects if self._grants.can_read(o.name))
            return BoundIn(Column(obj.by_name["sobjecttype"]), known)
        if obj.shares:
            # A share row is visible with its record. Changing one is sharing the record, which takes FULL.
            parent = self._catalog.object(obj.shares)
            return self._through(parent_field(obj), parent, Level.READ if level is Level.READ else Level.FULL)
        masters = [f for f in obj.fields if f.is_master_detail]
        if obj.name in _PARTS:
            masters = [obj.by_name[_PARTS[obj.name].lower()]]
        if masters:
            # With two masters both must be accessible. A detail has no owner, so edit access to the masters includes
            # deleting it: FULL on the detail asks for no more than EDIT above.
            needed = min(level, Level.EDIT)
            parents = [self._through(f, self._catalog.object(f.reference_to[0]), needed) for f in masters]
            return _all(each for each in parents if each is not None)
        # Objects without an owner or a parent, such as Product2, are governed by object permissions alone.
        if "ownerid" not in obj.by_name or _PUBLIC.get(obj.internal_sharing, 0) >= level:
            return None
        if obj.name in _ACTIVITIES:
            return _any([*self._owned(obj), *self._of_parents(obj, level)])
        if obj.internal_sharing == "ControlledByParent" and obj.name in _MEMBERS:
            return self._member(obj, level)
        if level is Level.FULL:
            # Shares and rules give at most Edit; deleting and transferring stay with the owner and those above.
            return _any(self._owned(obj))
        return _any(
            [*self._direct(obj, level), *self._of_account(obj, level), *self._of_children(obj, level)]
        )

    def _is_all_open(self, obj: ObjectType, level: Level) -> bool:
        grants = self._grants
        if obj.name == "User":
            if level is Level.READ:
                return obj.internal_sharing != "Private" or grants.has("ViewAllUsers")
            return grants.has("ManageUsers")
        if obj.is_setup and not obj.shares:
            return obj.name not in _ABOUT_TYPES or self._knows_all_types
        if level is Level.READ:
            return grants.can_view_all(obj.name)
        return grants.can_modify_all(obj.name)

    @cached_property
    def _knows_all_types(self) -> bool:
        return all(self._grants.can_read(obj.name) for obj in self._catalog.objects)

    def _users(self, obj: ObjectType, level: Level) -> BoundCondition:
        """Users see themselves and the people below them; they edit only themselves."""
        own = BoundCompare(Column(obj.by_name["id"]), Operator.EQ, self._principals.user_id)
        if level is not Level.READ or not self._principals.roles_below:
            return own
        below = BoundIn(Column(obj.by_name["userroleid"]), self._principals.roles_below)
        return BoundOr((own, below))

    # access through the record itself

    def _direct(self, obj: ObjectType, level: Level) -> list[BoundCondition]:
        return [*self._owned(obj), *self._shared(obj, level), *self._ruled(obj, level)]

    def _owned(self, obj: ObjectType) -> list[BoundCondition]:
        """Owned by the user, by a queue of theirs or, with the role hierarchy on, by somebody below."""
        principals = self._principals
        owner = Column(obj.by_name["ownerid"])
        queues = principals.queues_below if obj.uses_hierarchy else principals.queues
        arms: list[BoundCondition] = [BoundIn(owner, (principals.user_id, *queues))]
        if obj.uses_hierarchy and principals.roles_below:
            arms.append(self._with_role(owner, principals.roles_below))
        return arms

    def _with_role(self, person: Column, role_ids: tuple[str, ...]) -> BoundCondition:
        # A semi-join instead of a list of users: there may be many thousands below a role, but few roles, and a user
        # who moves to another role counts at once.
        users = self._catalog.object("User")
        found = BoundQuery(users, (), BoundIn(Column(users.by_name["userroleid"]), role_ids))
        return BoundSemiJoin(person, found, Column(users.by_name["id"]))

    def _shared(self, obj: ObjectType, level: Level) -> list[BoundCondition]:
        """Opened by a manual share row to the user, to a group of theirs or to somebody below."""
        share = self._catalog.try_object(share_name(obj.name))
        if share is None:
            return []  # the object cannot be shared by hand
        rows = self._share_rows(share, level_field(share), level, has_below=obj.uses_hierarchy)
        return [BoundSemiJoin(Column(obj.by_name["id"]), rows, Column(parent_field(share)))]

    def _share_rows(self, share: ObjectType, granted: Field, level: Level, *, has_below: bool) -> BoundQuery:
        """Return the query for share rows that give the user a level; `granted` is the field with the access word."""
        principals = self._principals
        grantee = Column(share.by_name["userorgroupid"])
        groups = principals.groups_below if has_below else principals.groups
        grantees: list[BoundCondition] = [BoundIn(grantee, (principals.user_id, *groups))]
        if has_below and principals.roles_below:
            grantees.append(self._with_role(grantee, principals.roles_below))
        tests = (
            _any(grantees),
            BoundIn(Column(granted), _LEVEL_WORDS[level]),
            # Said here because a queryAll includes deleted rows of every object, and a deleted share must open nothing.
            BoundCompare(Column(share.by_name["isdeleted"]), Operator.EQ, False),
        )
        return BoundQuery(share, (), BoundAnd(tests))

    def _ruled(self, obj: ObjectType, level: Level) -> list[BoundCondition]:
        """Opened by a sharing rule for the user, or with the role hierarchy for somebody below."""
        arms = []
        for opened in self._principals.rules:
            rule = opened.rule
            is_meant = rule.entity == obj.name and (opened.is_own or obj.uses_hierarchy)
            if is_meant and rule.access in _LEVEL_WORDS[level]:
                arms.append(self._rule(obj, opened))
        return [arm for arm in arms if arm is not None]

    def _rule(self, obj: ObjectType, opened: AppliedRule) -> BoundCondition | None:
        """Return the records that a rule opens; None if it opens none."""
        if opened.owners is not None:
            return self._owned_by(obj, opened.owners)
        tests: list[BoundCondition] = []
        for name, operator, literal in opened.rule.criteria:
            tested = obj.try_field(name)
            if tested is None or not tested.column or _is_senseless(tested, operator):
                return None
            try:
                value = parse_literal(tested, literal)
            except RequestError:
                return (
                    None  # the field's type has changed since; a criterion that cannot be read opens nothing
                )
            tests.append(BoundCompare(Column(tested), Operator(operator), value))
        # A rule without criteria opens every record: the id is never null.
        return _all(tests) or BoundCompare(Column(obj.by_name["id"]), Operator.NE, None)

    def _owned_by(self, obj: ObjectType, owners: RuleOwners) -> BoundCondition | None:
        owner = Column(obj.by_name["ownerid"])
        if owners.is_everyone:
            # All users, but not queues: told apart by the prefix of the owner's id.
            return BoundLike(owner, (self._catalog.object("User").key_prefix, Wildcard.ANY))
        arms: list[BoundCondition] = []
        if owners.queue_ids:
            arms.append(BoundIn(owner, owners.queue_ids))
        if owners.role_ids:
            arms.append(self._with_role(owner, owners.role_ids))
        if owners.group_ids:
            members = self._catalog.object("GroupMember")
            of_groups = BoundIn(Column(members.by_name["groupid"]), owners.group_ids)
            living = BoundCompare(Column(members.by_name["isdeleted"]), Operator.EQ, False)
            found = BoundQuery(members, (), BoundAnd((of_groups, living)))
            arms.append(BoundSemiJoin(owner, found, Column(members.by_name["userorgroupid"])))
        return _any(arms) if arms else None

    # access through other records

    def _through(self, lookup: Field, parent: ObjectType, level: Level) -> BoundCondition | None:
        """Return the records whose lookup points at an accessible parent; None if all parents are accessible.

        Recursion ends because parents form no cycle: masters, parts and account controls lead upwards only.
        """
        rule = self.condition(parent, level)
        if rule is None:
            return None
        return BoundSemiJoin(Column(lookup), BoundQuery(parent, (), rule), Column(parent.by_name["id"]))

    def _member(self, obj: ObjectType, level: Level) -> BoundCondition:
        """Controlled by its account; without an account the owner decides."""
        lookup = obj.by_name[_MEMBERS[obj.name].lower()]
        opened = self._through(lookup, self._catalog.object("Account"), level)
        alone = BoundCompare(Column(lookup), Operator.EQ, None)
        own = BoundAnd((alone, _any(self._owned(obj))))
        return _any([own, opened or BoundCompare(Column(lookup), Operator.NE, None)])

    def _of_parents(self, obj: ObjectType, level: Level) -> list[BoundCondition]:
        """Activities: readable with the record they are about, editable with it if they are ControlledByParent."""
        if level is not Level.READ and obj.internal_sharing != "ControlledByParent":
            return []
        arms: list[BoundCondition] = []
        for lookup in (obj.by_name["whatid"], obj.by_name["whoid"]):
            for name in lookup.reference_to:
                target = self._catalog.try_object(name)
                if target is None or not self._grants.can_read(name):
                    continue
                opened = self._through(lookup, target, min(level, Level.EDIT))
                # WhatId and WhoId point at many objects. Where all of one are accessible, its id prefix is enough.
                arms.append(opened or BoundLike(Column(lookup), (target.key_prefix, Wildcard.ANY)))
        return arms

    def _of_account(self, obj: ObjectType, level: Level) -> list[BoundCondition]:
        """Contacts, opportunities and cases that come with access to their account.

        Two ways: owning the account, if the owner's role says so (`ContactAccessForAccountOwner` and the like), and a
        share of the account, which carries an access word for each kind of child.
        """
        if obj.name not in ACCOUNT_CHILDREN or level is Level.FULL:
            return []
        principals, account = self._principals, self._catalog.object("Account")
        lookup, owner = Column(obj.by_name["accountid"]), Column(account.by_name["ownerid"])
        words = _LEVEL_WORDS[level]
        setting = f"{obj.name}AccessForAccountOwner"
        opening = {
            role
            for (role, name), word in principals.child_access.items()
            if name == setting and word in words
        }
        # The owner's role counts, not the reader's: a manager inherits what each role below gives its account owners.
        arms: list[BoundCondition] = []
        if principals.role_id in opening:
            arms.append(BoundCompare(owner, Operator.EQ, principals.user_id))
        below = tuple(sorted(opening.intersection(principals.roles_below)))
        if below:
            arms.append(self._with_role(owner, below))
        found: list[BoundCondition] = []
        if arms:
            found.append(
                BoundSemiJoin(lookup, BoundQuery(account, (), _any(arms)), Column(account.by_name["id"]))
            )
        share = self._catalog.try_object(share_name("Account"))
        granted = None if share is None else share.try_field(f"{obj.name}AccessLevel")
        if share is not None and granted is not None:
            rows = self._share_rows(share, granted, level, has_below=True)
            found.append(BoundSemiJoin(lookup, rows, Column(parent_field(share))))
        return found

    def _of_children(self, obj: ObjectType, level: Level) -> list[BoundCondition]:
        """Accounts: readable by whoever has direct access to one of their contacts, opportunities or cases."""
        if obj.name != "Account" or level is not Level.READ:
            return []
        arms: list[BoundCondition] = []
        for name in ACCOUNT_CHILDREN:
            child = self._catalog.object(name)
            if child.internal_sharing != "ControlledByParent" and self._grants.can_read(name):
                # Only direct access counts. With access that a child has through its account, account and child
                # would open each other, and the condition would never end.
                found = BoundQuery(child, (), _any(self._direct(child, Level.READ)))
                arms.append(
                    BoundSemiJoin(Column(obj.by_name["id"]), found, Column(child.by_name["accountid"]))
                )
        return arms


def forget_manual_shares(unit: UnitOfWork, changes: Iterable[Change]) -> None:
    """Delete the manual shares of records that changed owner, inside their transaction.

    The former owner gave that access. Rules and accounts need nothing: they follow the new owner by themselves.
    """
    for change in changes:
        if "OwnerId" not in change.changed:
            continue
        share = unit.catalog.try_object(share_name(change.entity))
        if share is not None:
            # Names come from the catalog only.
            unit.tx.execute(
                f"DELETE FROM {share.table} WHERE {parent_field(share).column} = ?",  # noqa: S608
                (change.record_id,),
            )


def _select_ids(
    reader: Reader | Transaction, bound: BoundQuery, ids: Sequence[str], *, include_deleted: bool
) -> set[str]:
    """Return the ids that a query selects."""
    record_id = bound.entity.by_name["id"]
    found: set[str] = set()
    for start in range(0, len(ids), _CHUNK):
        among = Among(record_id, ids[start : start + _CHUNK])
        sql = compile_sql(bound, include_deleted=include_deleted, among=among, columns=(record_id,))
        found |= {str(row[0]) for row in reader.execute(sql.text, sql.params)}
    return found


def _is_senseless(tested: Field, operator: str) -> bool:
    return tested.type is FieldType.CHECKBOX and operator not in ("=", "!=")


def _any(items: Iterable[BoundCondition]) -> BoundCondition:
    """Combine conditions by OR; there is at least one. Flattened, so that the SQL stays shallow."""
    flat = [each for item in items for each in (item.items if isinstance(item, BoundOr) else (item,))]
    return flat[0] if len(flat) == 1 else BoundOr(tuple(flat))


def _all(items: Iterable[BoundCondition]) -> BoundCondition | None:
    """Combine conditions by AND; None without any."""
    flat = [each for item in items for each in (item.items if isinstance(item, BoundAnd) else (item,))]
    if len(flat) > 1:
        return BoundAnd(tuple(flat))
    return flat[0] if flat else None
