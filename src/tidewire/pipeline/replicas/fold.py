"""Fold changes into records: the heart of the replica. Pure; readers and maintenance share it.

Order: the changes of a record are sorted by position, then by their number in the transaction. A row that was read
through the records API at a position (its fence) comes after the events there, since it includes them. So every
change has one place, whenever it was read or written, and folding gives the same row in any process.

Effect: create, undelete and a read replace the whole row; update sets the columns that it names; delete, gap delete
and a read that found nothing mark the row as deleted, and it keeps its last values. Any other gap, and an event that
did not decode, make the row stale: it is known to be behind until the next whole row. An overflow makes every row of
the object stale; a wildcard event empties its columns in every row. Both apply at their place in the order.

Losses: an update of a record without a live row creates no row, since its other columns are unknown. It is reported
in `lost`, as are text differences that do not fit and values that a column's new type cannot hold, unless a later
whole row makes up for them. A value that the new type cannot hold becomes null without making the row stale: only
reading the object again shows whether the server lost it too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from tidewire.ids import EMPTY_ID
from tidewire.pipeline.lake.columns import (
    COMMIT_MS,
    DELETED,
    RECORD_ID,
    REPLAY_ID,
    STALE,
    Kind,
    Native,
    convert,
    fits,
    kind_of,
    kinds_of,
    old_column,
    old_columns,
    parse_column,
    render_column,
    replica_schema,
)
from tidewire.pipeline.replicas.differences import try_patch

READ, MISSING = "READ", "MISSING"
FULL_ROWS = frozenset({"CREATE", "UNDELETE", READ})
DELETES = frozenset({"DELETE", "GAP_DELETE", MISSING})
"""A gap delete lacks nothing: the record is gone."""
READS = frozenset({READ, MISSING})
DIFFERENCE = "diff"
UNKNOWN = "unknown"
WILDCARD = "wildcard"
SCHEMA_UNKNOWN, PAYLOAD_INVALID, TYPE_UNKNOWN = "schema_unknown", "payload_invalid", "change_type_unknown"
UNDECODED = frozenset({SCHEMA_UNKNOWN, PAYLOAD_INVALID, TYPE_UNKNOWN})
"""Problems that only a retry, or reading the record again, can solve."""


def is_wildcard_id(record_id: str) -> bool:
    """Return whether an id stands for every record of the object: a wildcard or the empty id."""
    return record_id.endswith("*") or record_id == EMPTY_ID


@dataclass(frozen=True, slots=True)
class Lost:
    """Something that a record's row lacks. `reason` is a short stable word."""

    record_id: str
    replay_id: int
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class Folded:
    """Rows of a replica, and what they lack."""

    rows: pa.Table
    lost: list[Lost]


@dataclass(frozen=True, slots=True)
class Step:
    """One row of history or reads, with the columns that folding needs."""

    record_id: str
    replay_id: int
    sequence: int
    change_type: str
    commit_ms: int
    changed: Sequence[str]
    values_json: str | None
    problem: str | None
    schema_id: str = ""

    @property
    def order(self) -> tuple[int, bool, int]:
        """Return the sort key among the changes of a record."""
        # False sorts before True: a read follows the events at its position, because it includes them. Of two reads
        # at one position the later one wins: their sequence is the time of the read.
        return self.replay_id, self.change_type in READS, self.sequence

    @property
    def is_object_wide(self) -> bool:
        """Return whether it is about all records of the object."""
        return is_wildcard_id(self.record_id)


@dataclass(slots=True, eq=False)
class RecordState:
    """One record while its changes are folded.

    `values` holds the non-null columns; `sources` the schema that last set each old column.
    """

    record_id: str
    replay_id: int = 0
    commit_ms: int = 0
    values: dict[str, Native] = field(default_factory=dict)
    exists: bool = False
    is_deleted: bool = False
    is_stale: bool = False
    lost: dict[str, Lost] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)


