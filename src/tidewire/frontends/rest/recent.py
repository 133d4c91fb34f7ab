"""The records that a user worked with last, for `recent` and for an object's `recentItems`.

What a user makes or changes over REST is noted, and what they read with `Sforce-Mru: updateMru=true`. Names are
read anew, by what the user may see then.
"""

from __future__ import annotations

from tidewire.frontends.rest.calls import Api, ApiCall, Route, render_answer
from tidewire.frontends.rest.record_json import render_record
from tidewire.frontends.rest.wire_errors import render_protocol_error
from tidewire.gate.recent_items import MAX_RECENT
from tidewire.transport.http import HttpRequest, HttpResponse


def wants_noting(request: HttpRequest) -> bool:
    """Whether a read is to count as a use."""
    options = request.headers.get("sforce-mru", "").replace(" ", "").lower()
    return "updatemru=true" in options


async def read_recent(api: Api, call: ApiCall, limit: int, entity: str = "") -> list[dict[str, object]]:
    """The records used last that the caller may still see, with their names."""
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
        # Names are the catalog's, ids were written by us.
        soql = f"SELECT {columns} FROM {name} WHERE Id IN ({quoted})"  # noqa: S608
        rows = await api.gate.query(call.principal, soql)
        for row in rows.rows:
            found[str(row["Id"])] = render_record(obj, rows.columns, row, call.version)
    return [found[record_id] for _, record_id in newest if record_id in found]


async def list_recent(api: Api, call: ApiCall) -> HttpResponse:
    """The records that the caller used last, of whatever object."""
    text = call.request.query.get("limit", str(MAX_RECENT))
    if not (text.isascii() and text.isdecimal() and 1 <= len(text) <= 4 and 1 <= int(text) <= MAX_RECENT):
        return render_protocol_error(
            call.request, 400, "INVALID_PARAMETER", f"limit takes a number from 1 to {MAX_RECENT}"
        )
    return render_answer(api, call, 200, await read_recent(api, call, int(text)))


ROUTES: tuple[Route[Api], ...] = (Route(("recent",), {"GET": list_recent}, xml_root="RecentItems"),)
