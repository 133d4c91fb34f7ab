"""The resources under `/services/data/vN.0/tooling`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeVar

from tidewire.errors import (
    FieldNotWriteable,
    FieldUnknown,
    RecordNotFound,
    RequiredFieldMissing,
    ResourceUnknown,
    SearchMalformed,
    SoqlSyntaxError,
)
from tidewire.frontends.rest.calls import Api, ApiCall, Route, render_answer, render_empty
from tidewire.frontends.rest.query_columns import render_columns
from tidewire.frontends.rest.tooling.model import FULL_NAME, METADATA, Row, Seen, ToolingObject
from tidewire.frontends.rest.tooling.objects import TOOLING_OBJECTS
from tidewire.frontends.rest.tooling.query import (
    attributes,
    bind_tooling_query,
    render_cell,
    render_page,
    run_tooling_query,
)
from tidewire.frontends.rest.wire import parse_json_object, without_attributes
from tidewire.gate.describe import render_describe, render_global_entry
from tidewire.gate.metadata.properties import Component, reject, without_nulls
from tidewire.gate.metadata.service import Metadata, SaveResult
from tidewire.ids import try_normalise_id
from tidewire.names import data_url
from tidewire.transport.http import HttpResponse

T = TypeVar("T")
_MAX_BATCH_SIZE = 200
_RESOURCES = ("composite", "query", "search", "sobjects")


async def _read_seen(api: Api, call: ApiCall, work: Callable[[Seen], T]) -> T:
    """Run `work` on the org as the caller sees it, on a reader thread."""
    gate = api.gate
    objects = await gate.visible_objects(call.principal)
    grants = await gate.grants(call.principal)
    known, current = gate.catalog, gate.records.catalog
    if current is not known:  # types that this transaction created are visible to its caller
        names = {obj.name for obj in objects}
        objects = [o for o in current.objects if o.name in names or known.try_object(o.name) is None]
    events = tuple(
        e
        for e in current.events
        if grants.can_read(e.name) or grants.on(e.name).can_create or known.try_event(e.name) is None
    )
    catalog = replace(current, objects=tuple(objects), events=events)
    return await gate.records.read(lambda reader: work(Seen(catalog, grants, reader)))


def _object(name: str) -> ToolingObject:
    found = TOOLING_OBJECTS.get(name.lower())
    if found is None:
        raise ResourceUnknown("The requested resource does not exist")
    return found


async def list_resources(api: Api, call: ApiCall) -> HttpResponse:
    """List the resources of the Tooling API."""
    body = {name: data_url(call.version, "tooling", name) for name in _RESOURCES}
    return render_answer(api, call, 200, body)


async def list_objects(api: Api, call: ApiCall) -> HttpResponse:
    """List the objects."""
    entries = [_entry(each, call.version) for _, each in sorted(TOOLING_OBJECTS.items())]
    body = {"encoding": "UTF-8", "maxBatchSize": _MAX_BATCH_SIZE, "sobjects": entries}
    return render_answer(api, call, 200, body)


def _entry(each: ToolingObject, version: int) -> dict[str, object]:
    sobject = data_url(version, "tooling", "sobjects", each.type.name)
    urls = {"rowTemplate": sobject + "/{ID}", "describe": sobject + "/describe", "sobject": sobject}
    return render_global_entry(each.type, version) | {"urls": urls}


async def describe_briefly(api: Api, call: ApiCall) -> HttpResponse:
    """Return an object's entry of the list."""
    each = _object(call.arguments[0])
    return render_answer(api, call, 200, {"objectDescribe": _entry(each, call.version), "recentItems": []})


async def describe(api: Api, call: ApiCall) -> HttpResponse:
    """Describe an object."""
    each = _object(call.arguments[0])
    names = frozenset(f.name for f in each.type.fields)
    writeable = frozenset({FULL_NAME, METADATA}) if each.kind else frozenset[str]()
    body = render_describe(each.type, names, writeable, (), call.version)
    fields = body["fields"]
    for entry in fields if isinstance(fields, list) else ():
        if entry["name"] == METADATA:
            entry |= {
                "type": "complexvalue",
                "soapType": f"tns:{each.kind}Metadata",
                "length": 0,
                "byteLength": 0,
            }
        elif entry["name"] not in (FULL_NAME, METADATA):
            entry |= {"createable": False, "updateable": False}
    return render_answer(api, call, 200, body | {"urls": _entry(each, call.version)["urls"]})


async def query(api: Api, call: ApiCall) -> HttpResponse:
    """Run a query and return all its rows."""
    soql = call.request.query.get("q", "")
    if not soql.strip():
        raise SoqlSyntaxError("A query string has to be specified", row=1, column=1, query="")
    now_ms = api.clock.now_ms()
    if call.request.query.get("columns", "").lower() == "true":
        bound = await _read_seen(api, call, lambda seen: bind_tooling_query(soql, seen, now_ms))
        return render_answer(api, call, 200, render_columns(bound))
    found = await _read_seen(api, call, lambda seen: run_tooling_query(soql, seen, call.version, now_ms))
    return render_answer(api, call, 200, render_page(found))


