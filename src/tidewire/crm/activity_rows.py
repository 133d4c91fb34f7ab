"""Reading and copying the rows around an activity, and merging the plans that concern them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from tidewire.events import Value
from tidewire.records.cascade import DeletePlan, RowEdit
from tidewire.records.table import read_rows
from tidewire.schema.field_types import FieldType
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


def read_by(tx: Transaction, obj: ObjectType, name: str, ids: list[str]) -> list[Row]:
    """Return the living records whose id or lookup is among any number of ids."""
    chunks = (ids[at : at + _CHUNK] for at in range(0, len(ids), _CHUNK))
    return [row for chunk in chunks for row in read_rows(tx, obj, name, chunk)]


def group_by(rows: Iterable[Row], name: str) -> dict[Value, list[Row]]:
    """Group rows by their value of one field; other values have an empty list."""
    groups: dict[Value, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row[name]].append(row)
    return groups


def blank_row(obj: ObjectType) -> Row:
    """Return the default values of a new record."""
    return {
        f.name: False if f.default is None and f.type is FieldType.CHECKBOX else f.default
        for f in obj.stored_fields
    }


def copy_values(obj: ObjectType, row: Mapping[str, Value]) -> Row:
    """Return the values of a record for a copy of it, without its unique ones."""
    return {f.name: None if f.unique else row.get(f.name) for f in obj.stored_fields}
