"""Runs a query batch: reads the ids of all records first, then their values page by page into the result.

The query is bound again for every page, so each page follows the owner's current rights. An interrupted batch starts
over. Cells are kept as stored values; CSV, JSON or XML is rendered when a client fetches the result.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tidewire.errors import JobInvalid
from tidewire.gate.monitoring import ApiReader, QueryRead
from tidewire.gate.namespaces import try_namespace
from tidewire.jobs import store
from tidewire.jobs.batch_context import BatchContext
from tidewire.jobs.model import PARENT, Operation, ResultColumn
from tidewire.records.query import Cell, Children, QueryRunner, Record, Related, RowIds
from tidewire.schema.field_types import LONG_TEXT_TYPES, FieldType
from tidewire.schema.model import ObjectType
from tidewire.schema.values import join_person_name
from tidewire.soql.ast import TypeOf
from tidewire.soql.bound import (
    BoundQuery,
    Selected,
    SelectedChildren,
    SelectedDistance,
    SelectedField,
    SelectedParent,
)
from tidewire.soql.parser import parse_query
from tidewire.storage.store import Reader, Transaction

_PAGE_ROWS = 1_000
_LONG_PAGE_ROWS = 50  # where a single value may have more than a hundred thousand characters
_LONG_TYPES = frozenset(kind.name for kind in LONG_TEXT_TYPES)


class QueryRun:
    """One query batch in progress. Each `step` reads a page."""

    def __init__(self, context: BatchContext, soql: str) -> None:
        self._context = context
        self._soql = soql
        self._now_ms = context.clock.now_ms()
        self._ids: RowIds | None = None
        self._read = 0

    async def step(self) -> bool:
        """Read the next page; return whether the batch is done. Raises what binding raises, and JobInvalid."""
        context = self._context
        if self._ids is None:
            await self._open()
            return False
        begun_s = context.clock.monotonic_s()
        bound = await context.gate.bind(context.principal, self._soql, self._now_ms)
        columns = result_columns(bound)
        is_long = any(column.type in _LONG_TYPES for column in columns)
        size = _LONG_PAGE_ROWS if is_long else _PAGE_ROWS
        wanted = self._ids.between(self._read, self._read + size)

        def read(reader: Reader) -> list[Record]:
            context.check_owner(reader)
            runner = self._runner(reader)
            rows = runner.read_again(bound, wanted)
            runner.complete(rows, bound.select, bound.entity)
            return rows

        rows = await context.gate.records.read(read)
        data = json.dumps([list(iter_cells(columns, bound, row)) for row in rows]).encode()
        operation = "QueryAll" if context.job.request.operation is Operation.QUERY_ALL else "Query"
        query_read = QueryRead(operation, self._soql, bound.entity.name, rows, len(self._ids))

        def keep(tx: Transaction) -> None:
            context.require_running(tx)
            context.add_progress(tx, len(rows), 0, data, begun_s)
            context.gate.monitor.append_query(tx, ApiReader(context.principal, "Bulk", None), query_read)

        await context.gate.records.write_plain(keep)
        self._read += len(wanted)
        if self._read < len(self._ids):
            return False
        await context.finish()
        return True

    async def _open(self) -> None:
        context = self._context
        await context.begin()
        check_query(self._soql)
        bound = await context.gate.bind(context.principal, self._soql, self._now_ms)
        columns = result_columns(bound)
        records = context.gate.records
        while await records.write_plain(lambda tx: store.restart_batch(tx, context.batch.batch_id)):
            pass
        self._ids = await records.read(lambda reader: self._runner(reader).read_ids(bound))
        shown = self._shown(columns)
        await records.write_plain(lambda tx: store.set_columns(tx, context.batch.batch_id, shown))

    def _shown(self, columns: Sequence[ResultColumn]) -> Sequence[ResultColumn]:
        """Return the columns under the names that the job's owner uses, without the namespace."""
        context = self._context
        namespace = try_namespace(context.gate.catalog, context.job.request.namespace)
        if namespace is None:
            return columns
        return [replace(column, path=namespace.unqualify_path(column.path)) for column in columns]

    def _runner(self, reader: Reader) -> QueryRunner:
        is_all = self._context.job.request.operation is Operation.QUERY_ALL
        return QueryRunner(reader, is_all, self._now_ms)


