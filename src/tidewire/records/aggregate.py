"""Groups records and adds them up: GROUP BY, its roll-ups, HAVING and the order of the answer.

The database groups wherever it gives the answer that we would: groups and measures of the record's own
fields, no roll-ups, no functions of dates, no smallest or largest text. Otherwise records are read page by
page and folded into their groups at once, so memory holds groups, not records. Sums are exact either way:
every number is added as the decimal that was stored, whatever order the records come in. A group shows the
spelling of its first record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import combinations
from typing import Any

from tidewire.errors import TooManyRecords
from tidewire.events import Value
from tidewire.schema.field_types import NUMBER_TYPES, FieldType
from tidewire.schema.model import Field
from tidewire.schema.text_keys import fold_key
from tidewire.soql.ast import Grouping
from tidewire.soql.bound import BoundAggregate, BoundOrder, BoundQuery, Column, Measure, Operand
from tidewire.soql.compile_predicate import compile_predicate
from tidewire.soql.compile_sql import compile_groups, compile_scan
from tidewire.storage.store import Reader, Row

MAX_GROUPS = 2_000
_PAGE_ROWS = 2_000
_MAX_SCALE = 9  # decimal places; more would leave too few digits of a double before the point
_TIMES = frozenset({FieldType.DATE, FieldType.DATETIME, FieldType.TIME})

SortKey = tuple[bool, int, Value]


def run_aggregate(
    reader: Reader, bound: BoundQuery, aggregate: BoundAggregate, *, include_deleted: bool
) -> list[dict[str, Value]]:
    """Return the rows of an aggregate query under the names of its SELECT.

    Raises TooManyRecords for too many groups.
    """
    first = bound.offset or 0
    # Without HAVING and LIMIT every group is a row of the answer, so one group too many decides already.
    is_whole = aggregate.having is None and bound.limit is None
    most = first + MAX_GROUPS if is_whole else None
    groups = try_grouped(reader, bound, aggregate, most, include_deleted=include_deleted)
    if groups is None:
        records = _iter_records(reader, bound, aggregate, include_deleted=include_deleted)
        groups = _fold(records, aggregate, most)
    return _answer(groups, bound, aggregate)


def aggregate_rows(
    records: Iterable[tuple[Value, ...]], bound: BoundQuery, aggregate: BoundAggregate
) -> list[dict[str, Value]]:
    """Do what `run_aggregate` does for records in memory, given as the values of `aggregate.operands`."""
    return _answer(_fold(records, aggregate, None), bound, aggregate)


def _answer(groups: _Groups, bound: BoundQuery, aggregate: BoundAggregate) -> list[dict[str, Value]]:
    first = bound.offset or 0
    rows = groups.rows()
    if aggregate.having is not None:
        holds = compile_predicate(aggregate.having, bound.entity)
        rows = [row for row in rows if holds(row)]
    for item in reversed(aggregate.order):
        _sort(rows, item)
    rows = rows[first:] if bound.limit is None else rows[first : first + bound.limit]
    if len(rows) > MAX_GROUPS:
        raise _too_many()
    return [{name: row[slot.name] for name, slot in aggregate.select} for row in rows]


def _too_many() -> TooManyRecords:
    return TooManyRecords(
        "Aggregate query does not support queryMore(), use LIMIT to restrict the results to a single batch",
        limit=MAX_GROUPS,
    )


def _fold(records: Iterable[tuple[Value, ...]], aggregate: BoundAggregate, most: int | None) -> _Groups:
    """Group records one by one. Raises TooManyRecords for more than `most` groups."""
    groups = _Groups(aggregate)
    for record in records:
        groups.add(record)
        if most is not None and groups.count > most:
            raise _too_many()
    return groups


def try_grouped(
    reader: Reader, bound: BoundQuery, aggregate: BoundAggregate, most: int | None, *, include_deleted: bool
) -> _Groups | None:
    """Return the groups as the database makes them, or None if they could differ from ours.

    Raises TooManyRecords for more than `most`.
    """
    is_plain = aggregate.grouping is Grouping.PLAIN or not aggregate.groups
    if not is_plain or not all(_is_own(group.operand) for group in aggregate.groups):
        return None
    if bound.entity.shares or not bound.entity.table:
        return None  # some of its rows are not in its table, from which the values of a group are read
    if not all(_is_measurable(measure) for measure in aggregate.measures):
        return None
    row_count = None if most is None else most + 1
    sql = compile_groups(bound, aggregate, row_count=row_count, include_deleted=include_deleted)
    found = reader.execute(sql.text, sql.params)
    if most is not None and len(found) > most:
        raise _too_many()
    groups = _Groups(aggregate)
    for row in found:
        if not groups.add_group(row):
            return None
    return groups


def _is_own(operand: Operand) -> bool:
    if not isinstance(operand, Column) or operand.steps or operand.others:
        return False
    return bool(operand.field.column) or operand.field.type is FieldType.ID


def _is_measurable(measure: Measure) -> bool:
    described = measure.operand.field
    is_number = described.type in NUMBER_TYPES
    match measure.function:
        case "COUNT" | "COUNT_DISTINCT":
            return _is_own(measure.operand)
        case "MIN" | "MAX":
            return _is_own(measure.operand) and (is_number or described.type in _TIMES)
        case _:
            return _is_own(measure.operand) and is_number and described.scale <= _MAX_SCALE


def _iter_records(
    reader: Reader, bound: BoundQuery, aggregate: BoundAggregate, *, include_deleted: bool
) -> Iterator[tuple[Value, ...]]:
    after_id = ""
    while True:
        sql = compile_scan(
            bound,
            aggregate.operands,
            after_id=after_id,
            row_count=_PAGE_ROWS,
            include_deleted=include_deleted,
        )
        page = reader.execute(sql.text, sql.params)
        yield from (row[1:] for row in page)
        if len(page) < _PAGE_ROWS:
            return
        after_id = str(page[-1][0])


class _Groups:
    """The groups found so far, by the keys of their values; a value that was rolled up has no key."""

    def __init__(self, aggregate: BoundAggregate) -> None:
        self._aggregate = aggregate
        self._fields = [group.operand.field for group in aggregate.groups]
        self._levels = tuple(_levels(len(aggregate.groups), aggregate.grouping))
        self._groups: dict[tuple[SortKey | None, ...], _Group] = {}
        if not aggregate.groups:
            self._groups[()] = _Group((), aggregate.measures)

    @property
    def count(self) -> int:
        """Return how many groups there are, subtotals included."""
        return len(self._groups)

    def add(self, record: tuple[Value, ...]) -> None:
        width = len(self._fields)
        values = [_shown(f, v) for f, v in zip(self._fields, record[:width], strict=True)]
        keys = [sort_key(f, v) for f, v in zip(self._fields, values, strict=True)]
        for level in self._levels:
            key = tuple(k if place in level else None for place, k in enumerate(keys))
            group = self._groups.get(key)
            if group is None:
                kept = tuple(v if place in level else None for place, v in enumerate(values))
                group = self._groups[key] = _Group(kept, self._aggregate.measures)
            group.add(record[width:])

    def add_group(self, row: Row) -> bool:
        """Add a group as the statement of `compile_groups` returns it; false if its sums are not exact."""
        width = len(self._fields)
        values = tuple(_shown(f, v) for f, v in zip(self._fields, row[:width], strict=True))
        group = _Group(values, self._aggregate.measures)
        columns = iter(row[width:])
        for tally in group.tallies:
            if not tally.take(columns):
                return False
        keys = tuple(sort_key(f, v) for f, v in zip(self._fields, values, strict=True))
        self._groups[keys] = group
        return True

    def rows(self) -> list[dict[str, Value]]:
        """Return one row per group, in the order of its values, a subtotal after the groups that it sums."""
        ordered = sorted(
            self._groups.items(),
            key=lambda item: tuple((k is None, k or (False, 0, "")) for k in item[0]),
        )
        rows = []
        for key, group in ordered:
            row: dict[str, Value] = {}
            for described, value, kept in zip(self._aggregate.groups, group.values, key, strict=True):
                row[described.name] = value
                row[described.rolled_name] = int(kept is None)
            for measure, tally in zip(self._aggregate.measures, group.tallies, strict=True):
                row[measure.name] = tally.result()
            rows.append(row)
        return rows


def _levels(width: int, grouping: Grouping) -> Iterable[frozenset[int]]:
    """Return which values each kind of row keeps."""
    match grouping:
        case Grouping.PLAIN:
            return [frozenset(range(width))]
        case Grouping.ROLLUP:
            return [frozenset(range(kept)) for kept in range(width, -1, -1)]
        case Grouping.CUBE:
            sizes = range(width, -1, -1)
            return [frozenset(kept) for size in sizes for kept in combinations(range(width), size)]


class _Group:
    __slots__ = ("tallies", "values")

    def __init__(self, values: tuple[Value, ...], measures: tuple[Measure, ...]) -> None:
        self.values = values
        self.tallies = [_Tally(measure.function, measure.operand.field) for measure in measures]

    def add(self, values: tuple[Value, ...]) -> None:
        for tally, value in zip(self.tallies, values, strict=True):
            if value is not None:
                tally.add(value)


@dataclass(slots=True)
class _Tally:
    """One measure of one group."""

    function: str
    described: Field
    count: int = 0
    total: Decimal = Decimal(0)
    best: tuple[SortKey, Value] | None = None
    seen: set[SortKey] = field(default_factory=set)  # only of values that were added one by one

    def add(self, value: Value) -> None:
        self.count += self.function != "COUNT_DISTINCT"
        match self.function:
            case "SUM" | "AVG":
                self.total += Decimal(repr(value))
            case "COUNT_DISTINCT":
                self.seen.add(sort_key(self.described, value))
                self.count = len(self.seen)
            case "MIN" | "MAX":
                key = sort_key(self.described, value)
                is_better = self.best is None or (key < self.best[0]) is (self.function == "MIN")
                if is_better and (self.best is None or key != self.best[0]):
                    self.best = (key, value)
            case _:
                pass

    def take(self, columns: Iterator[Any]) -> bool:
        """Read the columns of this measure; return false if its sum is not exact."""
        match self.function:
            case "SUM" | "AVG":
                self.count, odd, millions, rest = (int(next(columns) or 0) for _ in range(4))
                scale = 0 if self.described.type is FieldType.INTEGER else self.described.scale
                self.total = Decimal(millions * 1_000_000 + rest).scaleb(-scale)
                return odd == 0
            case "MIN" | "MAX":
                value = next(columns)
                self.best = None if value is None else (sort_key(self.described, value), value)
            case _:
                self.count = int(next(columns))
        return True

    def result(self) -> Value:
        match self.function:
            case "COUNT" | "COUNT_DISTINCT":
                return self.count
            case "MIN" | "MAX":
                return None if self.best is None else self.best[1]
            case _ if self.count == 0:
                return None
            case "AVG":
                return float(self.total / self.count)
            case _:
                return int(self.total) if self.described.type is FieldType.INTEGER else float(self.total)


def _shown(described: Field, value: Value) -> Value:
    return bool(value) if described.type is FieldType.CHECKBOX else value


def sort_key(described: Field, value: Value) -> SortKey:
    """Return the key to group and sort by: null first, text by its folded key, picklists as defined."""
    if value is None:
        return (False, 0, "")
    if described.is_text and isinstance(value, str):
        key = fold_key(value, case_sensitive=described.case_sensitive)
        places = [place for place, c in enumerate(described.picklist) if fold_key(c.value) == key]
        return (True, places[0] if places else len(described.picklist), key)
    return (True, 0, value)


def _sort(rows: list[dict[str, Value]], item: BoundOrder) -> None:
    """Sort by one key, keeping the order of rows that are equal in it."""
    slot = item.operand.field

    def key(row: dict[str, Value]) -> SortKey:
        return sort_key(slot, row[slot.name])

    rows.sort(key=key, reverse=item.is_descending)
    rows.sort(key=lambda row: (row[slot.name] is None) is item.has_nulls_last)
