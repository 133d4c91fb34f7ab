"""SOQL over rows in memory, filtered with the predicates of push topics and sorted like data queries.

Fields of related rows are added to a row under their full path, so that predicates need not follow relationships.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from tidewire.errors import SoqlSyntaxError
from tidewire.events import Value
from tidewire.frontends.rest.tooling.model import FULL_NAME, METADATA, Row, Seen, ToolingObject
from tidewire.frontends.rest.tooling.objects import TOOLING_CATALOG, TOOLING_OBJECTS
from tidewire.names import data_url
from tidewire.records.aggregate import aggregate_rows, sort_key
from tidewire.schema.field_types import FieldType
from tidewire.schema.model import ObjectType
from tidewire.schema.values import render_value
from tidewire.soql.binder import bind_query
from tidewire.soql.bound import (
    BoundAggregate,
    BoundAnd,
    BoundCompare,
    BoundCondition,
    BoundIn,
    BoundIncludes,
    BoundLike,
    BoundNot,
    BoundOr,
    BoundOrder,
    BoundQuery,
    Column,
    Operand,
    SelectedChildren,
    SelectedField,
    SelectedParent,
)
from tidewire.soql.compile_predicate import compile_predicate
from tidewire.soql.parser import parse_query

_DATETIME_SUFFIX = "+0000"
_ALONE = (FULL_NAME, METADATA)
_GROUP = "AggregateResult"


@dataclass(frozen=True, slots=True)
class Found:
    """A query's result: rendered records, or only their number for a count."""

    entity: str
    records: list[dict[str, object]]
    total: int


def bind_tooling_query(soql: str, seen: Seen, now_ms: int) -> BoundQuery:
    """Bind a query over tooling objects. Raises what binding a query raises."""
    bound = bind_query(parse_query(soql), TOOLING_CATALOG, now_ms=now_ms, caller=seen.grants.caller)
    aggregate = bound.aggregate
    if aggregate is not None and TOOLING_OBJECTS[bound.entity.name.lower()].key != "Id":
        reason = f"{bound.entity.name} supports COUNT() only, without grouping"
        raise SoqlSyntaxError(reason, row=1, column=1, query=soql)
    if aggregate is not None and not all(isinstance(each, Column) for each in aggregate.operands):
        raise SoqlSyntaxError("tooling records can be grouped by fields only", row=1, column=1, query=soql)
    return bound


def run_tooling_query(soql: str, seen: Seen, version: int, now_ms: int) -> Found:
    """Run a query over tooling objects. Raises what binding a query raises."""
    bound = bind_tooling_query(soql, seen, now_ms)
    runner = Runner(seen, version)
    if bound.aggregate is not None:
        records = runner.groups(bound, bound.aggregate)
        return Found(_GROUP, records, len(records))
    rows = runner.rows_of(bound)
    if bound.is_count:
        return Found(bound.entity.name, [], len(rows))
    return Found(bound.entity.name, runner.render(bound, rows), len(rows))