class Folder:
    """Folds changes into records whose columns have the given types.

    `retyped` has, by schema, the types of the columns whose type has changed.
    """

    def __init__(self, kinds: Mapping[str, Kind], retyped: Mapping[str, Mapping[str, Kind]]) -> None:
        self._kinds = kinds
        self._retyped = retyped
        self._old = old_columns(kinds)

    def fold(self, state: RecordState, step: Step) -> None:
        """Apply one change to the record. Changes must come in order."""
        # The order of these branches matters. Deletes come before problems: a delete whose payload did not decode is
        # still a delete, because the header alone says so.
        if step.is_object_wide:
            self._fold_object_wide(state, step)
        elif step.change_type in DELETES:
            # Whatever the row lacked no longer matters.
            state.lost.clear()
            # MISSING for a record that never had a row must not create one: the read proves only its absence.
            if step.change_type != MISSING or state.exists:
                state.exists = state.is_deleted = True
                state.is_stale = False
                self._move(state, step)
        elif step.problem is not None:
            # A gap or an undecoded event: its values are unknown. Keep the old ones and say that they are old.
            state.is_stale = True
        elif step.change_type in FULL_ROWS:
            # A whole row makes up for everything: earlier gaps, lost values and missed updates are all superseded.
            state.exists, state.is_deleted, state.is_stale = True, False, False
            # Old columns survive an undelete or a read, which cannot carry them. A create starts from nothing.
            state.values = {} if step.change_type == "CREATE" else self._old_values(state, step.schema_id)
            state.lost.clear()
            self._move(state, step)
            self._set_all(state, step, orjson.loads(step.values_json or "{}"))
        elif step.change_type != "UPDATE":
            # A change type of a newer server: something happened, but not what.
            state.is_stale = True
        # An update without a live row must not create one: it would show nulls for columns that have values.
        elif not state.exists:
            self._lose(state, step, UNKNOWN, "an update of a record whose creation was never seen")
        elif state.is_deleted:
            self._lose(state, step, UNKNOWN, "an update of a record that is deleted")
        else:
            self._move(state, step)
            self._set_all(state, step, orjson.loads(step.values_json or "{}"))

    def load(self, state: RecordState, columns: Mapping[str, tuple[Kind, Native]]) -> None:
        """Start from a row of the base, whose columns may have other types."""
        for name, (kind, value) in columns.items():
            if value is None:
                continue
            # The base may be older than the newest schema: convert its values as an event's would be.
            current = self._kinds.get(name)
            if current is kind:
                state.values[name] = value
            elif current is not None:
                self._set_converted(state, name, value, kind, current, state.replay_id)

    def _fold_object_wide(self, state: RecordState, step: Step) -> None:
        # Deleted rows keep their last values: the event is about the records that exist at its position.
        if not state.exists or state.is_deleted:
            return
        if step.problem == WILDCARD:
            for name in step.changed:
                state.values.pop(name, None)
                # The server lost the value too, so the row lacks nothing.
                state.lost.pop(name, None)
                # A checkbox is never null on the server.
                if self._kinds.get(name) is Kind.TRUTH:
                    state.values[name] = False
        else:
            state.is_stale = True

    def _move(self, state: RecordState, step: Step) -> None:
        state.replay_id = step.replay_id
        state.commit_ms = step.commit_ms

    def _lose(self, state: RecordState, step: Step, reason: str, detail: str, column: str = "") -> None:
        state.is_stale = True
        state.lost[column or reason] = Lost(state.record_id, step.replay_id, reason, detail)

    def _set_all(self, state: RecordState, step: Step, values: Mapping[str, Any]) -> None:
        kinds = self._kinds
        for name, value in values.items():
            kind = kinds.get(name)
            if value is None:
                # An explicit null also supersedes an earlier value that could not be held.
                state.values.pop(name, None)
                state.lost.pop(name, None)
                self._clear_old(state, name, step.schema_id)
            elif kind is None:
                continue  # a column that this snapshot point does not know yet
            elif isinstance(value, dict):
                self._patch(state, step, name, value.get(DIFFERENCE))
            # Before `fits`: a value of the old type may look like one of the new type (a time and a number do).
            elif name in self._old and (old := self._old_kind(name, step.schema_id)) is not None:
                self._set_converted(state, name, value, old, kind, step.replay_id, step.schema_id)
            elif fits(value, kind):
                state.values[name] = value
                state.lost.pop(name, None)
            else:
                self._set_converted(state, name, value, None, kind, step.replay_id, step.schema_id)

    def _old_kind(self, name: str, schema_id: str) -> Kind | None:
        """Return the type that a column had in a schema, if it was another one.

        Values alone do not show it: Avro encodes a time and a number alike. An old column is named after one
        schema, but earlier schemas may have had the same type.
        """
        wanted = old_column(name, schema_id)
        named = next((kind for old_name, kind in self._old[name] if old_name == wanted), None)
        if named is not None:
            return named
        kind = self._retyped.get(schema_id, {}).get(name)
        return None if kind is self._kinds[name] else kind

    def _clear_old(self, state: RecordState, name: str, schema_id: str) -> None:
        """Clear the old column too if the column was set to null while it still had its old type."""
        for old_name, old_kind in self._old.get(name, ()):
            if self._is_of(state, name, old_name, old_kind, schema_id):
                state.values.pop(old_name, None)

    def _old_values(self, state: RecordState, schema_id: str) -> dict[str, Native]:
        """Return the old columns that a record keeps when its whole row comes with a later schema."""
        return {
            old_name: state.values[old_name]
            for name, columns in self._old.items()
            for old_name, old_kind in columns
            if old_name in state.values and not self._is_of(state, name, old_name, old_kind, schema_id)
        }

    def _is_of(self, state: RecordState, name: str, old_name: str, old_kind: Kind, schema_id: str) -> bool:
        """Return whether a column's type in this schema was that of its old column."""
        return bool(schema_id) and (
            state.sources.get(old_name) == schema_id or self._old_kind(name, schema_id) is old_kind
        )

    def _patch(self, state: RecordState, step: Step, name: str, difference: object) -> None:
        # The difference carries the hash of the new text, so a wrong base text is always noticed.
        old = state.values.get(name)
        new = try_patch(old, difference) if isinstance(old, str) and isinstance(difference, str) else None
        if new is not None:
            state.values[name] = new
            return
        detail = f"the text difference of {name} does not apply to the replica's text"
        self._lose(state, step, "difference", detail, column=name)

    def _set_converted(
        self,
        state: RecordState,
        name: str,
        value: Native,
        old: Kind | None,
        new: Kind,
        replay_id: int,
        schema_id: str = "",
    ) -> None:
        """Set a column from a value of another type; an old column of that type keeps the value."""
        # The value goes to the old column first, unconverted: conversion may lose it.
        for old_name, old_kind in self._old.get(name, ()):
            if old_kind is old or (old is None and fits(value, old_kind)):
                state.values[old_name] = value
                state.sources[old_name] = schema_id
                old = old_kind
                break
        converted = convert(value, old or kind_of(value), new)
        if converted is not None:
            state.values[name] = converted
            state.lost.pop(name, None)
            return
        # Null and reported, but not stale: if the server lost the value too, null is the truth.
        state.values.pop(name, None)
        detail = f"the value of {name} has no equivalent as {new.value}"
        state.lost[name] = Lost(state.record_id, replay_id, "value_lost", detail)


