"""`sobjects/X/updated` and `sobjects/X/deleted`: what changed in a time window, for those who keep a copy."""

from __future__ import annotations

from tidewire.frontends.rest.calls import Api, ApiCall, Route, object_in_path, render_answer, require_version
from tidewire.gate.changed_records import parse_window_time, read_deleted, read_updated
from tidewire.schema.values import render_datetime
from tidewire.transport.http import HttpResponse

_FIRST_VERSION = 29
_SUFFIX = "+0000"


async def list_updated(api: Api, call: ApiCall) -> HttpResponse:
    """Ids of the records of an object that changed in a time window."""
    require_version(call, _FIRST_VERSION)
    (name,) = call.arguments
    start_ms, end_ms = _moment(call, "start"), _moment(call, "end")
    with object_in_path():
        found = await read_updated(api.gate, call.principal, name, start_ms, end_ms, api.clock.now_ms())
    body = {"ids": list(found.ids), "latestDateCovered": render_datetime(found.latest_covered_ms, _SUFFIX)}
    return render_answer(api, call, 200, body)


async def list_deleted(api: Api, call: ApiCall) -> HttpResponse:
    """Ids of the records of an object that were deleted in a time window."""
    require_version(call, _FIRST_VERSION)
    (name,) = call.arguments
    start_ms, end_ms = _moment(call, "start"), _moment(call, "end")
    with object_in_path():
        found = await read_deleted(api.gate, call.principal, name, start_ms, end_ms, api.clock.now_ms())
    body = {
        "deletedRecords": [
            {"deletedDate": render_datetime(moment_ms, _SUFFIX), "id": record_id}
            for record_id, moment_ms in found.records
        ],
        "earliestDateAvailable": render_datetime(found.earliest_available_ms, _SUFFIX),
        "latestDateCovered": render_datetime(found.latest_covered_ms, _SUFFIX),
    }
    return render_answer(api, call, 200, body)


def _moment(call: ApiCall, name: str) -> int:
    # A plus that nobody encoded has become a blank: `...T00:00:00 00:00` is what clients mean by `+00:00`.
    return parse_window_time(name, call.request.query.get(name, "").strip().replace(" ", "+"))


ROUTES: tuple[Route[Api], ...] = (
    Route(("sobjects", "*", "updated"), {"GET": list_updated}, xml_root="GetUpdatedResult"),
    Route(("sobjects", "*", "deleted"), {"GET": list_deleted}, xml_root="GetDeletedResult"),
)
