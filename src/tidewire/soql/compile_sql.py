"""Writes a bound query as SQL that SQLite and PostgreSQL read alike.

The text of the SQL is made of words, column and table names from the catalog, and placeholders; whatever a
user wrote is a parameter. Text is compared by its folded key, never by its value. How conditions and joins are
written stands in `sql_writer`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidewire.events import Value
from tidewire.schema.model import Field
from tidewire.soql.bound import BoundAggregate, BoundOrder, BoundQuery, Column, Operand
from tidewire.soql.physical_names import column_of, identifier
from tidewire.soql.sql_writer import Tables, Writer, needs_joins, where_words


@dataclass(frozen=True, slots=True)
class CompiledSql:
    """A statement with `?` placeholders. `columns` are the fields of the result, none for a count."""

    text: str
    params: tuple[Value, ...]
    columns: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Among:
    """Only records of which an id or lookup field holds one of these ids."""

    field: Field
    ids: Sequence[str]


def compile_sql(
    bound: BoundQuery,
    *,
    include_deleted: bool = False,
    among: Among | None = None,
    columns: tuple[Field, ...] | None = None,
) -> CompiledSql:
    """Write the statement for a query: one row per record in a fixed order, or one number for a count.

    `columns` are the fields of the record to read, without it those that the query selects.
    """
    chosen = bound.flat_columns if columns is None else columns
    tables = _tables(bound, bound.order, map(Column, chosen), include_deleted=include_deleted)
    writer = Writer([], tables)
    filters = writer.filters(bound.where)
    if among is not None:
        filters.append(writer.among(among.field, among.ids))
    if bound.is_count:
        page = writer.page(bound.limit, bound.offset)
        rows = [*tables.words(), *where_words(filters)]
        # A limit bounds what is counted, so it belongs inside.
        if page:
            rows = ["FROM (SELECT 1", *rows, *page, ") AS counted"]
        return CompiledSql(" ".join(["SELECT COUNT(*)", *rows]), writer.all_params(), ())
    order = writer.order_by(bound.order)
    page = writer.page(bound.limit, bound.offset)
    listed = ", ".join(writer.selected(Column(each)) for each in chosen) or "NULL"
    rows = [*tables.words(), *where_words(filters)]
    words = ["SELECT", listed, *rows, "ORDER BY", order, *page]
    return CompiledSql(" ".join(words), writer.all_params(), chosen)


def compile_scan(
    bound: BoundQuery,
    operands: Sequence[Operand],
    *,
    after_id: str,
    row_count: int,
    include_deleted: bool = False,
) -> CompiledSql:
    """A page of the records that a query's WHERE picks, in the order of their ids: id, then each operand."""
    tables = _tables(bound, (), operands, include_deleted=include_deleted)
    writer = Writer([], tables)
    filters = writer.filters(bound.where)
    filters.append(f"{tables.column('id')} > {writer.put(after_id)}")
    listed = [tables.column("id"), *(writer.selected(operand) for operand in operands)]
    page = writer.page(row_count, None)
    rows = [*tables.words(), *where_words(filters), "ORDER BY", tables.column("id"), *page]
    return CompiledSql(" ".join(["SELECT", ", ".join(listed), *rows]), writer.all_params(), ())


def compile_children(
    bound: BoundQuery, among: Among, columns: tuple[Field, ...], *, include_deleted: bool = False
) -> CompiledSql:
    """The statement for the children of several records: LIMIT and OFFSET hold for those of each record."""
    if bound.limit is None and bound.offset is None:
        return compile_sql(bound, include_deleted=include_deleted, among=among, columns=columns)
    tables = _tables(bound, bound.order, map(Column, columns), include_deleted=include_deleted)
    writer = Writer([], tables)
    listed = ", ".join(f"{writer.selected(Column(each))} AS v{n}" for n, each in enumerate(columns))
    parent = tables.column(column_of(among.field))
    place = f"ROW_NUMBER() OVER (PARTITION BY {parent} ORDER BY {writer.order_by(bound.order)}) AS place"
    before_joins = len(writer.params)
    filters = [*writer.filters(bound.where), writer.among(among.field, among.ids)]
    ranked = " ".join([f"SELECT {listed}, {place}", *tables.words(), *where_words(filters)])
    first = bound.offset or 0
    kept = f"place > {writer.put(first)}"
    if bound.limit is not None:
        kept += f" AND place <= {writer.put(first + bound.limit)}"
    names = ", ".join(f"v{n}" for n in range(len(columns)))
    text = f"SELECT {names} FROM ({ranked}) AS ranked WHERE {kept} ORDER BY place"  # noqa: S608
    return CompiledSql(text, writer.all_params(before_joins), columns)


def compile_child_counts(bound: BoundQuery, among: Among, *, include_deleted: bool = False) -> CompiledSql:
    """Return the ids of those records that have children, and how many before LIMIT and OFFSET."""
    tables = _tables(bound, (), (), include_deleted=include_deleted)
    writer = Writer([], tables)
    filters = [*writer.filters(bound.where), writer.among(among.field, among.ids)]
    parent = tables.column(column_of(among.field))
    words = [f"SELECT {parent}, COUNT(*)", *tables.words(), *where_words(filters), f"GROUP BY {parent}"]
    return CompiledSql(" ".join(words), writer.all_params(), ())


def compile_groups(
    bound: BoundQuery,
    aggregate: BoundAggregate,
    *,
    row_count: int | None = None,
    include_deleted: bool = False,
) -> CompiledSql:
    """Write the statement for any `row_count` groups: the values of the record with the lowest id, then the measures.

    Only for groups and measures of stored fields of the record itself. A sum is four columns: how many values
    there are, how many of them are no decimal of the field's scale, and the sums of millions and of the rest
    of them all, counted in units of the last decimal place, so that no float is ever added to another.
    """
    operands = [measure.operand for measure in aggregate.measures]
    tables = _tables(bound, (), operands, include_deleted=include_deleted)
    writer = Writer([], tables)
    measures = [each for measure in aggregate.measures for each in writer.measure(measure)]
    keys = [writer.group_key(group.operand) for group in aggregate.groups]
    filters = writer.filters(bound.where)
    listed = [f"{each} AS m{number}" for number, each in enumerate(measures)]
    listed.append(f"MIN({tables.column('id')}) AS first_id")
    words = ["SELECT", ", ".join(listed), *tables.words(), *where_words(filters)]
    names = [f"m{number}" for number in range(len(measures))]
    if not keys:
        return CompiledSql(" ".join(words), writer.all_params(), ())
    inner = " ".join([*words, "GROUP BY", ", ".join(keys), *writer.page(row_count, None)])
    shown = [f"shown.{column_of(group.operand.field)}" for group in aggregate.groups]
    table = identifier(bound.entity.table)
    join = f"JOIN {table} AS shown ON shown.id = found.first_id"
    text = f"SELECT {', '.join([*shown, *names])} FROM ({inner}) AS found {join}"  # noqa: S608
    return CompiledSql(text, writer.all_params(), ())


def _tables(
    bound: BoundQuery, order: tuple[BoundOrder, ...], operands: Iterable[Operand], *, include_deleted: bool
) -> Tables:
    has_joins = needs_joins(bound.where, order, operands)
    return Tables(bound.entity, has_joins, include_deleted, visibility=bound.visibility)
