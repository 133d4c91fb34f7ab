"""Reading records as one user may: single records, searches, and access to records of other users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tidewire.access import user_record_access
from tidewire.access.derived_shares import is_derived
from tidewire.access.grants import Grants, read_grants
from tidewire.access.sharing import Level, Sharing
from tidewire.errors import FieldUnknown, ObjectUnknown, PlatformError, RecordNotFound
from tidewire.events import Value
from tidewire.gate.editable_fields import unknown_column
from tidewire.gate.requests import Rows
from tidewire.gate.user_view import UserView
from tidewire.records.derived import refresh_volatile
from tidewire.records.query import Cell, QueryRunner, Record, run_query
from tidewire.records.table import read_living, try_read_row
from tidewire.schema.catalog import Catalog
from tidewire.schema.model import Field, ObjectType
from tidewire.soql.ast import Operator
from tidewire.soql.bound import BoundCompare, BoundQuery, Column
from tidewire.soql.parser import parse_query
from tidewire.soql.sosl import Search, narrow, searched_fields
from tidewire.storage.store import Reader


def read_record(reader: Reader, view: UserView, obj: ObjectType, record_id: str, now_ms: int) -> Record:
    """Read a record without its hidden fields. Raises RecordNotFound or RecordDeleted."""
    if obj.shares and is_derived(record_id):
        return _read_derived(reader, view, obj, record_id, now_ms)
    if view.sharing.visibility(obj) is not None and not view.sharing.filter_accessible(
        reader, obj, [record_id], Level.READ
    ):
        raise RecordNotFound("The requested resource does not exist", record_id=record_id)
    row = read_living(reader, obj, record_id)
    row |= refresh_volatile(obj, row, now_ms)
    return _without(row, view.hidden_fields(obj))


def _read_derived(reader: Reader, view: UserView, obj: ObjectType, record_id: str, now_ms: int) -> Record:
    wanted = BoundCompare(Column(obj.by_name["id"]), Operator.EQ, record_id)
    bound = BoundQuery(obj, (), wanted, visibility=view.sharing)
    for row in QueryRunner(reader, include_deleted=False, now_ms=now_ms).execute(bound, obj.stored_fields):
        return row
    raise RecordNotFound("The requested resource does not exist", record_id=record_id)


def _without(row: Mapping[str, Value], hidden: frozenset[str]) -> Record:
    if not hidden:
        return dict[str, Cell](row)
    return {name: value for name, value in row.items() if name not in hidden}


def readable_columns(obj: ObjectType, grants: Grants, fields: Sequence[str]) -> tuple[Field, ...]:
    """Return the named fields. Raises FieldUnknown for one that is missing or hidden from the user."""
    columns = []
    for name in fields:
        field = obj.try_field(name)
        if field is None or not grants.can_read_field(obj, field):
            raise unknown_column(name, obj)
        columns.append(field)
    return tuple(columns)


def check_topic_query(view: UserView, obj: ObjectType, values: Mapping[str, object], now_ms: int) -> None:
    """Raise FieldUnknown or ObjectUnknown for a push topic whose query names what the user may not read.

    Other errors in the query are reported when it is compiled.
    """
    if obj.name != "PushTopic" or view.grants.is_administrator:
        return
    for text in (value for name, value in values.items() if name.lower() == "query"):
        try:
            view.bind_parsed(parse_query(str(text)), now_ms)
        except (FieldUnknown, ObjectUnknown):
            raise
        except PlatformError:
            return


def rows_of(bound: BoundQuery, rows: list[Record], count: int | None, position: int) -> Rows:
    """Return what a query found as the result of the gate."""
    if bound.aggregate is None:
        return Rows(bound.entity, bound.columns, rows, count, position, bound.select)
    columns = tuple(replace(field, name=name) for name, field in bound.aggregate.select)
    return Rows(bound.entity, columns, rows, None, position, is_aggregate=True)


def bind_search(view: UserView, search: Search, now_ms: int) -> list[BoundQuery]:
    """Return the queries of a SOSL search, one for each object that has a searchable field."""
    wanted = search.returning or [
        parse_query(f"SELECT Id FROM {o.name}")  # noqa: S608  # SOQL, and the name is the catalog's
        for o in view.catalog.objects
        if not o.is_setup and o.name_field
    ]
    narrowed: list[BoundQuery] = []
    for query in wanted:
        bound = view.bind_parsed(query, now_ms)
        hidden = view.hidden_fields(bound.entity)
        found = narrow(bound, search, searched_fields(bound.entity, search.scope, hidden))
        if found is not None:
            narrowed.append(found)
    return narrowed


def run_search(
    reader: Reader, queries: Sequence[BoundQuery], limit: int, now_ms: int, position: int
) -> list[Rows]:
    """Run the queries of a search in order until `limit` records are found; empty results are included."""
    results: list[Rows] = []
    for bound in queries:
        rows = run_query(reader, bound, now_ms).rows[:limit]
        limit -= len(rows)
        results.append(Rows(bound.entity, bound.columns, rows, None, position, bound.select))
    return results


def read_user_access(
    reader: Reader, catalog: Catalog, asked: user_record_access.AccessQuery
) -> user_record_access.AccessRows:
    """Read what a user may do with the records of a query on UserRecordAccess."""
    row = try_read_row(reader, catalog.object("User"), asked.user_id)
    if row is None or not row["IsActive"]:
        access = dict.fromkeys(asked.record_ids, frozenset[str]())
    else:
        sharing = Sharing(read_grants(reader, catalog, asked.user_id), catalog)
        access = user_record_access.read_access(reader, catalog, sharing, asked.record_ids)
    return user_record_access.AccessRows(catalog.object("Organization"), asked.user_id, access)
