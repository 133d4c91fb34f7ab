"""The records that a unit of work has written, each before and after, in the order of the first write.

A large unit does not fit in memory. Beyond some thousands of records all of them are spilled to a temporary
table, and are read back a page at a time, or one by one when they are written again. Of a spilled record only
the difference from its stored row is kept: the row itself is in its own table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import overload

import orjson

from tidewire.events import Change, ChangeType, Value
from tidewire.records.partial_rows import PartialRow, PartialRows
from tidewire.records.table import read_rows
from tidewire.schema.model import ObjectType
from tidewire.storage.store import Transaction

Row = Mapping[str, Value]
Written = tuple[str, Row | None, Row | None]
"""An entity and one of its records, as it was at the last flush and as it is now."""

PAGE = 500
"""How many records are processed together: the number of ids in one statement."""
_MAX_HELD = 2000  # records in memory; most units never spill
_TABLE = (
    "CREATE TEMP TABLE IF NOT EXISTS touched_records (number INTEGER NOT NULL PRIMARY KEY, record_id TEXT NOT NULL,"
    " entity TEXT NOT NULL, has_change INTEGER NOT NULL, is_flushed INTEGER NOT NULL, form BLOB NOT NULL)"
)
_INDEX = "CREATE UNIQUE INDEX IF NOT EXISTS touched_records_record ON touched_records (record_id)"
_COLUMNS = "number, record_id, entity, is_flushed, form"


@dataclass(slots=True)
class Touched:
    """One written record. `number` is its place in the order of first writes."""

    obj: ObjectType
    number: int
    before: Row | None  # None for a record that was not there at all
    after: dict[str, Value] | None  # None for a record that is gone or in the recycle bin
    suppress_notifications: bool = False
    never_merge: bool = False

    @property
    def change_type(self) -> ChangeType | None:
        """Return the change that others see after the commit, or None if they see none."""
        # A record in the recycle bin counts as absent on either side.
        was_there = self.before is not None and not self.before.get("IsDeleted")
        if self.after is None:
            return ChangeType.DELETE if was_there else None
        if self.before is None:
            return ChangeType.CREATE
        return ChangeType.UPDATE if was_there else ChangeType.UNDELETE


_Entry = tuple[str, Touched, bool, Row | None]
"""A record's id, the record, whether it is flushed, and its row at the last flush."""