async def search(api: Api, call: ApiCall) -> HttpResponse:
    """Return no records: no object of the Tooling API is searchable."""
    if not call.request.query.get("q", "").strip():
        raise SearchMalformed("No search term found. The search term must be enclosed in braces.")
    return render_answer(api, call, 200, {"searchRecords": []})


async def read(api: Api, call: ApiCall) -> HttpResponse:
    """Return one record with all fields."""
    name, key = call.arguments
    each = _object(name)

    def work(seen: Seen) -> dict[str, object]:
        row = _find(each, seen, key)
        if each.complete is not None:
            row = row | dict(each.complete(seen, row))
        record: dict[str, object] = {"attributes": attributes(each.type, row, call.version)}
        return record | {f.name: render_cell(each.type, f.name, row) for f in each.type.fields}

    return render_answer(api, call, 200, await _read_seen(api, call, work))


def _find(each: ToolingObject, seen: Seen, key: str) -> Row:
    wanted = try_normalise_id(key) if each.key == "Id" else key
    row = next((row for row in each.rows(seen) if row[each.key] == wanted), None)
    if row is None and each.is_reference:
        reject("invalid cross reference id", "INVALID_CROSS_REFERENCE_KEY")
    if row is None:
        raise RecordNotFound("The requested resource does not exist", record_id=key[:80])
    return row


def _check_writeable(each: ToolingObject, word: str) -> None:
    if not each.kind:
        reject(f"entity type cannot be {word}: {each.type.label}", "INVALID_TYPE_FOR_OPERATION")


async def create(api: Api, call: ApiCall) -> HttpResponse:
    """Create a component from its full name and metadata."""
    each = _object(call.arguments[0])
    _check_writeable(each, "inserted")
    component = _component(each, call, "")
    _check_saved(await Metadata(api.gate).create(call.context, [component], all_or_none=True))

    def work(seen: Seen) -> str:
        rows = each.rows(seen)
        return next(
            str(row["Id"]) for row in rows if str(row[FULL_NAME]).lower() == component.full_name.lower()
        )

    record_id = await _read_seen(api, call, work)
    location = ("Location", data_url(call.version, "tooling", "sobjects", each.type.name, record_id))
    body = {"id": record_id, "success": True, "errors": [], "warnings": [], "infos": []}
    return render_answer(api, call, 201, body, location)


async def update(api: Api, call: ApiCall) -> HttpResponse:
    """Replace a component's metadata."""
    each, full_name = await _find_component(api, call, "updated")
    component = _component(each, call, full_name)
    _check_saved(await Metadata(api.gate).update(call.context, [component], all_or_none=True))
    return render_empty(api)


async def delete(api: Api, call: ApiCall) -> HttpResponse:
    """Delete a component."""
    each, full_name = await _find_component(api, call, "deleted")
    _check_saved(await Metadata(api.gate).delete(call.context, each.kind, [full_name], all_or_none=True))
    return render_empty(api)


async def _find_component(api: Api, call: ApiCall, word: str) -> tuple[ToolingObject, str]:
    name, key = call.arguments
    each = _object(name)
    _check_writeable(each, word)
    return each, await _read_seen(api, call, lambda seen: str(_find(each, seen, key)[FULL_NAME]))


def _component(each: ToolingObject, call: ApiCall, known_name: str) -> Component:
    values = without_attributes(parse_json_object(call.request))
    for name in values:
        if name not in (FULL_NAME, METADATA):
            raise FieldUnknown(
                f"No such column '{name[:80]}' on sobject of type {each.type.name}", field=name[:80]
            )
    full_name, metadata = values.get(FULL_NAME) or known_name, without_nulls(values.get(METADATA))
    if not isinstance(full_name, str) or not full_name:
        raise RequiredFieldMissing(f"Required fields are missing: [{FULL_NAME}]", fields=[FULL_NAME])
    if not isinstance(metadata, dict):
        raise RequiredFieldMissing(f"Required fields are missing: [{METADATA}]", fields=[METADATA])
    if known_name and full_name.lower() != known_name.lower():
        raise FieldNotWriteable(f"{FULL_NAME} cannot be changed", fields=[FULL_NAME])
    return Component(each.kind, full_name, metadata)


def _check_saved(results: Iterable[SaveResult]) -> None:
    (saved,) = results
    if saved.error is not None:
        raise saved.error


ROUTES: tuple[Route[Api], ...] = (
    Route(("tooling",), {"GET": list_resources}),
    Route(("tooling", "sobjects"), {"GET": list_objects}),
    Route(("tooling", "sobjects", "*"), {"GET": describe_briefly, "POST": create}),
    Route(("tooling", "sobjects", "*", "describe"), {"GET": describe}),
    Route(("tooling", "sobjects", "*", "*"), {"GET": read, "PATCH": update, "DELETE": delete}),
    Route(("tooling", "query"), {"GET": query}),
    Route(("tooling", "search"), {"GET": search}),
)
