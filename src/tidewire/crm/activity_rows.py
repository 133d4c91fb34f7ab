"""Reading and copying the rows around an activity, and merging the plans that concern them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from tidewire.events import Value
from tidewire.records.cascade import DeletePlan, RowEdit
from tidewire.records.table import read_rows
from tidewire.schema.model import ObjectType
from tidewire.storage.store import Transaction

Row = dict[str, Value]

SERIES = "3"
"""GroupEventType of a series; 1 is an event with invitees, 0 one without."""

_CHUNK = 500  # ids in one statement


def join_edits(edits: Iterable[RowEdit]) -> tuple[RowEdit, ...]:
    """Merge edits by record, later values first: a row must not be written from two stale copies."""
    joined: dict[str, RowEdit] = {}
    for edit in edits:
        held = joined.setdefault(edit.record_id, RowEdit(edit.obj, edit.row, {}))
        held.values.update(edit.values)
    return tuple(joined.values())


def join_deletes(plans: Iterable[DeletePlan]) -> tuple[tuple[RowEdit, ...], tuple[RowEdit, ...]]:
    """Merge deletes: each deleted record once, and the lookups cleared in the records that stay."""
    deletes = tuple(plans)
    gone = {edit.record_id: edit for plan in deletes for edit in plan.gone}
    cleared = join_edits(edit for plan in deletes for edit in plan.cleared)
    return tuple(gone.values()), tuple(edit for edit in cleared if edit.record_id not in gone)


def is_series(row: Mapping[str, Value]) -> bool:
    """Return whether the record is a series."""
    return row.get("GroupEventType") == SERIES or bool(row.get("IsRecurrence"))


def is_occurrence(row: Mapping[str, Value]) -> bool:
    """Return whether the record is an occurrence of a series."""
    series = row.get("ParentEventId") or row.get("RecurrenceActivityId")
    return not row.get("IsChild") and series is not None and series != row["Id"]


def read_occurrences(tx: Transaction, obj: ObjectType, series: Mapping[str, Value]) -> list[Row]:
    """Return the living occurrences of a series, oldest id first; none if the record is not a series."""
    if not is_series(series):
        return []
    link = "RecurrenceActivityId" if series.get("IsRecurrence") else "ParentEventId"
    found = read_rows(tx, obj, link, [series["Id"]])
    return [row for row in found if not row.get("IsChild") and row["Id"] != series["Id"]]


def iter_by(tx: Transaction, obj: ObjectType, name: str, ids: list[str]) -> Iterator[Row]:
    """Yield the living records whose id or lookup is among any number of ids."""
    for at in range(0, len(ids), _CHUNK):
        yield from read_rows(tx, obj, name, ids[at : at + _CHUNK])


def read_with_occurrences(tx: Transaction, obj: ObjectType, record_id: Value) -> list[Row]:
    """Return a living activity and, if it is a series, its occurrences."""
    found = read_rows(tx, obj, "Id", [record_id])
    return [*found, *(one for series in found for one in read_occurrences(tx, obj, series))]


def read_by(tx: Transaction, obj: ObjectType, name: str, ids: list[str]) -> list[Row]:
    """Return the records that `iter_by` yields."""
    return list(iter_by(tx, obj, name, ids))


def group_by(rows: Iterable[Row], name: str) -> dict[Value, list[Row]]:
    """Group rows by their value of one field; other values have an empty list."""
    groups: dict[Value, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row[name]].append(row)
    return groups


def copy_values(obj: ObjectType, row: Mapping[str, Value]) -> Row:
    """Return the values of a record for a copy of it, without its unique ones."""
    return {f.name: None if f.unique else row.get(f.name) for f in obj.stored_fields}
