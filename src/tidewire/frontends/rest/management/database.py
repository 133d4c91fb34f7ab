"""`/services/tidewire/v1/database` and `/activities/archive`: work below the API, for administrators.

POST database             {"operation": "update", "entity": "Account", "ids": [...], "values": {...}}
POST database             {"operation": "create", "entity": "Account", "records": [{...}]}
POST activities/archive   {"before": "2025-01-01"}
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tidewire.errors import DefinitionInvalid, MethodNotAllowed, ResourceUnknown
from tidewire.events import ChangeType
from tidewire.frontends.rest.wire import NO_STORE, parse_json_object, render_json
from tidewire.gate.database_jobs import Job, archive, run_job
from tidewire.gate.gate import Gate
from tidewire.gate.requests import Call
from tidewire.transport.http import HttpRequest, HttpResponse

_KEYS = frozenset({"operation", "entity", "ids", "values", "records"})


class DatabaseApi:
    """Answers the two resources."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def answer(self, request: HttpRequest, segments: tuple[str, ...], call: Call) -> HttpResponse:
        """Answer what follows `/services/tidewire/v1/`."""
        if segments not in (("database",), ("activities", "archive")):
            raise ResourceUnknown("The requested resource does not exist")
        if request.method != "POST":
            raise MethodNotAllowed(f"HTTP Method '{request.method[:16]}' not allowed", allowed=("POST",))
        given = parse_json_object(request)
        answer: dict[str, Any]
        if segments == ("database",):
            answer = {"ids": await run_job(self._gate, call, _parse_job(given))}
        else:
            answer = {"archived": await archive(self._gate, call, _parse_before(given))}
        return render_json(request, 200, answer, (NO_STORE,))


def _parse_job(given: dict[str, Any]) -> Job:
    unknown = sorted(set(given) - _KEYS)
    if unknown:
        raise DefinitionInvalid(f"unknown keys: {', '.join(unknown)[:200]}", path=unknown[0][:80])
    word = given.get("operation")
    operation = ChangeType.__members__.get(word.upper()) if isinstance(word, str) else None
    if operation is None:
        raise DefinitionInvalid("operation must be create, update, delete or undelete", path="operation")
    entity, ids, values, records = (given.get(name) for name in ("entity", "ids", "values", "records"))
    if not isinstance(entity, str):
        raise DefinitionInvalid("entity must be the name of an object", path="entity")
    if operation is ChangeType.CREATE:
        if not (isinstance(records, list) and records and all(isinstance(r, dict) for r in records)):
            raise DefinitionInvalid("records must be a list of objects", path="records")
        return Job(operation, entity, records=records)
    if not (isinstance(ids, list) and ids and all(isinstance(i, str) for i in ids)):
        raise DefinitionInvalid("ids must be a list of record ids", path="ids")
    if operation is ChangeType.UPDATE and not (isinstance(values, dict) and values):
        raise DefinitionInvalid("values must name the fields to set", path="values")
    return Job(operation, entity, ids, values)


def _parse_before(given: dict[str, Any]) -> int:
    before = given.get("before")
    try:
        moment = (
            datetime.strptime(before, "%Y-%m-%d").replace(tzinfo=UTC) if isinstance(before, str) else None
        )
    except ValueError:
        moment = None
    if moment is None or set(given) != {"before"}:
        raise DefinitionInvalid("before must be a day such as 2025-01-31", path="before")
    return round(moment.timestamp() * 1000)
