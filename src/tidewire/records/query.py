"""Runs bound queries in one read transaction.

Records are read by one statement, sorted and cut by the database. Parents and children are then read for all
of them together, a few hundred ids at a time, so a query costs a statement per relationship and chunk, not
per record. Distances are computed here, after a statement without them, because the SQL of the two
databases has no functions for them in common.

A parent in the recycle bin is null unless deleted records are included.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tidewire.errors import TooManyRecords
from tidewire.events import Value
from tidewire.records.aggregate import run_aggregate, sort_key
from tidewire.records.derived import refresh_volatile, volatile_inputs
from tidewire.records.table import decode_rows
from tidewire.schema.field_types import FieldType
from tidewire.schema.model import Field, ObjectType
from tidewire.soql.bound import (
    BoundAnd,
    BoundCondition,
    BoundOrder,
    BoundQuery,
    Distance,
    Selected,
    SelectedChildren,
    SelectedDistance,
    SelectedField,
    SelectedParent,
    SelectedType,
    columns_of,
    flat_columns,
    is_measured,
    iter_operands,
)
from tidewire.soql.compile_predicate import compile_predicate
from tidewire.soql.compile_sql import Among, compile_child_counts, compile_children, compile_sql
from tidewire.soql.condition_binder import conjuncts
from tidewire.soql.distance import distance_between
from tidewire.soql.value_formatting import format_value
from tidewire.storage.store import Reader, Row

MAX_ROWS = 10_000_000  # per answer; their ids take 180 MB
_CHUNK = 500  # ids in one statement, well below the limit of either database
_ID_SLICE = 200_000  # ids that are read at once, about 25 MB
_ID_LENGTH = 18


@dataclass(frozen=True, slots=True)
class RowIds:
    """The ids of an answer's records in its order, 18 bytes each."""

    packed: bytes

    def __len__(self) -> int:
        return len(self.packed) // _ID_LENGTH

    def between(self, first: int, end: int) -> list[str]:
        """Return the ids from place `first` up to, and without, place `end`."""
        text = self.packed[first * _ID_LENGTH : end * _ID_LENGTH].decode("ascii")
        return [text[start : start + _ID_LENGTH] for start in range(0, len(text), _ID_LENGTH)]


@dataclass(frozen=True, slots=True)
class Related:
    """The record that a lookup points at, inside the row of the record that holds the lookup."""

    entity: ObjectType
    select: tuple[Selected, ...]
    row: Record


@dataclass(frozen=True, slots=True)
class Children:
    """The records that point at a record, inside its row; there is at least one.

    If `rows` does not hold all `total` records, `ids` are those of all of them, and `locator` names the next
    page once the rest is stored.
    """

    entity: ObjectType
    select: tuple[Selected, ...]
    rows: list[Record]
    total: int
    ids: RowIds | None = None
    locator: str = ""


Cell = Value | Related | Children
Record = dict[str, Cell]
"""One record: stored values by field name, and what the query adds under its own names.

A selected compound's parts have their own names; related records, distances and presented values have those
that the query gives them.
"""


@dataclass(frozen=True, slots=True)
class QueryAnswer:
    """The rows of a query, or only their number for a count."""

    rows: list[Record]
    count: int | None = None


def run_query(
    reader: Reader, bound: BoundQuery, now_ms: int, *, include_deleted: bool = False
) -> QueryAnswer:
    """Answer a query.

    Every record has its id, selected or not. Formulas over the time are computed at `now_ms`, except in
    conditions and order, which use the stored values.
    """
    if bound.aggregate is not None:
        groups = run_aggregate(reader, bound, bound.aggregate, include_deleted=include_deleted)
        return QueryAnswer([dict[str, Cell](row) for row in groups])
    runner = QueryRunner(reader, include_deleted, now_ms)
    if bound.is_count:
        return QueryAnswer([], runner.count(bound))
    rows = runner.read(bound)
    runner.complete(rows, bound.select, bound.entity)
    return QueryAnswer(rows)


def count_rows(rows: Sequence[Mapping[str, Cell]]) -> int:
    """Return how many records there are, those inside others included."""
    inner = sum(count_rows(cell.rows) for row in rows for cell in row.values() if isinstance(cell, Children))
    return len(rows) + inner