@dataclass(slots=True)
class Runner:
    """Runs one request's query; each table is built once."""

    seen: Seen
    version: int
    tables: dict[str, Sequence[Row]] = field(default_factory=dict)
    keyed: dict[str, dict[object, Row]] = field(default_factory=dict)

    def table(self, entity: ObjectType) -> Sequence[Row]:
        """Return all rows of an object."""
        if entity.name not in self.tables:
            self.tables[entity.name] = TOOLING_OBJECTS[entity.name.lower()].rows(self.seen)
        return self.tables[entity.name]

    def rows_of(self, bound: BoundQuery, rows: Sequence[Row] | None = None) -> list[Row]:
        """Return the rows that a query selects, in its order."""
        found = list(self.table(bound.entity) if rows is None else rows)
        paths: dict[str, Column] = {}
        where = None if bound.where is None else _flat(bound.where, paths)
        order = [replace(item, operand=_flat_operand(item.operand, paths)) for item in bound.order]
        wide = [self.widened(row, paths) for row in found]
        if where is not None:
            holds = compile_predicate(where, bound.entity)
            wide = [row for row in wide if holds(cast("Mapping[str, Value]", row))]
        for item in reversed(order):
            _sort(wide, item)
        first = bound.offset or 0
        return wide[first:] if bound.limit is None else wide[first : first + bound.limit]

    def widened(self, row: Row, paths: Mapping[str, Column]) -> Row:
        """Return a row with the fields of related rows added."""
        if not paths:
            return row
        return row | {name: self.follow(row, column) for name, column in paths.items()}

    def follow(self, row: Row, column: Column) -> object:
        """Return the value at the end of a path."""
        current: Row | None = row
        for step in column.steps:
            current = None if current is None else self.parent(step.target, current.get(step.lookup.name))
        return None if current is None else current.get(column.field.name)

    def parent(self, target: ObjectType, key: object) -> Row | None:
        """Return the row of `target` with this key, or None."""
        if target.name not in self.keyed:
            name = TOOLING_OBJECTS[target.name.lower()].key
            self.keyed[target.name] = {row[name]: row for row in self.table(target)}
        return self.keyed[target.name].get(key)

    def groups(self, bound: BoundQuery, aggregate: BoundAggregate) -> list[dict[str, object]]:
        """Render the groups of an aggregate query."""
        rows = self.rows_of(replace(bound, order=(), limit=None, offset=None))
        columns = [each for each in aggregate.operands if isinstance(each, Column)]
        records = (tuple(cast("Value", self.follow(row, column)) for column in columns) for row in rows)
        return [
            {"attributes": {"type": _GROUP}}
            | {
                name: None if row[name] is None else render_value(slot, row[name], _DATETIME_SUFFIX)
                for name, slot in aggregate.select
            }
            for row in aggregate_rows(records, bound, aggregate)
        ]

    # records

    def render(self, bound: BoundQuery, rows: Sequence[Row]) -> list[dict[str, object]]:
        """Render rows as records. Raises SoqlSyntaxError for metadata of more than one row."""
        entry = TOOLING_OBJECTS[bound.entity.name.lower()]
        names = {item.name for item in bound.select}
        if entry.complete is not None and names.intersection(_ALONE):
            if len(rows) > 1:
                reason = (
                    "When retrieving results with Metadata or FullName fields, the query qualifications must "
                    f"specify no more than one row for retrieval. Result size: {len(rows)}"
                )
                raise SoqlSyntaxError(reason, row=1, column=1, query="")
            rows = [row | dict(entry.complete(self.seen, row)) for row in rows]
        return [self.record(bound, row) for row in rows]

    def record(self, bound: BoundQuery, row: Row) -> dict[str, object]:
        """Render one record, with its parents and children inside."""
        record: dict[str, object] = {"attributes": attributes(bound.entity, row, self.version)}
        for item in bound.select:
            match item:
                case SelectedField():
                    record[item.name] = render_cell(bound.entity, item.field.name, row)
                case SelectedParent():
                    record[item.name] = self.related(item, row)
                case SelectedChildren():
                    record[item.name] = self.children(item, bound.entity, row)
                case _:
                    record[item.name] = None
        return record

    def related(self, item: SelectedParent, row: Row) -> dict[str, object] | None:
        branch = item.branches[0]
        parent = self.parent(branch.entity, row.get(item.lookup.name))
        if parent is None:
            return None
        return self.record(BoundQuery(branch.entity, branch.select), parent)

    def children(self, item: SelectedChildren, entity: ObjectType, row: Row) -> dict[str, object] | None:
        key = row.get(TOOLING_OBJECTS[entity.name.lower()].key)
        own = [each for each in self.table(item.query.entity) if each.get(item.lookup.name) == key]
        rows = self.rows_of(item.query, own)
        if not rows:
            return None
        return render_page(Found(item.query.entity.name, self.render(item.query, rows), len(rows)))


def attributes(entity: ObjectType, row: Row, version: int) -> dict[str, object]:
    """Return the attributes of a record: its type and URL."""
    entry: ToolingObject = TOOLING_OBJECTS[entity.name.lower()]
    url = data_url(version, "tooling", "sobjects", entity.name, str(row[entry.key]))
    return {"type": entity.name, "url": url}


def render_cell(entity: ObjectType, name: str, row: Row) -> object:
    """Render one value as JSON."""
    value = row.get(name)
    described = entity.by_name[name.lower()]
    if name == METADATA:
        return value
    if described.type is FieldType.CHECKBOX:
        return bool(value)
    return render_value(described, cast("Value", value), _DATETIME_SUFFIX)


def render_page(found: Found) -> dict[str, object]:
    """Render a result, which always fits on one page."""
    return {
        "size": len(found.records) or found.total,
        "totalSize": found.total,
        "done": True,
        "queryLocator": None,
        "entityTypeName": found.entity,
        "records": found.records,
    }


def _flat_operand(operand: Operand, paths: dict[str, Column]) -> Operand:
    """Return a column whose name is its path, and add it to `paths`."""
    if not isinstance(operand, Column) or not operand.steps:
        return operand
    name = ".".join((*(step.lookup.name for step in operand.steps), operand.field.name))
    paths[name] = operand
    return Column(replace(operand.field, name=name))


def _flat_column(column: Column, paths: dict[str, Column]) -> Column:
    flat = _flat_operand(column, paths)
    return flat if isinstance(flat, Column) else column


def _flat(where: BoundCondition, paths: dict[str, Column]) -> BoundCondition:
    match where:
        case BoundAnd(items):
            return BoundAnd(tuple(_flat(item, paths) for item in items))
        case BoundOr(items):
            return BoundOr(tuple(_flat(item, paths) for item in items))
        case BoundNot(BoundLike() as item):
            return BoundNot(replace(item, operand=_flat_column(item.operand, paths)))
        case BoundNot(BoundCompare() as item):
            return BoundNot(replace(item, operand=_flat_operand(item.operand, paths)))
        case BoundCompare() | BoundIn():
            return replace(where, operand=_flat_operand(where.operand, paths))
        case BoundLike() | BoundIncludes():
            return replace(where, operand=_flat_column(where.operand, paths))
        case _:  # a semi-join, which predicates do not support
            return where


def _sort(rows: list[Row], item: BoundOrder) -> None:
    described = item.operand.field

    def value(row: Row) -> Value:
        found = cast("Value", row.get(described.name))
        return bool(found) if described.type is FieldType.CHECKBOX else found

    rows.sort(key=lambda row: sort_key(described, value(row)), reverse=item.is_descending)
    rows.sort(key=lambda row: (value(row) is None) is item.has_nulls_last)