def check_query(soql: str) -> None:
    """Raise JobInvalid for a query that bulk jobs do not support, SoqlSyntaxError for an invalid one."""
    query = parse_query(soql)
    if query.offset is not None:
        raise _unsupported("OFFSET is not supported in Bulk Query")
    if any(isinstance(item, TypeOf) for item in query.select):
        raise _unsupported("TYPEOF is not supported in Bulk Query")


def result_columns(bound: BoundQuery) -> tuple[ResultColumn, ...]:
    """Return the columns of a query's result, parents last. Raises JobInvalid if a flat row cannot hold it."""
    if bound.is_count or bound.aggregate is not None:
        raise _unsupported("Aggregate functions and GROUP BY are not supported in Bulk Query")
    return tuple(sorted(_iter_columns(bound.select, bound.entity, ""), key=lambda column: column.is_parent))


def iter_cells(columns: Sequence[ResultColumn], bound: BoundQuery, row: Record) -> Iterator[Cell]:
    """Yield the record's id, then the values of the columns; null behind an empty lookup."""
    yield row.get("Id")
    for column in columns:
        yield _cell(bound.select, bound.entity, row, column.path.split("."))


def _iter_columns(select: Sequence[Selected], entity: ObjectType, prefix: str) -> Iterator[ResultColumn]:
    for item in select:
        path = prefix + item.name
        match item:
            case SelectedParent():
                yield ResultColumn(path, PARENT, item.branches[0].entity.name)
                yield from _parent_columns(item, path + ".")
            case SelectedChildren():
                raise _unsupported(
                    "Aggregate Relationships not supported in Bulk Query with CSV content type"
                )
            case SelectedField() if item.function or item.field.type is FieldType.PERSON_NAME:
                yield ResultColumn(path, FieldType.TEXT.name, entity.name)
            case SelectedField() if item.field.is_compound:
                raise _unsupported("Selecting compound data not supported in Bulk Query")
            case SelectedField():
                yield ResultColumn(path, item.field.type.name, entity.name)
            case SelectedDistance():
                yield ResultColumn(path, FieldType.NUMBER.name, entity.name)
            case _:
                yield ResultColumn(path, FieldType.TEXT.name, entity.name)


def _parent_columns(parent: SelectedParent, prefix: str) -> Iterator[ResultColumn]:
    """Yield the columns of a parent of any of its types: an owner may be a user with an email, or a queue without."""
    seen: set[str] = set()
    for branch in sorted(parent.branches, key=lambda each: len(each.select), reverse=True):
        for column in _iter_columns(branch.select, branch.entity, prefix):
            if column.path not in seen:
                seen.add(column.path)
                yield column


def _cell(select: Sequence[Selected], entity: ObjectType, row: Record, path: Sequence[str]) -> Cell:
    name, *rest = path
    item = next((item for item in select if item.name == name), None)
    if item is None:
        return None
    if isinstance(item, SelectedField) and not item.function:
        if item.field.type is FieldType.PERSON_NAME:
            parts = {p.name: _plain(row.get(p.name)) for p in entity.components(item.field.name)}
            return join_person_name(parts)
        return _plain(row.get(item.field.name))
    cell = row.get(name)
    if isinstance(cell, Related):
        if not rest:
            return f"{cell.entity.name}/{cell.row['Id']}"
        return _cell(cell.select, cell.entity, cell.row, rest)
    return _plain(cell)


def _plain(cell: Cell) -> str | int | float | bool | None:
    return None if isinstance(cell, Related | Children) else cell


def _unsupported(message: str) -> JobInvalid:
    return JobInvalid(message, reason="FeatureNotEnabled")