@dataclass(frozen=True, slots=True)
class QueryRunner:
    """The steps of answering a query, in one read transaction."""

    reader: Reader
    include_deleted: bool
    now_ms: int

    def count(self, bound: BoundQuery) -> int:
        """Return how many records the query finds."""
        if bound.where is not None and is_measured(bound.where):
            return len(self.read(replace(bound, is_count=False)))
        sql = compile_sql(bound, include_deleted=self.include_deleted)
        ((count,),) = self.reader.execute(sql.text, sql.params)
        return int(count)

    def read(self, bound: BoundQuery, among: Among | None = None) -> list[Record]:
        """Return the records themselves, without their parents and children."""
        if _has_distance(bound):
            return self.read_measured(bound, among)
        return self.execute(bound, _with_id(bound.entity, flat_columns(bound.select)), among)

    def read_ids(self, bound: BoundQuery, among: Among | None = None) -> RowIds:
        """Return the ids of all records that the query finds, in its order. Raises TooManyRecords for too many."""
        if _has_distance(bound):
            found = self.read_measured(replace(bound, select=()), among)
            return RowIds("".join(str(row["Id"]) for row in found).encode("ascii"))
        packed = bytearray()
        first, left = bound.offset or 0, MAX_ROWS + 1 if bound.limit is None else bound.limit
        while left > 0:
            part = replace(bound, limit=min(left, _ID_SLICE), offset=first)
            columns = (bound.entity.by_name["id"],)
            sql = compile_sql(part, include_deleted=self.include_deleted, among=among, columns=columns)
            rows = self.reader.execute(sql.text, sql.params)
            packed += "".join([row[0] for row in rows]).encode("ascii")
            if len(packed) > MAX_ROWS * _ID_LENGTH:
                raise TooManyRecords(
                    f"The query finds more than {MAX_ROWS} records: use LIMIT", limit=MAX_ROWS
                )
            if len(rows) < _ID_SLICE:
                break
            first, left = first + _ID_SLICE, left - _ID_SLICE
        return RowIds(bytes(packed))

    def read_again(self, bound: BoundQuery, ids: Sequence[str]) -> list[Record]:
        """Return those of these records that the query still finds, in the order of the ids."""
        unordered = replace(bound, order=(), limit=None, offset=None)
        found: dict[str, Record] = {}
        for chunk in _chunks(ids):
            rows = self.read(unordered, Among(bound.entity.by_name["id"], chunk))
            found |= {str(row["Id"]): row for row in rows}
        return [found[record_id] for record_id in ids if record_id in found]

    def execute(
        self, bound: BoundQuery, columns: tuple[Field, ...], among: Among | None = None
    ) -> list[Record]:
        """Return the fields of the records that a query without distances finds."""
        sql = compile_sql(bound, include_deleted=self.include_deleted, among=among, columns=columns)
        return self.decode(bound.entity, sql.columns, self.reader.execute(sql.text, sql.params))

    def decode(self, entity: ObjectType, columns: tuple[Field, ...], rows: Iterable[Row]) -> list[Record]:
        """Return database rows as records, with volatile formulas brought up to date."""
        records = decode_rows(columns, rows)
        if any(f.formula for f in columns):
            for record in records:
                fresh = refresh_volatile(entity, record, self.now_ms)
                record.update({name: value for name, value in fresh.items() if name in record})
        return [dict[str, Cell](record) for record in records]

    def read_measured(self, bound: BoundQuery, among: Among | None = None) -> list[Record]:
        """Answer a query whose WHERE or ORDER BY measures distances; the database does the rest of it."""
        parts = conjuncts(bound.where)
        measured = [part for part in parts if is_measured(part)]
        plain = replace(
            bound,
            where=_all_of([part for part in parts if not is_measured(part)]),
            order=tuple(item for item in bound.order if not isinstance(item.operand, Distance)),
            limit=None,
            offset=None,
        )
        looked_at = [operand for part in measured for operand in iter_operands(part)]
        measures = [place for place, item in enumerate(bound.order) if isinstance(item.operand, Distance)]
        # The database sorts by the keys after the last distance; the keys up to it are sorted here.
        sorted_here = bound.order[: measures[-1] + 1] if measures else ()
        looked_at += [item.operand for item in sorted_here]
        needed = tuple(column.field for operand in looked_at for column in columns_of(operand))
        rows = self.execute(plain, _with_id(bound.entity, (*flat_columns(bound.select), *needed)), among)
        tests = [compile_predicate(part, bound.entity) for part in measured]
        found = [row for row in rows if all(holds(_values(row)) for holds in tests)]
        for item in reversed(sorted_here):
            _sort(found, item)
        first = bound.offset or 0
        return found[first:] if bound.limit is None else found[first : first + bound.limit]

    # Related records:

    def complete(self, rows: list[Record], select: tuple[Selected, ...], entity: ObjectType) -> None:
        """Add to each row what is selected besides the record's own fields."""
        for item in select:
            match item:
                case SelectedField():
                    if item.function:
                        for row in rows:
                            value = _value(row, item.field)
                            row[item.name] = format_value(item.function, item.field, value, item.zone)
                case SelectedDistance(name, distance):
                    for row in rows:
                        row[name] = _measure(row, distance)
                case SelectedType(name):
                    for row in rows:
                        row[name] = entity.name
                case SelectedParent():
                    self.add_parents(rows, item)
                case SelectedChildren():
                    self.add_children(rows, item)

    def add_parents(self, rows: list[Record], item: SelectedParent) -> None:
        ids = {str(row[item.lookup.name]) for row in rows if row[item.lookup.name] is not None}
        found: dict[str, Related] = {}
        for branch in item.branches:
            entity = branch.entity
            # An id begins with the key prefix of its object.
            own = sorted(each for each in ids if each.startswith(entity.key_prefix))
            columns = _with_id(entity, flat_columns(branch.select))
            parents: list[Record] = []
            for chunk in _chunks(own):
                among = Among(entity.by_name["id"], chunk)
                every = BoundQuery(entity, branch.select, visibility=branch.visibility)
                parents += self.execute(every, columns, among)
            self.complete(parents, branch.select, entity)
            found |= {str(row["Id"]): Related(entity, branch.select, row) for row in parents}
        for row in rows:
            record_id = row[item.lookup.name]
            row[item.name] = None if record_id is None else found.get(str(record_id))

    def add_children(self, rows: list[Record], item: SelectedChildren) -> None:
        """Add to each row all of its children."""
        query, entity = item.query, item.query.entity
        columns = _with_id(entity, (*flat_columns(query.select), item.lookup))
        by_parent: dict[str, list[Record]] = {}
        for chunk in _chunks([str(row["Id"]) for row in rows]):
            among = Among(item.lookup, chunk)
            sql = compile_children(query, among, columns, include_deleted=self.include_deleted)
            found = self.decode(entity, columns, self.reader.execute(sql.text, sql.params))
            for child in found:
                by_parent.setdefault(str(child[item.lookup.name]), []).append(child)
        self.complete([child for found in by_parent.values() for child in found], query.select, entity)
        for row in rows:
            children = by_parent.get(str(row["Id"]))
            row[item.name] = Children(entity, query.select, children, len(children)) if children else None

    def count_children(self, parent_ids: Sequence[str], item: SelectedChildren) -> dict[str, int]:
        """Return how many children each of these records has, if any."""
        first, limit = item.query.offset or 0, item.query.limit
        counts: dict[str, int] = {}
        for chunk in _chunks(parent_ids):
            sql = compile_child_counts(
                item.query, Among(item.lookup, chunk), include_deleted=self.include_deleted
            )
            for parent_id, found in self.reader.execute(sql.text, sql.params):
                count = max(0, int(found) - first)
                counts[str(parent_id)] = count if limit is None else min(count, limit)
        return counts

    def read_child_ids(self, parent_ids: Sequence[str], item: SelectedChildren) -> list[tuple[str, str]]:
        """Return the ids of parents and children, a pair for each child."""
        columns = (item.lookup, item.query.entity.by_name["id"])
        pairs: list[tuple[str, str]] = []
        for chunk in _chunks(parent_ids):
            among = Among(item.lookup, chunk)
            sql = compile_children(item.query, among, columns, include_deleted=self.include_deleted)
            pairs += [(str(p), str(c)) for p, c in self.reader.execute(sql.text, sql.params)]
        return pairs