class TouchedRecords:
    """The written records of one unit of work; close it after its changes were read.

    Calls `forget` whenever all records were spilled, so that nobody else keeps them in memory either.
    """

    def __init__(self, tx: Transaction, forget: Callable[[], None]) -> None:
        self._tx = tx
        self._forget = forget
        self._held: dict[str, Touched] = {}
        self._unflushed: dict[str, Row | None] = {}  # of those in memory: the row at the last flush
        self._unflushed_entities: set[str] = set()
        self._entities: set[str] = set()
        self._objects: dict[str, ObjectType] = {}
        self._partial: dict[str, PartialRows] = {}
        self._absent: frozenset[str] = frozenset()
        self._next_number = 1
        self._spilled = 0  # how many records are in the temporary table
        self._has_unflushed_spilled = False

    def __bool__(self) -> bool:
        return self._next_number > 1

    def track(
        self, obj: ObjectType, record_id: str, before: Row | None, after: dict[str, Value] | None
    ) -> None:
        """Record a write: the row before it, None for a new record, and after it, None for a deleted one."""
        found = self.try_get(record_id)
        if found is None:
            # All at once, not the oldest one: spilling record by record would cost a statement for each write.
            if len(self._held) >= _MAX_HELD:
                self._spill()
            self._held[record_id] = Touched(obj, self._next_number, before, after)
            self._next_number += 1
        else:
            found.after = after  # `before` stays: one change spans all writes of the unit
        self._unflushed.setdefault(record_id, before)
        self._unflushed_entities.add(obj.name)
        self._entities.add(obj.name)

    def try_get(self, record_id: str) -> Touched | None:
        """Return a written record, or None.

        Use it at once: the next call may spill it, and later edits of it are lost.
        """
        found = self._held.get(record_id)
        # `_absent` are ids that the last fetch did not find: new records cost no second statement.
        if found is None and self._spilled and record_id not in self._absent:
            self.fetch([record_id])
            found = self._held.get(record_id)
        return found

    def fetch(self, record_ids: list[str]) -> None:
        """Load the few records that are written next, or remember that they are new."""
        if not self._spilled:
            return
        if len(self._held) >= _MAX_HELD:
            self._spill()
        marks = ", ".join("?" * len(record_ids))
        where = f" WHERE record_id IN ({marks})"
        rows = self._tx.execute(f"SELECT {_COLUMNS} FROM touched_records{where}", record_ids)  # noqa: S608  # constant
        # A record is either in memory or in the table, never in both: else an old copy could win when pages are read.
        if rows:
            self._tx.execute(f"DELETE FROM touched_records{where}", record_ids)  # noqa: S608
            self._spilled -= len(rows)
        for record_id, touched, is_flushed, since in self._decoded(rows):
            self._held[record_id] = touched
            if not is_flushed:
                self._unflushed[record_id] = since
        self._absent = frozenset(record_ids).difference(self._held)

    def changes(self) -> Sequence[Change]:
        """Return the changes of the unit, in the order in which records were first written."""
        if self._spilled:
            return ManyChanges(self)
        return list(_numbered(sorted(self._held.items(), key=lambda each: each[1].number)))

    def iter_changes(self, entities: Collection[str] | None = None) -> Iterator[Change]:
        """Yield the changes with one page in memory at a time; with `entities`, only those of their records."""
        if entities is None:
            yield from _numbered((record_id, touched) for record_id, touched, _, _ in self._iter())
        elif not self._entities.isdisjoint(entities):
            yield from (change for change in self.iter_changes() if change.entity in entities)

    def count_changes(self) -> int:
        """Return the number of changes."""
        ((spilled,),) = self._tx.execute("SELECT COUNT(*) FROM touched_records WHERE has_change = 1")
        return int(spilled) + sum(t.change_type is not None for t in self._held.values())

    def iter_unflushed(self, entities: Collection[str]) -> Iterator[Written]:
        """Yield the records of these entities that were written since the last flush."""
        if self._unflushed_entities.isdisjoint(entities):
            return
        for _, touched, is_flushed, since in self._iter(entities):
            if not is_flushed:
                yield touched.obj.name, since, touched.after

    def has_only_new(self, others: Collection[str]) -> bool:
        """Return whether every unflushed record is new and none is in `others`."""
        # Spilled records would have to be read to know; a unit that spills is flushed in full.
        if self._has_unflushed_spilled or not self._unflushed_entities.isdisjoint(others):
            return False
        return all(before is None for before in self._unflushed.values())

    def mark_flushed(self) -> None:
        """Mark everything written so far as flushed: its effects on other records are stored."""
        self._unflushed.clear()
        self._unflushed_entities.clear()
        if self._has_unflushed_spilled:
            self._tx.execute("UPDATE touched_records SET is_flushed = 1 WHERE is_flushed = 0")
            self._has_unflushed_spilled = False

    def complete_rows(self, record_ids: list[str]) -> None:
        """Complete the partial rows of records that are about to be purged, while they can still be read."""
        self.fetch(record_ids)
        for record_id in record_ids:
            touched, unflushed = self._held.get(record_id), self._unflushed.get(record_id)
            if touched is not None and isinstance(touched.before, PartialRow):
                touched.before = dict(touched.before)
            if isinstance(unflushed, PartialRow):
                self._unflushed[record_id] = dict(unflushed)

    def close(self) -> None:
        """Release memory and the temporary table."""
        self._held.clear()
        self._unflushed.clear()
        if self._spilled:
            self._tx.execute("DELETE FROM touched_records")
            self._spilled = 0

    def _iter(self, entities: Collection[str] | None = None) -> Iterator[_Entry]:
        """Yield everything written up to now, a page at a time; records written meanwhile are omitted."""
        # The numbers are fixed at the start: whoever walks may write, which appends records behind this end.
        end = self._next_number
        if not self._spilled:
            yield from self._iter_held(0, end, entities)
            return
        for start in range(1, end, PAGE):
            yield from self._page(start, min(start + PAGE, end), entities)

    def _page(self, start: int, end: int, entities: Collection[str] | None) -> list[_Entry]:
        wanted = "" if entities is None else f" AND entity IN ({', '.join('?' * len(entities))})"
        rows = self._tx.execute(
            f"SELECT {_COLUMNS} FROM touched_records WHERE number >= ? AND number < ?{wanted}",  # noqa: S608
            [start, end, *(entities or ())],
        )
        # A record of any page may have been loaded back, so each page is a merge of table and memory.
        found = [*self._decoded(rows), *self._iter_held(start, end, entities)]
        return sorted(found, key=lambda each: each[1].number)

    def _iter_held(self, start: int, end: int, entities: Collection[str] | None = None) -> list[_Entry]:
        unflushed = self._unflushed
        found = [
            (record_id, touched, record_id not in unflushed, unflushed.get(record_id))
            for record_id, touched in self._held.items()
            if start <= touched.number < end and (entities is None or touched.obj.name in entities)
        ]
        return sorted(found, key=lambda each: each[1].number)

    def _spill(self) -> None:
        if not self._objects:
            self._tx.execute(_TABLE)
            self._tx.execute(_INDEX)
        held = iter(self._held.items())
        while page := list(islice(held, PAGE)):
            stored = self._stored(page)
            self._tx.execute_many(
                "INSERT INTO touched_records (number, record_id, entity, has_change, is_flushed, form)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                [self._encoded(record_id, t, stored.get(record_id)) for record_id, t in page],
            )
        self._spilled += len(self._held)
        self._has_unflushed_spilled |= bool(self._unflushed)
        self._absent = self._absent.difference(self._held)  # they are in the table now
        self._held.clear()
        self._unflushed.clear()
        self._forget()

    def _stored(self, page: Iterable[tuple[str, Touched]]) -> dict[str, dict[str, Value]]:
        """Read the stored rows of those records that are not kept as partial rows."""
        by_object: dict[str, list[str]] = {}
        for record_id, touched in page:
            self._objects[touched.obj.name] = touched.obj
            if not self._is_partial(touched):
                by_object.setdefault(touched.obj.name, []).append(record_id)
        return self._read(by_object)

    def _read(self, by_object: Mapping[str, list[str]]) -> dict[str, dict[str, Value]]:
        rows: dict[str, dict[str, Value]] = {}
        for entity, ids in by_object.items():
            found = read_rows(self._tx, self._objects[entity], "Id", ids, with_deleted=True)
            rows |= {str(row["Id"]): row for row in found}
        return rows

    def _is_partial(self, touched: Touched) -> bool:
        if touched.after is not None or not isinstance(touched.before, PartialRow):
            return False
        # Decoding needs the same columns in the same order; a type that changed in this unit may have others.
        partial = self._partial.setdefault(touched.obj.name, touched.before.rows)
        return partial.places == touched.before.rows.places

    def _encoded(
        self, record_id: str, touched: Touched, stored: dict[str, Value] | None
    ) -> tuple[int, str, str, int, int, bytes]:
        before = touched.before
        is_flushed = record_id not in self._unflushed
        since = before if is_flushed else self._unflushed[record_id]
        # A list stands for a partial row, an object for a difference, null for a new record.
        if isinstance(before, PartialRow) and self._is_partial(touched):
            kept: object = list(before.values_held)
        else:
            kept = None if before is None else _difference(before, stored)
        form = [
            kept,
            touched.after is not None,
            touched.suppress_notifications,
            touched.never_merge,
            since is before,
            None if since is before or since is None else _difference(since, None),
        ]
        has_change = int(touched.change_type is not None)
        entity = touched.obj.name
        return touched.number, record_id, entity, has_change, int(is_flushed), orjson.dumps(form)

    def _decoded(self, rows: list[tuple[int, str, str, int, bytes]]) -> list[_Entry]:
        forms = [(number, r, entity, bool(s), orjson.loads(form)) for number, r, entity, s, form in rows]
        by_object: dict[str, list[str]] = {}
        for _, record_id, entity, _, form in forms:
            if not isinstance(form[0], list):
                by_object.setdefault(entity, []).append(record_id)
        stored = self._read(by_object)
        found: list[_Entry] = []
        for number, record_id, entity, is_flushed, form in forms:
            kept, is_there, suppress_notifications, never_merge, is_same, other = form
            row = stored.get(record_id, {})
            before: Row | None
            if isinstance(kept, list):
                before = PartialRow(self._partial[entity], tuple(kept))
            else:
                before = None if kept is None else {**row, **kept}
            # The stored row is the row after the last write: every write is stored before it is tracked.
            after = dict(row) if is_there else None
            touched = Touched(
                self._objects[entity], number, before, after, suppress_notifications, never_merge
            )
            found.append((record_id, touched, is_flushed, before if is_same else other))
        return found


