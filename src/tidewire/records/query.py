"""Runs bound queries in one read transaction.

Records are read by one statement, sorted and cut by the database. Parents and children are then read for all
of them together, a few hundred ids at a time, so a query costs a statement per relationship and chunk, not per
record. Distances are computed here, after a statement without them: no SQL of both databases has the functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tidewire.events import Value
from tidewire.records.aggregate import run_aggregate
from tidewire.records.derived import refresh_volatile, volatile_inputs
from tidewire.records.table import decode_row
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
from tidewire.soql.compile_sql import Among, compile_sql
from tidewire.soql.condition_binder import conjuncts
from tidewire.soql.distance import distance_between
from tidewire.soql.presentation import present
from tidewire.storage.store import Reader, Row

_CHUNK = 500  # ids in one statement, well inside what either database takes


@dataclass(frozen=True, slots=True)
class Related:
    """The record that a lookup points at, inside the row of the record that holds the lookup."""

    entity: ObjectType
    select: tuple[Selected, ...]
    row: Record


@dataclass(frozen=True, slots=True)
class Children:
    """The records that point at a record, inside its row; never none."""

    entity: ObjectType
    select: tuple[Selected, ...]
    rows: list[Record]


Cell = Value | Related | Children
Record = dict[str, Cell]
"""One record: stored values by field name, a selected compound's parts under their own names, and what the
query calls related records, distances and presented values under the names it gives them."""


@dataclass(frozen=True, slots=True)
class QueryAnswer:
    """The rows of a query, or only their number for a count."""

    rows: list[Record]
    count: int | None = None


def run_query(
    reader: Reader, bound: BoundQuery, now_ms: int, *, include_deleted: bool = False
) -> QueryAnswer:
    """Answer a query. Every record brings its id, selected or not; formulas over the time of day are worth what
    they are at `now_ms`, except in conditions and order, which go by what is stored.
    """
    if bound.aggregate is not None:
        return QueryAnswer(_aggregate(reader, bound, include_deleted=include_deleted))
    runner = _Runner(reader, include_deleted, now_ms)
    if bound.is_count:
        return QueryAnswer([], runner.count(bound))
    rows = runner.read(bound)
    runner.complete(rows, bound.select, bound.entity)
    return QueryAnswer(rows)


def count_rows(rows: Sequence[Mapping[str, Cell]]) -> int:
    """How many records there are, those inside others included."""
    inner = sum(count_rows(cell.rows) for row in rows for cell in row.values() if isinstance(cell, Children))
    return len(rows) + inner


def _aggregate(reader: Reader, bound: BoundQuery, *, include_deleted: bool) -> list[Record]:
    if bound.aggregate is None:
        return []
    rows = run_aggregate(reader, bound, bound.aggregate, include_deleted=include_deleted)
    return [dict[str, Cell](row) for row in rows]


@dataclass(frozen=True, slots=True)
class _Runner:
    reader: Reader
    include_deleted: bool
    now_ms: int

    def count(self, bound: BoundQuery) -> int:
        if bound.where is not None and is_measured(bound.where):
            return len(self.read(replace(bound, is_count=False)))
        sql = compile_sql(bound, include_deleted=self.include_deleted)
        ((count,),) = self.reader.execute(sql.text, sql.params)
        return int(count)

    def read(self, bound: BoundQuery) -> list[Record]:
        """The records themselves, without what is related to them."""
        if _has_distance(bound):
            return self.read_measured(bound)
        return self.execute(bound, _with_id(bound.entity, flat_columns(bound.select)))

    def execute(
        self, bound: BoundQuery, columns: tuple[Field, ...], among: Among | None = None
    ) -> list[Record]:
        sql = compile_sql(bound, include_deleted=self.include_deleted, among=among, columns=columns)
        return self.decode(bound.entity, sql.columns, self.reader.execute(sql.text, sql.params))

    def decode(self, entity: ObjectType, columns: tuple[Field, ...], rows: Iterable[Row]) -> list[Record]:
        """Database rows as records, with volatile formulas brought up to date."""
        records = [decode_row(columns, row) for row in rows]
        if any(f.formula for f in columns):
            for record in records:
                fresh = refresh_volatile(entity, record, self.now_ms)
                record.update({name: value for name, value in fresh.items() if name in record})
        return [dict[str, Cell](record) for record in records]

    def read_measured(self, bound: BoundQuery) -> list[Record]:
        """A query whose WHERE or ORDER BY measures distances: the database answers all the rest of it."""
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
        looked_at += [item.operand for item in bound.order if isinstance(item.operand, Distance)]
        needed = tuple(column.field for operand in looked_at for column in columns_of(operand))
        rows = self.execute(plain, _with_id(bound.entity, (*flat_columns(bound.select), *needed)))
        tests = [compile_predicate(part, bound.entity) for part in measured]
        found = [row for row in rows if all(holds(_values(row)) for holds in tests)]
        for item in bound.order[:1]:
            if isinstance(item.operand, Distance):
                _sort_by_distance(found, item, item.operand)
        first = bound.offset or 0
        return found[first:] if bound.limit is None else found[first : first + bound.limit]

    # what is related

    def complete(self, rows: list[Record], select: tuple[Selected, ...], entity: ObjectType) -> None:
        """Add to each row what the selection has besides the record's own fields."""
        for item in select:
            match item:
                case SelectedField():
                    if item.function:
                        for row in rows:
                            row[item.name] = present(item.function, item.field, _value(row, item.field))
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
            # The first characters of an id say which type it is of.
            own = sorted(each for each in ids if each.startswith(entity.key_prefix))
            columns = _with_id(entity, flat_columns(branch.select))
            parents: list[Record] = []
            for chunk in _chunks(own):
                among = Among(entity.by_name["id"], chunk)
                # A record in the recycle bin is still what its children point at.
                sql = compile_sql(
                    BoundQuery(entity, branch.select), include_deleted=True, among=among, columns=columns
                )
                parents += self.decode(entity, columns, self.reader.execute(sql.text, sql.params))
            self.complete(parents, branch.select, entity)
            found |= {str(row["Id"]): Related(entity, branch.select, row) for row in parents}
        for row in rows:
            record_id = row[item.lookup.name]
            row[item.name] = None if record_id is None else found.get(str(record_id))

    def add_children(self, rows: list[Record], item: SelectedChildren) -> None:
        query, entity = item.query, item.query.entity
        columns = _with_id(entity, (*flat_columns(query.select), item.lookup))
        first = query.offset or 0
        end = None if query.limit is None else first + query.limit
        by_parent: dict[str, list[Record]] = {}
        for chunk in _chunks([str(row["Id"]) for row in rows]):
            # Each parent's children are all in one chunk, so the order of the statement is theirs.
            unpaged = replace(query, limit=None, offset=None)
            for child in self.execute(unpaged, columns, Among(item.lookup, chunk)):
                by_parent.setdefault(str(child[item.lookup.name]), []).append(child)
        kept = {parent: children[first:end] for parent, children in by_parent.items()}
        self.complete([child for children in kept.values() for child in children], query.select, entity)
        for row in rows:
            children = kept.get(str(row["Id"]))
            row[item.name] = Children(entity, query.select, children) if children else None


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


def _sort_by_distance(rows: list[Record], item: BoundOrder, distance: Distance) -> None:
    def key(row: Record) -> float:
        return _measure(row, distance) or 0.0

    # Python's sort is stable, so what the database sorted by stays the order of equal distances.
    rows.sort(key=key, reverse=item.is_descending)
    rows.sort(key=lambda row: (_measure(row, distance) is None) is item.has_nulls_last)
