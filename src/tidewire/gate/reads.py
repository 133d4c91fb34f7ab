"""What a user gets of a record: the fields they asked for and may see, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidewire.access.derived_shares import is_derived
from tidewire.access.grants import Grants
from tidewire.access.sharing import Level
from tidewire.errors import FieldUnknown, ObjectUnknown, PlatformError, RecordNotFound
from tidewire.events import Value
from tidewire.gate.editable_fields import unknown_column
from tidewire.gate.user_view import View
from tidewire.records.derived import refresh_volatile
from tidewire.records.query import Cell, QueryRunner, Record
from tidewire.records.table import read_living
from tidewire.schema.model import Field, ObjectType
from tidewire.soql.ast import Operator
from tidewire.soql.bound import BoundCompare, BoundQuery, Column
from tidewire.soql.parser import parse_query
from tidewire.soql.sosl import Search, narrow, searched_fields
from tidewire.storage.store import Reader


def read_record(reader: Reader, view: View, obj: ObjectType, record_id: str, now_ms: int) -> Record:
    """A living record without what the user may not see. Raises RecordNotFound or RecordDeleted."""
    if obj.shares and is_derived(record_id):
        return _read_derived(reader, view, obj, record_id, now_ms)
    if view.sharing.visibility(obj) is not None and not view.sharing.filter_accessible(
        reader, obj, [record_id], Level.READ
    ):
        raise RecordNotFound("The requested resource does not exist", record_id=record_id)
    row = read_living(reader, obj, record_id)
    row |= refresh_volatile(obj, row, now_ms)
    return _without(row, view.hidden_fields(obj))


def _read_derived(reader: Reader, view: View, obj: ObjectType, record_id: str, now_ms: int) -> Record:
    wanted = BoundCompare(Column(obj.by_name["id"]), Operator.EQ, record_id)
    bound = BoundQuery(obj, (), wanted, visibility=view.sharing)
    for row in QueryRunner(reader, include_deleted=False, now_ms=now_ms).execute(bound, obj.stored_fields):
        return row
    raise RecordNotFound("The requested resource does not exist", record_id=record_id)


def check_topic_query(view: View, obj: ObjectType, values: Mapping[str, object], now_ms: int) -> None:
    """Raise FieldUnknown or ObjectUnknown for a push topic whose query names what the user may not read.

    Whatever else is wrong with the query is told when it is compiled.
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


def bind_search(view: View, search: Search, now_ms: int) -> list[BoundQuery]:
    """The queries that a search comes down to, one for each object with something to search in."""
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


def _without(row: Mapping[str, Value], hidden: frozenset[str]) -> Record:
    """A record without what the user may not see."""
    if not hidden:
        return dict[str, Cell](row)
    return {name: value for name, value in row.items() if name not in hidden}


def readable_columns(obj: ObjectType, grants: Grants, fields: Sequence[str]) -> tuple[Field, ...]:
    """The fields of these names. Raises FieldUnknown for one that is not there for the user."""
    columns = []
    for name in fields:
        field = obj.try_field(name)
        if field is None or not grants.can_read_field(obj, field):
            raise unknown_column(name, obj)
        columns.append(field)
    return tuple(columns)
