"""Database work below the API, for administrators: changes without events, and archiving of activities.

POST database             {"operation": "update", "entity": "Account", "ids": [...], "values": {...}}
POST database             {"operation": "create", "entity": "Account", "records": [{...}]}
POST activities/archive   {"before": "2025-01-01"}
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tidewire.errors import DefinitionInvalid
from tidewire.events import ChangeType
from tidewire.frontends.rest.calls import ApiCall, Route
from tidewire.frontends.rest.management.calls import Services, check_keys, context_of, render_result
from tidewire.frontends.rest.wire import parse_json_object
from tidewire.gate.database_jobs import Job, archive, run_job
from tidewire.transport.http import HttpResponse

_KEYS = frozenset({"operation", "entity", "ids", "values", "records"})


async def change_records(services: Services, call: ApiCall) -> HttpResponse:
    """Change records directly in the database."""
    job = _parse_job(parse_json_object(call.request))
    return render_result(call, {"ids": await run_job(services.gate, context_of(call), job)})


async def archive_activities(services: Services, call: ApiCall) -> HttpResponse:
    """Archive the activities before a day."""
    before_ms = _parse_before(parse_json_object(call.request))
    return render_result(call, {"archived": await archive(services.gate, context_of(call), before_ms)})


def _parse_job(given: dict[str, Any]) -> Job:
    check_keys(given, _KEYS)
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


ROUTES: tuple[Route[Services], ...] = (
    Route(("database",), {"POST": change_records}),
    Route(("activities", "archive"), {"POST": archive_activities}),
)