class ManyChanges(Sequence[Change]):
    """The changes of a unit of work that was spilled, read again each time they are iterated."""

    def __init__(self, touched: TouchedRecords) -> None:
        self._touched = touched
        self._count = touched.count_changes()

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Change]:
        return self._touched.iter_changes()

    @overload
    def __getitem__(self, place: int) -> Change: ...

    @overload
    def __getitem__(self, place: slice) -> list[Change]: ...

    def __getitem__(self, place: int | slice) -> Change | list[Change]:
        if isinstance(place, slice):
            return list(islice(self, *place.indices(self._count)))
        for change in islice(self, place if place >= 0 else self._count + place, None):
            return change
        raise IndexError(place)

    def of(self, entities: Collection[str]) -> Iterator[Change]:
        """Yield the changes of these entities' records."""
        return self._touched.iter_changes(entities)


def changes_of(changes: Sequence[Change], *entities: str) -> Iterator[Change]:
    """Return the changes of these entities' records, without reading spilled ones if there are none."""
    # Every transaction asks this several times, and `isinstance` is Python code for a child of an abstract class.
    if type(changes) is ManyChanges:
        return changes.of(entities)
    return iter([change for change in changes if change.entity in entities])


def _numbered(touched: Iterable[tuple[str, Touched]]) -> Iterator[Change]:
    sequence = 0
    for record_id, each in touched:
        change_type = each.change_type
        if change_type is None:
            continue  # created and deleted in one transaction: nobody else ever saw it
        sequence += 1
        yield Change(
            each.obj.name,
            record_id,
            change_type,
            each.before,
            each.after,
            _changed_fields(each),
            sequence,
            each.suppress_notifications,
            each.never_merge,
        )


def _changed_fields(touched: Touched) -> tuple[str, ...]:
    if touched.before is None or touched.after is None:
        return ()
    before, after = touched.before, touched.after
    return tuple(f.name for f in touched.obj.stored_fields if before.get(f.name) != after.get(f.name))


def _difference(row: Row, stored: Mapping[str, Value] | None) -> dict[str, Value]:
    """Return the values that differ from the stored row; all of them if there is none."""
    return dict(row) if stored is None else {n: v for n, v in row.items() if v != stored.get(n, _UNKNOWN)}


_UNKNOWN = object()
