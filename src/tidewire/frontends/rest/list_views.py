"""List views: their definitions and their records.

Users cannot create list views here. Every object whose records have a name has the platform's own: all records,
by name. Reading it appends a monitoring event.
"""

from __future__ import annotations

from tidewire.errors import ResourceUnknown
from tidewire.frontends.rest.calls import Api, ApiCall, Route, object_in_path, render_answer
from tidewire.frontends.rest.record_json import render_record
from tidewire.frontends.rest.wire import try_parse_number
from tidewire.frontends.rest.wire_errors import render_protocol_error
from tidewire.gate.metadata.registry import component_id
from tidewire.gate.monitoring import ListRead
from tidewire.ids import try_normalise_id
from tidewire.names import data_url
from tidewire.schema.model import Field, ObjectType
from tidewire.transport.http import HttpResponse

_DEFAULT_ROWS = 25
_MAX_ROWS = 2000
_HIDDEN = ("Id", "CreatedDate", "LastModifiedDate", "SystemModstamp")


async def list_views(api: Api, call: ApiCall) -> HttpResponse:
    """List the list views of an object."""
    entity, columns = await _open(api, call)
    entries = [_entry(call, entity)] if columns else []
    body = {
        "done": True,
        "listviews": entries,
        "nextRecordsUrl": None,
        "size": len(entries),
        "sobjectType": entity.name,
    }
    return render_answer(api, call, 200, body)


async def show_view(api: Api, call: ApiCall) -> HttpResponse:
    """Return a list view's entry."""
    entity, _ = await _find(api, call)
    return render_answer(api, call, 200, _entry(call, entity))


async def describe_view(api: Api, call: ApiCall) -> HttpResponse:
    """Describe a list view: its columns, order and query."""
    entity, columns = await _find(api, call)
    order = [(columns[0].name, "ascending"), ("Id", "ascending")]
    body = {
        "columns": [_column(f, index) for index, f in enumerate(columns)],
        "id": _view_id(entity),
        "orderBy": [
            {"fieldNameOrPath": name, "nullsPosition": "first", "sortDirection": direction}
            for name, direction in order
        ],
        "query": _query(entity, columns),
        "relatedEntityId": None,
        "scope": "everything",
        "scopeEntityId": None,
        "sobjectType": entity.name,
        "whereCondition": {"conditions": [], "conjunction": "and"},
    }
    return render_answer(api, call, 200, body)


async def read_view(api: Api, call: ApiCall) -> HttpResponse:
    """Return a page of a list view's records."""
    entity, columns = await _find(api, call)
    limit = try_parse_number(call.request.query.get("limit", str(_DEFAULT_ROWS)))
    offset = try_parse_number(call.request.query.get("offset", "0"))
    if limit is None or offset is None or not 1 <= limit <= _MAX_ROWS or offset > _MAX_ROWS:
        message = f"limit and offset take numbers up to {_MAX_ROWS}"
        return render_protocol_error(call.request, 400, "INVALID_PARAMETER", message)
    soql = f"{_query(entity, columns)} LIMIT {limit} OFFSET {offset}"
    rows = await api.gate.query(call.principal, soql)
    records = [
        {"columns": [{"fieldNameOrPath": f.name, "value": _text(shown[f.name])} for f in columns]}
        for shown in (render_record(entity, columns, row, call.version) for row in rows.rows)
    ]
    names = [f.name for f in columns]
    read = ListRead(
        _view_id(entity),
        _developer_name(entity),
        _label(entity),
        entity.name,
        names,
        f"{names[0]} ASC NULLS FIRST, Id ASC NULLS FIRST",
        "everything",
        rows.rows,
    )
    await api.gate.monitor.publish_list_view(call.reader, read)
    body = {
        "columns": [_column(f, index) for index, f in enumerate(columns)],
        "developerName": _developer_name(entity),
        "done": len(records) < limit,
        "id": _view_id(entity),
        "label": _label(entity),
        "records": records,
        "size": len(records),
    }
    return render_answer(api, call, 200, body)


async def _open(api: Api, call: ApiCall) -> tuple[ObjectType, list[Field]]:
    """Return an object and the columns of its list view; no columns if the caller has no list view of it."""
    with object_in_path:
        entity, readable, _ = await api.gate.visible_fields(call.principal, call.arguments[0])
    named = entity.name_field
    if entity.is_setup or named is None or named.name not in readable or not named.is_filterable:
        return entity, []
    hidden = [f for name in _HIDDEN if (f := entity.try_field(name)) is not None and f.name in readable]
    return entity, [named, *hidden]


async def _find(api: Api, call: ApiCall) -> tuple[ObjectType, list[Field]]:
    entity, columns = await _open(api, call)
    if not columns or try_normalise_id(call.arguments[1]) != _view_id(entity):
        raise ResourceUnknown("The requested resource does not exist")
    return entity, columns


def _view_id(entity: ObjectType) -> str:
    return component_id("00B", f"{entity.name}.All")


def _developer_name(entity: ObjectType) -> str:
    return "All" + "".join(c for c in entity.label_plural if c.isascii() and c.isalnum())


def _label(entity: ObjectType) -> str:
    return f"All {entity.label_plural}"


def _entry(call: ApiCall, entity: ObjectType) -> dict[str, object]:
    url = data_url(call.version, "sobjects", entity.name, "listviews", _view_id(entity))
    return {
        "describeUrl": f"{url}/describe",
        "developerName": _developer_name(entity),
        "id": _view_id(entity),
        "label": _label(entity),
        "resultsUrl": f"{url}/results",
        "soqlCompatible": True,
        "url": url,
    }


def _column(f: Field, index: int) -> dict[str, object]:
    is_first = index == 0
    return {
        "ascendingLabel": "Z-A" if is_first else None,
        "descendingLabel": "A-Z" if is_first else None,
        "fieldNameOrPath": f.name,
        "hidden": not is_first,
        "label": f.label,
        "searchable": False,
        "selectListItem": f.name,
        "sortDirection": "ascending" if is_first else None,
        "sortIndex": 0 if is_first else None,
        "sortable": f.is_filterable,
        "type": f.type.row.word,
    }


def _query(entity: ObjectType, columns: list[Field]) -> str:
    names = ", ".join(f.name for f in columns)
    return (
        f"SELECT {names} FROM {entity.name}"  # noqa: S608  # names come from the catalog
        f" ORDER BY {columns[0].name} ASC NULLS FIRST, Id ASC NULLS FIRST"
    )


def _text(value: object) -> str | None:
    return None if value is None else str(value)


ROUTES: tuple[Route[Api], ...] = (
    Route(("sobjects", "*", "listviews"), {"GET": list_views}, since=32),
    Route(("sobjects", "*", "listviews", "*"), {"GET": show_view}, since=32),
    Route(("sobjects", "*", "listviews", "*", "describe"), {"GET": describe_view}, since=32),
    Route(("sobjects", "*", "listviews", "*", "results"), {"GET": read_view}, since=32),
)
