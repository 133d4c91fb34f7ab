"""The lake of the org's pipeline: its status, and the history of a record.

A lake holds every record, so only users with View All Data may read it. All but administrators see a record's history
without the fields that they may not see today, or that no longer exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from tidewire.access.grants import Grants
from tidewire.access.principal import Principal
from tidewire.crm.persons import NAME_PARTS
from tidewire.errors import AccessDenied, RequiredFieldMissing, ResourceUnknown
from tidewire.frontends.rest.calls import ApiCall, Route
from tidewire.frontends.rest.management.calls import Services, render_result
from tidewire.frontends.rest.wire import parse_token
from tidewire.gate.gate import Gate
from tidewire.ids import try_normalise_id
from tidewire.schema.model import ObjectType
from tidewire.transport.http import HttpResponse

_NOT_SET = {
    "state": "not_set",
    "message": "No pipeline is configured. Start the server with --pipeline-dir and the directory of a lake.",
    "status": None,
}


async def show_pipeline(services: Services, call: ApiCall) -> HttpResponse:
    """Return the pipeline's status."""
    await _check_access(services.gate, call.principal)
    return render_result(call, dict(_NOT_SET if services.lake is None else await services.lake.status()))


async def show_history(services: Services, call: ApiCall) -> HttpResponse:
    """Return the newest changes of the record that `?entity=` and `?id=` name."""
    await _check_access(services.gate, call.principal)
    query = call.request.query
    entity, record_id = query.get("entity", ""), try_normalise_id(query.get("id", ""))
    if not entity or record_id is None:
        raise RequiredFieldMissing(
            "entity and id are required: an object's name and the id of a record, 15 or 18 characters",
            fields=["entity", "id"],
        )
    if services.lake is None:
        raise ResourceUnknown("No pipeline is configured")
    found = await services.lake.history(entity, record_id)
    # Reading takes long: rights and sessions revoked meanwhile count.
    seen = _redact_history(services.gate, found, await _check_access(services.gate, call.principal))
    await services.logins.sessions.peek(parse_token(call.request))
    return render_result(call, seen)


async def _check_access(gate: Gate, principal: Principal) -> Grants:
    """Return the user's grants. Raises AccessDenied if they do not include reading the lake."""
    await gate.check_api(principal)
    grants = await gate.grants(principal)
    if not grants.has("ViewAllData"):
        raise AccessDenied("the pipeline needs the permission View All Data", permission="ViewAllData")
    return grants


def _redact_history(gate: Gate, found: Mapping[str, Any], grants: Grants) -> dict[str, Any]:
    """Redact a history to the fields that the user may see. Raises ResourceUnknown or AccessDenied."""
    if grants.is_administrator:
        return dict(found)
    obj = gate.catalog.try_object(found["entity"])
    if obj is None:
        raise ResourceUnknown("The lake has no history of this object")
    if not grants.can_view_all(obj.name):
        raise AccessDenied(
            f"the history needs the permission to view all records of {obj.name}", entity=obj.name
        )
    columns = _visible_columns(obj, grants)
    return {**found, "changes": [_redact(change, columns) for change in found["changes"]]}


def _visible_columns(obj: ObjectType, grants: Grants) -> frozenset[str]:
    """Return the lake columns of the fields that a user may see; a compound's part is `<Field>_<Part>`."""
    fields = [f for f in obj.fields if grants.can_read_field(obj, f)]
    columns = {f"{f.compound}_{f.component}" if f.compound else f.name for f in fields}
    if obj.name == "Account":  # events carry the name of a person account as parts of Name
        columns.update(f"Name_{f.name}" for f in fields if f.name in NAME_PARTS)
    return frozenset(columns)


def _redact(change: Mapping[str, Any], columns: frozenset[str]) -> dict[str, Any]:
    """Redact one change of a history to the visible columns."""
    redacted = dict(change)
    if change.get("changed"):
        redacted["changed"] = [name for name in change["changed"] if name in columns]
    for held in ("values_json", "enriched_json"):
        if change.get(held):
            values = orjson.loads(change[held])
            redacted[held] = orjson.dumps({name: values[name] for name in values if name in columns}).decode()
    return redacted


ROUTES: tuple[Route[Services], ...] = (
    Route(("pipeline",), {"GET": show_pipeline}),
    Route(("pipeline", "history"), {"GET": show_history}),
)