def fold_records(
    base: pa.Table | None,
    changes: pa.Table,
    kinds: Mapping[str, Kind],
    through: int,
    retyped: Mapping[str, Mapping[str, Kind]] | None = None,
) -> Folded:
    """Return the rows of all records in `base` and `changes` as of a position.

    `base` holds rows of the replica. `changes` are rows of HISTORY or READS in any order, of records in the
    base or not, and all rows about every record of the object; none of them may be in the base already. Only
    changes visible at `through` count.
    """
    object_wide, by_record = _sort_steps(parse_steps(changes, through))
    rows: list[pa.Table] = []
    states: dict[str, RecordState] = {}
    lost: list[Lost] = []
    folder = Folder(kinds, retyped or {})
    if base is not None and base.num_rows:
        # Only records with changes of their own are folded one by one in Python; most of a base never is.
        is_touched = pc.is_in(base[RECORD_ID], pa.array(sorted(by_record), pa.string()))
        touched = base.filter(is_touched)
        untouched = base.filter(pc.invert(is_touched))
        # Unless a column's type has changed since the base was written: then every value must be converted.
        if any(kinds.get(name, kind) is not kind for name, kind in kinds_of(base.schema).items()):
            touched, untouched = base, base.slice(0, 0)
        if untouched.num_rows:
            rows.append(_pass(untouched, kinds, object_wide))
        states = _load_states(touched, folder)
    for record_id, steps in by_record.items():
        state = states.get(record_id)
        if state is None:
            state = states[record_id] = RecordState(record_id)
        # Object-wide changes take effect between the record's own: a row created after an overflow is not stale.
        merged = sorted([*steps, *object_wide], key=attrgetter("order")) if object_wide else steps
        for step in merged:
            folder.fold(state, step)
    for record_id, state in states.items():
        # Loaded because of changed types only: these records have no changes of their own.
        if object_wide and record_id not in by_record:
            for step in object_wide:
                folder.fold(state, step)
        lost += state.lost.values()
    rows.append(render_states([state for state in states.values() if state.exists], kinds))
    return Folded(pa.concat_tables(rows), lost)


def visible_at(changes: pa.Table, through: int) -> pa.ChunkedArray:
    """Return which rows of HISTORY or READS are visible at a position.

    An event is visible from its own position on, a read once it is settled.
    """
    # A read between its fence and `settled` may include events that readers of this position must not see.
    settled = changes["replay_id"]
    if "settled" in changes.schema.names:
        settled = pc.max_element_wise(settled, changes["settled"])
    found: pa.ChunkedArray = pc.less_equal(settled, through)
    return found


