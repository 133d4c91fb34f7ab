"""The account of an activity, and the date of a record's last activity.

The account is that of the record that the activity is about, if it has one, else that of the contact. The
last activity of a record is the latest day of its events and closed tasks. Its date is not a change of the
record: there is no event, and nobody has modified it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from tidewire.events import Value
from tidewire.records.object_rules import FlushUnit
from tidewire.records.table import try_read_row
from tidewire.schema.catalog import Catalog
from tidewire.schema.model import ObjectType
from tidewire.storage.store import Transaction

_Row = Mapping[str, Value]
_OF_AN_ACCOUNT = frozenset({"Opportunity", "Contract"})
_WATCHED = ("ActivityDate", "IsClosed", "WhoId", "WhatId", "AccountId")
_LAST = "LastActivityDate"
_PAGE = 1000  # activities that are looked at together
_MAX_DONE = 10_000  # records that are remembered
ACTIVITIES = ("Task", "Event")
"""The entities whose records count as activities."""


def find_account(tx: Transaction, catalog: Catalog, activity: _Row) -> Value:
    """Return the id of the account that an activity belongs to, or None."""
    what_id, who_id = activity.get("WhatId"), activity.get("WhoId")
    what = None if what_id is None else catalog.try_object_of_id(str(what_id))
    if what is not None and _account_field(what):
        return find_account_of(tx, catalog, str(what_id))
    return None if who_id is None else find_account_of(tx, catalog, str(who_id))


def find_account_of(tx: Transaction, catalog: Catalog, record_id: str) -> Value:
    """Return the id of the account that one record belongs to, or None; an account belongs to itself."""
    obj = catalog.try_object_of_id(record_id)
    name = None if obj is None else "AccountId" if obj.name == "Contact" else _account_field(obj)
    if obj is None or name is None:
        return None
    row = try_read_row(tx, obj, record_id)
    return None if row is None else row.get(name)


def _account_field(obj: ObjectType) -> str | None:
    if obj.name == "Account":
        return "Id"
    if obj.name in _OF_AN_ACCOUNT:
        return "AccountId"
    masters = (f.name for f in obj.stored_fields if f.is_master_detail and f.reference_to == ("Account",))
    return next(masters, None)


def apply_last_activity(unit: FlushUnit) -> None:
    """Update LastActivityDate after the activities that a unit of work changed.

    Called once, after the last statement of the unit.
    """
    written = iter(unit.touched(ACTIVITIES))
    done: set[str] = set()
    while page := list(islice(written, _PAGE)):
        stale = dict.fromkeys(record_id for each in page for record_id in _iter_stale(*each))
        for record_id in stale:
            if record_id not in done:
                _refresh(unit, record_id)
        done |= stale.keys()
        if len(done) > _MAX_DONE:
            done.clear()


def _iter_stale(entity: str, before: _Row | None, after: _Row | None) -> Iterator[str]:
    """Yield the records whose last activity may change with this one."""
    if _counted(entity, before) == _counted(entity, after):
        return
    for row in (before, after):
        for name in ("WhoId", "WhatId", "AccountId"):
            if row is not None and row.get(name) is not None:
                yield str(row[name])


def _counted(entity: str, row: _Row | None) -> tuple[Value, ...] | None:
    """Return the values that decide over dates of other records; None if the activity does not count."""
    if row is None or row.get("IsDeleted") or (entity == "Task" and not row.get("IsClosed")):
        return None
    return tuple(row.get(name) for name in _WATCHED)


def _refresh(unit: FlushUnit, record_id: str) -> None:
    obj = unit.catalog.try_object_of_id(record_id)
    if obj is None or obj.try_field(_LAST) is None:
        return
    row = try_read_row(unit.tx, obj, record_id)
    if row is None or row.get("IsDeleted"):
        return
    link = {"Account": "AccountId", "Contact": "WhoId", "Lead": "WhoId"}.get(obj.name, "WhatId")
    last = max(_iter_last_days(unit, link, record_id), default=None)
    if row.get(_LAST) != last:
        unit.store_copies(obj, row, {_LAST: last})


def _iter_last_days(unit: FlushUnit, link: str, record_id: str) -> Iterator[int]:
    for entity in ("Task", "Event"):
        obj = unit.catalog.object(entity)
        names = ("ActivityDate", link, "IsDeleted")
        day, reference, deleted = (obj.by_name[name.lower()].column for name in names)
        closed = f" AND {obj.by_name['isclosed'].column} = 1" if entity == "Task" else ""
        # Names come from the catalog.
        sql = f"SELECT MAX({day}) FROM {obj.table} WHERE {reference} = ? AND {deleted} = 0{closed}"  # noqa: S608
        ((last,),) = unit.tx.execute(sql, (record_id,))
        if last is not None:
            yield int(last)
