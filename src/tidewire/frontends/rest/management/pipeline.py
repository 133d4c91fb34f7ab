"""`/services/tidewire/v1/pipeline` and `/pipeline/history`: the lake that a pipeline keeps of the org.

A lake holds every record, whoever may see it here: only who may view all data may look at it. Of a record's
history, all but administrators are shown the fields that they may see today, and nothing of those that
are gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from tidewire.access.grants import Grants
from tidewire.access.logins import Logins
from tidewire.access.principal import Principal
from tidewire.capture.event_bodies import PERSON_NAME_PARTS
from tidewire.delivery.front_end import LakeView
from tidewire.errors import AccessDenied, MethodNotAllowed, RequiredFieldMissing, ResourceUnknown
from tidewire.frontends.rest.wire import NO_STORE, parse_token, render_json
from tidewire.gate.gate import Gate
from tidewire.gate.requests import Call
from tidewire.ids import try_normalise_id
from tidewire.schema.model import ObjectType
from tidewire.transport.http import HttpRequest, HttpResponse

_NOT_SET = {
    "state": "not_set",
    "message": "This server was not told of a pipeline. Start it with --pipeline-dir and a lake's directory.",
    "status": None,
}


class LakeApi:
    """Answers the two resources; without a lake the first says so and the second is not there."""

    def __init__(self, gate: Gate, logins: Logins, lake: LakeView | None) -> None:
        self._gate = gate
        self._logins = logins
        self._lake = lake

    async def answer(self, request: HttpRequest, segments: tuple[str, ...], call: Call) -> HttpResponse:
        """Answer what follows `/services/tidewire/v1/pipeline`."""
        if segments not in ((), ("history",)):
            raise ResourceUnknown("The requested resource does not exist")
        if request.method != "GET":
            raise MethodNotAllowed(f"HTTP Method '{request.method[:16]}' not allowed", allowed=("GET",))
        await self._grants(call.principal)
        if not segments:
            body = _NOT_SET if self._lake is None else await self._lake.status()
            return render_json(request, 200, dict(body), (NO_STORE,))
        entity, record_id = request.query.get("entity", ""), try_normalise_id(request.query.get("id", ""))
        if not entity or record_id is None:
            raise RequiredFieldMissing(
                "entity and id are required: an object's name and the id of a record, 15 or 18 characters",
                fields=["entity", "id"],
            )
        if self._lake is None:
            raise ResourceUnknown("This server was not told of a pipeline")
        found = await self._lake.history(entity, record_id)
        # Reading takes long: what was taken away meanwhile counts.
        seen = self._seen(found, await self._grants(call.principal))
        await self._logins.sessions.peek(parse_token(request))
        return render_json(request, 200, seen, (NO_STORE,))

    async def _grants(self, principal: Principal) -> Grants:
        """What the user may do now. Raises AccessDenied if that does not include looking at the lake."""
        await self._gate.check_api(principal)
        grants = await self._gate.grants(principal)
        if not grants.has("ViewAllData"):
            raise AccessDenied("the pipeline needs the permission View All Data", permission="ViewAllData")
        return grants

    def _seen(self, found: Mapping[str, Any], grants: Grants) -> dict[str, Any]:
        """A history cut to what the user may see. Raises ResourceUnknown or AccessDenied."""
        if grants.is_administrator:
            return dict(found)
        obj = self._gate.catalog.try_object(found["entity"])
        if obj is None:
            raise ResourceUnknown("The lake keeps no history of this object")
        if not grants.can_view_all(obj.name):
            raise AccessDenied(f"the history needs to view all records of {obj.name}", entity=obj.name)
        columns = _visible_columns(obj, grants)
        return {**found, "changes": [_cut(change, columns) for change in found["changes"]]}


def _visible_columns(obj: ObjectType, grants: Grants) -> frozenset[str]:
    """The columns of the fields that a user may see; a part of a compound is `<Field>_<Part>`."""
    fields = [f for f in obj.fields if grants.can_read_field(obj, f)]
    columns = {f"{f.compound}_{f.component}" if f.compound else f.name for f in fields}
    if obj.name == "Account":  # events tell the names of persons as parts of Name, which here is a text
        columns.update(f"Name_{f.name}" for f in fields if f.name in PERSON_NAME_PARTS)
    return frozenset(columns)


def _cut(change: Mapping[str, Any], columns: frozenset[str]) -> dict[str, Any]:
    """One row of a history without what is in other columns."""
    cut = dict(change)
    if change.get("changed"):
        cut["changed"] = [name for name in change["changed"] if name in columns]
    for held in ("values_json", "enriched_json"):
        if change.get(held):
            values = orjson.loads(change[held])
            cut[held] = orjson.dumps({name: values[name] for name in values if name in columns}).decode()
    return cut