def parse_steps(changes: pa.Table, through: int) -> Iterator[Step]:
    """Yield the changes visible at a position, in the order of their rows."""
    rows = changes.filter(visible_at(changes, through))

    def column(name: str, default: object = None) -> list[Any]:
        values = rows[name].to_pylist()
        return values if default is None else [default if value is None else value for value in values]

    yield from map(
        Step,
        *(column("record_id"), column("replay_id"), column("sequence", 0), column("change_type", "")),
        *(column("commit_ms", 0), column("changed", ()), column("values_json"), column("problem")),
        column("schema_id", ""),
    )


def _sort_steps(steps: Iterable[Step]) -> tuple[list[Step], dict[str, list[Step]]]:
    """Return the object-wide changes, and the others by record, both in order."""
    object_wide: list[Step] = []
    by_record: dict[str, list[Step]] = {}
    for step in steps:
        if step.is_object_wide:
            object_wide.append(step)
        else:
            by_record.setdefault(step.record_id, []).append(step)
    for found in (object_wide, *by_record.values()):
        if len(found) > 1:
            found.sort(key=attrgetter("order"))
            # A retried event has a decoded row at the same position; the undecoded one would make the row stale.
            retried = find_retried(found)
            if retried:
                found[:] = [step for i, step in enumerate(found) if i not in retried]
    return object_wide, by_record


def find_retried(steps: Sequence[Step]) -> set[int]:
    """Return the indexes of undecoded rows whose event was decoded later, by a retry.

    Such an event has two rows about a record; the undecoded one does not know its number in the transaction.
    """
    if all(step.problem is None for step in steps):
        return set()
    good = {
        (step.record_id, step.replay_id)
        for step in steps
        if step.problem not in UNDECODED and step.change_type not in READS
    }
    return {
        i
        for i, step in enumerate(steps)
        if step.problem in UNDECODED and (step.record_id, step.replay_id) in good
    }


def _pass(rows: pa.Table, kinds: Mapping[str, Kind], object_wide: Sequence[Step]) -> pa.Table:
    """Apply object-wide changes to rows without other changes, column by column."""
    # All rows of the base precede these changes, so their order does not matter here: stale stays stale, empty
    # stays empty.
    living = pc.invert(rows[DELETED])
    nulled = {name for step in object_wide if step.problem == WILDCARD for name in step.changed}
    is_stale = any(step.problem != WILDCARD for step in object_wide)
    columns: list[pa.ChunkedArray | pa.Array] = []
    schema = replica_schema(kinds)
    for wanted in schema:
        present = wanted.name in rows.schema.names
        column = rows[wanted.name] if present else pa.nulls(rows.num_rows, wanted.type)
        if wanted.name in nulled:
            columns.append(pc.if_else(living, empty_value(wanted.type), column))
        elif wanted.name == STALE and is_stale:
            columns.append(pc.or_(rows[STALE], living))
        else:
            columns.append(column)
    return pa.Table.from_arrays(columns, schema=schema)


def empty_value(kind: pa.DataType) -> pa.Scalar:
    """Return the value of a column after all its values were lost: false for a checkbox, otherwise null."""
    return pa.scalar(False if pa.types.is_boolean(kind) else None, kind)


def _load_states(rows: pa.Table, folder: Folder) -> dict[str, RecordState]:
    kinds = kinds_of(rows.schema)
    columns = [(name, kind, parse_column(rows[name], kind)) for name, kind in kinds.items()]
    # Columns that are null in all of these rows are common in wide objects; skip them once, not per record.
    columns = [column for column in columns if any(value is not None for value in column[2])]
    own = [rows[name].to_pylist() for name in (RECORD_ID, REPLAY_ID, COMMIT_MS, DELETED, STALE)]
    states: dict[str, RecordState] = {}
    for i, (record_id, replay_id, commit_ms, is_deleted, is_stale) in enumerate(zip(*own, strict=True)):
        state = states[record_id] = RecordState(
            record_id, replay_id, commit_ms, exists=True, is_deleted=is_deleted, is_stale=is_stale
        )
        folder.load(state, {name: (kind, values[i]) for name, kind, values in columns})
    return states


def render_states(states: Sequence[RecordState], kinds: Mapping[str, Kind]) -> pa.Table:
    """Return records as Arrow rows of a replica."""
    arrays = [
        pa.array([state.record_id for state in states], pa.string()),
        pa.array([state.replay_id for state in states], pa.int64()),
        pa.array([state.commit_ms for state in states], pa.int64()),
        pa.array([state.is_deleted for state in states], pa.bool_()),
        pa.array([state.is_stale for state in states], pa.bool_()),
    ]
    values = [state.values for state in states]
    arrays += [render_column([row.get(name) for row in values], kind) for name, kind in kinds.items()]
    return pa.Table.from_arrays(arrays, schema=replica_schema(kinds))
