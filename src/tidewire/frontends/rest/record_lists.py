"""Lists of records by time: updated and deleted in a window, and those that a user worked with last.

Records that a user creates or changes over REST count as recent, and those read with `Sforce-Mru: updateMru=true`.
Names are read with the rights that the user has at the time of the request.
"""

from __future__ import annotations

from tidewire.frontends.rest.calls import Api, ApiCall, Route, object_in_path, render_answer
from tidewire.frontends.rest.record_json import render_record
from tidewire.frontends.rest.wire import try_parse_number
from tidewire.frontends.rest.wire_errors import render_protocol_error
from tidewire.gate.changed_records import parse_window_time, read_deleted, read_updated
from tidewire.gate.recent_items import MAX_RECENT
from tidewire.schema.values import render_datetime
from tidewire.transport.http import HttpRequest, HttpResponse

_SUFFIX = "+0000"


async def list_updated(api: Api, call: ApiCall) -> HttpResponse:
    """List the ids of an object's records that changed in a time window."""
    start_ms, end_ms = _parse_window(call)
    with object_in_path:
        found = await read_updated(
            api.gate, call.principal, call.arguments[0], start_ms, end_ms, api.clock.now_ms()
        )
    body = {"ids": list(found.ids), "latestDateCovered": render_datetime(found.latest_covered_ms, _SUFFIX)}
    return render_answer(api, call, 200, body)


async def list_deleted(api: Api, call: ApiCall) -> HttpResponse:
    """List the ids of an object's records that were deleted in a time window."""
    start_ms, end_ms = _parse_window(call)
    with object_in_path:
        found = await read_deleted(
            api.gate, call.principal, call.arguments[0], start_ms, end_ms, api.clock.now_ms()
        )
    body = {
        "deletedRecords": [
            {"deletedDate": render_datetime(moment_ms, _SUFFIX), "id": record_id}
            for record_id, moment_ms in found.records
        ],
        "earliestDateAvailable": render_datetime(found.earliest_available_ms, _SUFFIX),
        "latestDateCovered": render_datetime(found.latest_covered_ms, _SUFFIX),
    }
    return render_answer(api, call, 200, body)


def _parse_window(call: ApiCall) -> tuple[int, int]:
    # A plus sign that the client did not encode arrives as a blank: `...T00:00:00 00:00` means `+00:00`.
    query = call.request.query
    texts = {name: query.get(name, "").strip().replace(" ", "+") for name in ("start", "end")}
    return parse_window_time("start", texts["start"]), parse_window_time("end", texts["end"])


def updates_recent(request: HttpRequest) -> bool:
    """Whether a read makes the record a recent item."""
    options = request.headers.get("sforce-mru", "").replace(" ", "").lower()
    return "updatemru=true" in options


async def read_recent(api: Api, call: ApiCall, limit: int, entity: str = "") -> list[dict[str, object]]:
    """Return the caller's recent records that it may still see, with their names, newest first."""
    newest = await api.gate.recent_items.read_newest(api.gate.records, call.principal, limit, entity)
    ids_of: dict[str, list[str]] = {}
    for name, record_id in newest:
        ids_of.setdefault(name, []).append(record_id)
    visible = {obj.name: obj for obj in await api.gate.visible_objects(call.principal)}
    found: dict[str, dict[str, object]] = {}
    for name, ids in ids_of.items():
        obj = visible.get(name)
        if obj is None:
            continue
        _, readable, _ = await api.gate.visible_fields(call.principal, name)
        shown = obj.name_field if obj.name_field and obj.name_field.name in readable else None
        columns = "Id" if shown is None else f"Id, {shown.name}"
        quoted = ", ".join(f"'{record_id}'" for record_id in ids)
        # Names come from the catalog and ids from our own table, so neither can end the query's text.
        soql = f"SELECT {columns} FROM {name} WHERE Id IN ({quoted})"  # noqa: S608
        rows = await api.gate.query(call.principal, soql)
        for row in rows.rows:
            found[str(row["Id"])] = render_record(obj, rows.columns, row, call.version)
    return [found[record_id] for _, record_id in newest if record_id in found]


async def list_recent(api: Api, call: ApiCall) -> HttpResponse:
    """List the caller's recent records of all objects."""
    limit = try_parse_number(call.request.query.get("limit", str(MAX_RECENT)))
    if limit is None or not 1 <= limit <= MAX_RECENT:
        message = f"limit takes a number from 1 to {MAX_RECENT}"
        return render_protocol_error(call.request, 400, "INVALID_PARAMETER", message)
    return render_answer(api, call, 200, await read_recent(api, call, limit))


ROUTES: tuple[Route[Api], ...] = (
    Route(("sobjects", "*", "updated"), {"GET": list_updated}, since=29, xml_root="GetUpdatedResult"),
    Route(("sobjects", "*", "deleted"), {"GET": list_deleted}, since=29, xml_root="GetDeletedResult"),
    Route(("recent",), {"GET": list_recent}, xml_root="RecentItems"),
)
