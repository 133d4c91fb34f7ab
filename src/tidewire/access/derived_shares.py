"""Derived share rows: rows of share objects that are not stored but computed from owners, rules and accounts.

A row's id is derived from its record's id, so it stays the same from page to page: the share object's prefix and the
pod, one character for the cause, two that number rules or kinds of children, and the last seven digits of the record's
number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

from tidewire.ids import POD, case_suffix
from tidewire.schema.catalog import Catalog
from tidewire.schema.model import ObjectType
from tidewire.schema.share_objects import (
    IMPLICIT_CHILD,
    IMPLICIT_PARENT,
    OWNER,
    RULE,
    level_field,
    parent_field,
)
from tidewire.schema.sharing_rules import DEFAULT_ACCESS_LEVELS, SharingRule
from tidewire.schema.standard.access import ACCOUNT_CHILDREN
from tidewire.soql.ast import Operator
from tidewire.soql.bound import (
    BoundAnd,
    BoundCompare,
    BoundCondition,
    BoundIn,
    BoundLike,
    BoundQuery,
    BoundSemiJoin,
    Column,
    DerivedRows,
    Step,
)
from tidewire.soql.like import Wildcard

_CAUSE_MARKS = {OWNER: "1", RULE: "2", IMPLICIT_CHILD: "3", IMPLICIT_PARENT: "4"}
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"  # no capitals: they would change an id's case checksum
_MAX_RULES = len(_DIGITS) ** 2


def is_derived(record_id: str) -> bool:
    """Whether the id belongs to a derived share row."""
    return record_id[5] in _CAUSE_MARKS.values()


def derived_id(prefix: str, cause_mark: str, number: int) -> tuple[str, str]:
    """Return the start of derived ids, before the record's digits, and the first character of their checksum."""
    high, low = divmod(number, len(_DIGITS))
    start = prefix + POD + cause_mark + _DIGITS[high] + _DIGITS[low]
    return start, case_suffix(start + "0" * 7)[0]


class DerivedShares:
    """Builds the derived rows of one share object."""

    def __init__(self, catalog: Catalog, share: ObjectType) -> None:
        self._catalog = catalog
        self._share = share
        self._shared = catalog.object(share.shares)

    def all(
        self,
        rules: Iterable[tuple[SharingRule, BoundCondition]],
        child_access: Mapping[tuple[str, str], str],
    ) -> tuple[DerivedRows, ...]:
        """Return all derived rows; `rules` are this object's, each with the condition of the records it shares."""
        if self._shared.internal_sharing == "ControlledByParent":
            return ()
        shared = self._shared
        record, owner = Column(shared.by_name["id"]), Column(shared.by_name["ownerid"])
        found = [self._rows(OWNER, 0, shared, None, record, owner, "All")]
        for number, (rule, opened) in enumerate(islice(rules, _MAX_RULES)):
            found.append(self._rows(RULE, number, shared, opened, record, rule.shared_with_id, rule.access))
        if self._shared.name in ACCOUNT_CHILDREN:
            found += self._of_account(child_access)
        if self._shared.name == "Account" and self._shared.internal_sharing == "Private":
            found += self._of_children()
        return tuple(found)

    def _of_account(self, child_access: Mapping[tuple[str, str], str]) -> list[DerivedRows]:
        """Rows for owners of a record's account, whose role gives them access to its children."""
        child, account = self._shared, self._catalog.object("Account")
        to_account = (Step(child.by_name["accountid"], account),)
        owner = Column(account.by_name["ownerid"], to_account)
        record, own = Column(child.by_name["id"]), Column(child.by_name["ownerid"])
        users = self._catalog.object("User")
        found = []
        for number, level in enumerate(("Read", "Edit")):
            setting = f"{child.name}AccessForAccountOwner"
            roles = sorted(
                role for (role, name), word in child_access.items() if name == setting and word == level
            )
            if not roles or level in DEFAULT_ACCESS_LEVELS.get(child.internal_sharing, ()):
                continue
            people = BoundQuery(users, (), BoundIn(Column(users.by_name["userroleid"]), tuple(roles)))
            opened = BoundSemiJoin(owner, people, Column(users.by_name["id"]))
            rows = self._rows(IMPLICIT_CHILD, number, child, opened, record, owner, level, apart=(owner, own))
            found.append(rows)
        return found

    def _of_children(self) -> list[DerivedRows]:
        children = [self._catalog.object(name) for name in ACCOUNT_CHILDREN]
        return [
            self._of_child(number, child)
            for number, child in enumerate(children)
            if child.internal_sharing != "ControlledByParent"
        ]

    def _of_child(self, number: int, child: ObjectType) -> DerivedRows:
        """Rows for owners of an account's child records, who may read the account."""
        account = self._shared
        lookup, owner = child.by_name["accountid"], Column(child.by_name["ownerid"])
        account_owner = Column(account.by_name["ownerid"], (Step(lookup, account),))
        living: list[BoundCondition] = [
            BoundCompare(Column(child.by_name["isdeleted"]), Operator.EQ, False),
            BoundLike(owner, (self._catalog.object("User").key_prefix, Wildcard.ANY)),
        ]
        apart = (owner, account_owner)
        where = BoundAnd(tuple(living))
        return self._rows(IMPLICIT_PARENT, number, child, where, Column(lookup), owner, "Read", apart=apart)

    def _rows(
        self,
        cause: str,
        number: int,
        source: ObjectType,
        where: BoundCondition | None,
        record: Column,
        grantee: Column | str,
        level: str,
        *,
        apart: tuple[Column, Column] | None = None,
    ) -> DerivedRows:
        share = self._share
        start, mark = derived_id(share.key_prefix, _CAUSE_MARKS[cause], number)
        parent, granted = parent_field(share).name, level_field(share).name
        others = {f"{name}AccessLevel": "None" for name in ACCOUNT_CHILDREN if share.shares == "Account"}
        kept = ("LastModifiedDate", "LastModifiedById", "IsDeleted")
        return DerivedRows(
            source=source,
            where=where,
            values={
                **others,
                **{name: Column(source.by_name[name.lower()]) for name in kept},
                parent: record,
                "UserOrGroupId": grantee,
                granted: level,
                "RowCause": cause,
            },
            id_start=start,
            id_mark=mark,
            apart=apart,
            # The owner's row is the only one of its cause; any other pair may be opened in several ways.
            merged_by=() if cause == OWNER else (parent, "UserOrGroupId", "RowCause"),
        )
