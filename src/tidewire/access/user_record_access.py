"""UserRecordAccess: a SOQL object that shows a user's access to single records.

It has no stored rows. A query must filter by one user and by record ids; their access is read first, and the query then
runs over one derived row per record. A record that does not exist has a row without any access, so that the answer does
not reveal which ids exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidewire.access.derived_shares import derived_id
from tidewire.access.grants import ObjectGrant
from tidewire.access.sharing import Level, Sharing
from tidewire.errors import FilterInvalid
from tidewire.ids import normalise_id
from tidewire.schema.catalog import Catalog
from tidewire.schema.fields import checkbox, lookup, picklist
from tidewire.schema.layout import identity_fields, with_columns
from tidewire.schema.model import ObjectType
from tidewire.soql.ast import (
    And,
    Comparison,
    Condition,
    FieldPath,
    Literal,
    Membership,
    Operator,
    Query,
    SetOperator,
    StringLiteral,
)
from tidewire.soql.bound import BoundCondition, DerivedRows
from tidewire.storage.store import Reader

NAME = "UserRecordAccess"
MAX_RECORDS = 200
_PREFIX = "0J7"
_FLAGS = ("HasReadAccess", "HasEditAccess", "HasDeleteAccess", "HasTransferAccess", "HasAllAccess")
_LEVELS = ("None", "Read", "Edit", "Delete", "Transfer", "All")
_USER_ID, _RECORD_ID = "UserId", "RecordId"

RECORD_ACCESS = ObjectType(
    name=NAME,
    label="User Record Access",
    label_plural="User Record Access",
    key_prefix=_PREFIX,
    fields=with_columns(
        (
            *identity_fields(has_is_deleted=False),
            lookup(_USER_ID, "User ID", "User", ""),
            lookup(_RECORD_ID, "Record ID", (), ""),
            *(checkbox(name, name) for name in _FLAGS),
            picklist("MaxAccessLevel", "Max Access Level", ";".join(_LEVELS)),
        )
    ),
    createable=False,
    updateable=False,
    deletable=False,
    is_setup=True,
)


@dataclass(frozen=True, slots=True)
class AccessQuery:
    """The user and the records that a query names."""

    user_id: str
    record_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AccessRows:
    """The derived rows of one query, as its `Visibility`; all of them are visible."""

    source: ObjectType  # an object with exactly one record, from which each row is derived
    user_id: str
    access: Mapping[str, frozenset[str]]

    def __call__(self, obj: ObjectType, /) -> BoundCondition | None:
        return None

    def derived(self, obj: ObjectType, /) -> tuple[DerivedRows, ...]:
        if obj.name != NAME:
            return ()
        return tuple(self._row(*each) for each in enumerate(self.access.items()))

    def _row(self, number: int, access: tuple[str, frozenset[str]]) -> DerivedRows:
        record_id, held = access
        start, mark = derived_id(_PREFIX, "0", number)
        highest = max((n for n, flag in enumerate(_FLAGS, 1) if flag in held), default=0)
        return DerivedRows(
            source=self.source,
            where=None,
            values={
                _USER_ID: self.user_id,
                _RECORD_ID: record_id,
                **{flag: int(flag in held) for flag in _FLAGS},
                "MaxAccessLevel": _LEVELS[highest],
            },
            id_start=start,
            id_mark=mark,
        )


def is_access_query(query: Query) -> bool:
    """Whether a query is on UserRecordAccess."""
    return query.entity.lower() == NAME.lower()


def parse_access_query(query: Query) -> AccessQuery:
    """Parse the user and the records of a query. Raises FilterInvalid if it lacks either, and IdMalformed."""
    users = _named(query.where, _USER_ID)
    records = _named(query.where, _RECORD_ID)
    if users is None or len(users) != 1:
        raise FilterInvalid(f"{NAME} needs a filter by a single {_USER_ID}", field=_USER_ID)
    if records is None or len(records) > MAX_RECORDS:
        reason = f"{NAME} needs a filter by {_RECORD_ID}, of at most {MAX_RECORDS} ids"
        raise FilterInvalid(reason, field=_RECORD_ID)
    return AccessQuery(users[0], records)


def _named(where: Condition | None, field: str) -> tuple[str, ...] | None:
    """Return the ids that a top-level AND condition lists for a field; None without one."""
    for condition in where.items if isinstance(where, And) else (where,):
        values: Iterable[Literal]
        match condition:
            case Comparison(FieldPath(names), Operator.EQ, value):
                values = (value,)
            case Membership(FieldPath(names), SetOperator.IN, values):
                pass
            case _:
                continue
        if names[-1].lower() == field.lower():
            ids = [normalise_id(each.value) for each in values if isinstance(each, StringLiteral)]
            return tuple(dict.fromkeys(ids))
    return None


def read_access(
    reader: Reader, catalog: Catalog, sharing: Sharing, record_ids: Iterable[str]
) -> dict[str, frozenset[str]]:
    """Return the kinds of access that the user of `sharing` has to each record."""
    found: dict[str, set[str]] = {record_id: set() for record_id in record_ids}
    by_object: dict[str, list[str]] = {}
    for record_id in found:
        obj = catalog.try_object_of_id(record_id)
        if obj is not None and sharing.can_read_object(obj):
            by_object.setdefault(obj.name, []).append(record_id)
    for name, ids in by_object.items():
        obj = catalog.object(name)
        ids = sorted(sharing.filter_existing(reader, obj, ids))
        grant = sharing.grant(obj)
        for level, flags in (
            (Level.READ, ["HasReadAccess"]),
            (Level.EDIT, _edit_flags(grant, can_transfer=sharing.can_transfer(obj))),
            (Level.FULL, _full_flags(grant)),
        ):
            for record_id in sharing.filter_accessible(reader, obj, ids, level) if flags else ():
                found[record_id].update(flags)
    return {record_id: frozenset(flags) for record_id, flags in found.items()}


def _edit_flags(grant: ObjectGrant, *, can_transfer: bool) -> list[str]:
    if not (grant.can_edit or grant.can_modify_all):
        return []
    return ["HasEditAccess", "HasTransferAccess"] if can_transfer else ["HasEditAccess"]


def _full_flags(grant: ObjectGrant) -> list[str]:
    flags = []
    if grant.can_delete or grant.can_modify_all:
        flags.append("HasDeleteAccess")
    if grant.can_edit or grant.can_modify_all:
        flags.append("HasTransferAccess")
    return [*flags, "HasAllAccess"] if len(flags) == 2 else flags