def _has_distance(bound: BoundQuery) -> bool:
    is_filtered = bound.where is not None and is_measured(bound.where)
    return is_filtered or any(isinstance(item.operand, Distance) for item in bound.order)


def _all_of(parts: list[BoundCondition]) -> BoundCondition | None:
    if len(parts) > 1:
        return BoundAnd(tuple(parts))
    return parts[0] if parts else None


def _with_id(entity: ObjectType, columns: Sequence[Field]) -> tuple[Field, ...]:
    named = {column.name: column for column in (*columns, entity.by_name["id"])}
    if any(column.formula for column in columns):
        inputs = (entity.by_name[name.lower()] for name in volatile_inputs(entity))
        named |= {field.name: field for field in inputs}
    return tuple(named.values())


def _chunks(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(ids), _CHUNK):
        yield ids[start : start + _CHUNK]


def _value(row: Record, field: Field) -> Value:
    cell = row.get(field.name)
    return None if isinstance(cell, Related | Children) else cell


def _values(row: Record) -> dict[str, Value]:
    return {name: cell for name, cell in row.items() if not isinstance(cell, Related | Children)}


def _measure(row: Record, distance: Distance) -> float | None:
    latitude = _value(row, distance.latitude.field)
    longitude = _value(row, distance.longitude.field)
    if latitude is None or longitude is None:
        return None
    return distance_between(
        float(latitude), float(longitude), distance.point, is_in_miles=distance.is_in_miles
    )


def _sort(rows: list[Record], item: BoundOrder) -> None:
    """Sort by one key. Python's sort is stable, so rows that are equal in it keep the order they had."""
    operand = item.operand
    described = operand.field

    def value(row: Record) -> Value:
        if isinstance(operand, Distance):
            return _measure(row, operand)
        found = _value(row, described)
        return bool(found) if described.type is FieldType.CHECKBOX else found

    rows.sort(key=lambda row: sort_key(described, value(row)), reverse=item.is_descending)
    rows.sort(key=lambda row: (value(row) is None) is item.has_nulls_last)
