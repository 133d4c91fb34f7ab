"""The heart of apply: what a run of changes makes of the rows of one object. Pure.

Rules. A change counts only if its replay id is newer than the row's. Create and undelete give the whole
row; update sets the fields it names; delete leaves the row in place, marked deleted, with its last values,
so that a late older change cannot bring it back. A change that cannot be applied goes to the dead letters
and, if the record has a row, marks it stale: the row is known to be behind until a full row or a delete
comes. An update of a record without a living row is such a change, because the other fields are unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tidewire.pipeline.columns import Kind, Native, try_convert
from tidewire.pipeline.decode import DELETES, FULL_ROWS, RecordChange


@dataclass(frozen=True, slots=True)
class ReplicaRow:
    """The present state of one record. `values` holds the non-null fields by column."""

    record_id: str
    replay_id: int
    commit_ms: int
    values: Mapping[str, Native] = field(default_factory=dict)
    is_deleted: bool = False
    is_stale: bool = False


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A change that was not applied, and why. `reason` is a short stable word."""

    change: RecordChange
    reason: str
    detail: str


def fold_changes(
    rows: Mapping[str, ReplicaRow], changes: Iterable[RecordChange]
) -> tuple[dict[str, ReplicaRow], list[DeadLetter]]:
    """The rows that the changes (of one object, in log order) make new, and what could not be applied.

    `rows` holds the rows of the records concerned that exist so far.
    """
    fresh: dict[str, ReplicaRow] = {}
    dead: list[DeadLetter] = []
    for change in changes:
        row = fresh.get(change.record_id) or rows.get(change.record_id)
        if row is not None and row.replay_id >= change.replay_id:
            continue
        if change.problem is not None:
            dead.append(DeadLetter(change, change.problem, change.detail or ""))
            if row is not None:
                fresh[change.record_id] = replace(row, is_stale=True)
        elif change.change_type in FULL_ROWS:
            values = {name: value for name, value in change.values.items() if value is not None}
            fresh[change.record_id] = ReplicaRow(change.record_id, change.replay_id, change.commit_ms, values)
        elif change.change_type in DELETES:
            last_values = row.values if row is not None else {}
            fresh[change.record_id] = ReplicaRow(
                change.record_id, change.replay_id, change.commit_ms, last_values, is_deleted=True
            )
        elif row is None:
            dead.append(
                DeadLetter(change, "record_unknown", "an update of a record whose creation was never seen")
            )
        elif row.is_deleted:
            dead.append(DeadLetter(change, "record_deleted", "an update of a record that is deleted"))
            fresh[change.record_id] = replace(row, is_stale=True)
        else:
            fresh[change.record_id] = _updated(row, change)
    return fresh, dead


def _updated(row: ReplicaRow, change: RecordChange) -> ReplicaRow:
    merged = {**row.values, **change.values}
    values = {name: value for name, value in merged.items() if value is not None}
    # What made the row stale is still missing, so it stays so.
    return replace(row, replay_id=change.replay_id, commit_ms=change.commit_ms, values=values)


def convert_rows(
    rows: Iterable[ReplicaRow], kinds: Mapping[str, Kind]
) -> tuple[list[ReplicaRow], list[tuple[ReplicaRow, str]]]:
    """The rows with every value in its column's type, and (row, column) for each value that has no equal
    there.

    Such a value becomes null, and its row stale.
    """
    converted: list[ReplicaRow] = []
    lost: list[tuple[ReplicaRow, str]] = []
    for row in rows:
        values: dict[str, Native] = {}
        is_stale = row.is_stale
        for name, value in row.values.items():
            values[name] = try_convert(value, kinds[name])
            if values[name] is None:
                lost.append((row, name))
                is_stale = True
        converted.append(replace(row, values=values, is_stale=is_stale))
    return converted, lost
