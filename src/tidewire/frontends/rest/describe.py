"""What the org has: a version's resources, the global list, descriptions of objects, and schemas of events.

An event's schema is Avro, or expanded to the JSON that CometD clients receive. The expanded form resembles Avro but is
not: its type is `expanded-record`, and dates, which are text in JSON, are strings although the event holds a number.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import orjson

from tidewire.access.principal import Principal
from tidewire.errors import ResourceUnknown
from tidewire.frontends.rest.calls import Api, ApiCall, Route, object_in_path, render_answer
from tidewire.frontends.rest.conditional_requests import Validators, etag_of, try_answer_unchanged
from tidewire.frontends.rest.identity import identity_url
from tidewire.frontends.rest.record_lists import read_recent
from tidewire.frontends.rest.wire_errors import render_protocol_error
from tidewire.gate.describe_for_user import describe_entity, find_entry, known_events, list_entries
from tidewire.gate.gate import Gate
from tidewire.names import change_event_name, data_url, entity_of_change_event
from tidewire.schema.avro import schema_id
from tidewire.schema.field_types import ValueKind, doc_kind
from tidewire.transport.http import HttpResponse

MAX_BATCH_SIZE = 200  # records that one collection request may carry, as the global list announces it
_RECENT_ITEMS = 10
_TYPES_PERMISSION = "CustomizeApplication"
_JOBS_SINCE = 41  # routed by the bulk API
_SCHEMA_SINCE = 40
_EXPANDED_SINCE = 43
_EXPANDED = "EXPANDED"
_COMPACT = "COMPACT"
_TIME_KINDS = frozenset({ValueKind.DATETIME, ValueKind.DATE, ValueKind.TIME})


async def list_resources(api: Api, call: ApiCall) -> HttpResponse:
    """List the resources of a version, and the caller's identity URL."""
    versions = api.routes.resource_versions | {"jobs": _JOBS_SINCE}
    resources = {
        name: data_url(call.version, name) for name, since in versions.items() if call.version >= since
    }
    if call.version >= _SCHEMA_SINCE:
        resources["eventSchema"] = data_url(call.version, "event", "eventSchema")
    resources["identity"] = identity_url(call.request.base_url, call.principal.org_id, call.principal.user_id)
    return render_answer(api, call, 200, dict(sorted(resources.items())))


async def list_objects(api: Api, call: ApiCall) -> HttpResponse:
    """List every object, change event and platform event that the caller may know."""
    entries = await list_entries(api.gate, call.principal, call.version)
    body = {"encoding": "UTF-8", "maxBatchSize": MAX_BATCH_SIZE, "sobjects": entries}
    return _render_described(api, call, "", body)


async def describe_briefly(api: Api, call: ApiCall) -> HttpResponse:
    """Return an object's entry of the global list, and the caller's recent records of it."""
    with object_in_path:
        entry, entity = await find_entry(api.gate, call.principal, call.arguments[0], call.version)
    recent = [] if entity is None else await read_recent(api, call, _RECENT_ITEMS, entity.name)
    return render_answer(api, call, 200, {"objectDescribe": entry, "recentItems": recent})


async def describe(api: Api, call: ApiCall) -> HttpResponse:
    """Describe an object as far as the caller may know it."""
    with object_in_path:
        body = await describe_entity(api.gate, call.principal, call.arguments[0], call.version)
    return _render_described(api, call, str(body["name"]), body)


def _render_described(api: Api, call: ApiCall, name: str, body: object) -> HttpResponse:
    tag = etag_of(body)
    changed_ms = api.changes.changed_ms((call.principal.user_id, call.version, name), tag)
    validators = Validators(tag, changed_ms)
    unchanged = try_answer_unchanged(call.request, validators)
    if unchanged is not None:
        return unchanged
    return render_answer(api, call, 200, body, *validators.headers())


async def schema_by_name(api: Api, call: ApiCall) -> HttpResponse:
    """Return the newest schema of an event type."""
    (name,) = call.arguments
    await _check_topic(api.gate, call.principal, name)
    return await _answer_schema(api, call, lambda: api.gate.event_schema(name))


async def _check_topic(gate: Gate, principal: Principal, name: str) -> None:
    objects = await gate.visible_objects(principal)
    visible = {change_event_name(entity.name).lower() for entity in objects}
    visible |= {event.name.lower() for event in await known_events(gate, principal)}
    if name.lower() not in visible:
        raise ResourceUnknown("The requested resource does not exist")


async def schema_by_id(api: Api, call: ApiCall) -> HttpResponse:
    """Return the schema with an id, also of events that were written with an earlier schema."""
    (wanted_id,) = call.arguments

    async def load() -> str:
        found = await api.gate.any_schema_json(wanted_id)
        name = str(orjson.loads(found)["name"])
        # Only administrators of types may still read the schema of a type that was removed or renamed.
        if not (_is_gone(api.gate, name) and (await api.gate.grants(call.principal)).has(_TYPES_PERMISSION)):
            await _check_topic(api.gate, call.principal, name)
        return found

    return await _answer_schema(api, call, load)


def _is_gone(gate: Gate, name: str) -> bool:
    entity = entity_of_change_event(name)
    known = gate.catalog.try_object(entity) if entity else gate.catalog.try_any_event(name)
    return known is None


async def _answer_schema(api: Api, call: ApiCall, load: Callable[[], Awaitable[str]]) -> HttpResponse:
    payload_format = call.request.query.get("payloadFormat")
    if not is_format_valid(payload_format, call.version):
        return render_protocol_error(
            call.request,
            400,
            "INVALID_PARAMETER",
            "payloadFormat takes EXPANDED or COMPACT, from API version 43.0 on",
        )
    with object_in_path:
        schema_json = await load()
    body = render_event_schema(schema_json, payload_format, call.version)
    return render_answer(api, call, 200, body)


def is_format_valid(payload_format: str | None, version: int) -> bool:
    """Whether the query parameter may have this value in this version."""
    if payload_format is None:
        return True
    return version >= _EXPANDED_SINCE and payload_format in (_EXPANDED, _COMPACT)


def render_event_schema(schema_json: str, payload_format: str | None, version: int) -> dict[str, object]:
    """Render a schema in the form that the version and the parameter ask for."""
    schema: dict[str, object] = orjson.loads(schema_json)
    if payload_format == _COMPACT or version < _EXPANDED_SINCE:
        return schema | {"uuid": schema_id(schema)}
    return _render_expanded(schema)


def _render_expanded(schema: Mapping[str, object]) -> dict[str, object]:
    fields = schema["fields"]
    payload = {
        "type": "record",
        "name": "Payload",
        "doc": "",
        "fields": [_as_json_field(f) for f in fields] if isinstance(fields, list) else [],
    }
    event = {"type": "record", "name": "Event", "fields": [{"name": "replayId", "type": "long"}]}
    data = {
        "type": "record",
        "name": "Data",
        "namespace": "",
        "fields": [
            {"name": "schema", "type": "string"},
            {"name": "payload", "type": payload},
            {"name": "event", "type": event},
        ],
    }
    return {
        "name": schema["name"],
        "namespace": schema["namespace"],
        "type": "expanded-record",
        "fields": [{"name": "data", "type": data}, {"name": "channel", "type": "string"}],
    }


def _as_json_field(field: dict[str, object]) -> dict[str, object]:
    if doc_kind(str(field.get("doc", ""))) not in _TIME_KINDS:
        return field
    kind = field["type"]
    if isinstance(kind, list):
        return field | {"type": ["string" if part == "long" else part for part in kind]}
    return field | {"type": "string"}


ROUTES: tuple[Route[Api], ...] = (
    Route((), {"GET": list_resources}, xml_root="Resources"),
    Route(("sobjects",), {"GET": list_objects}, xml_root="DescribeGlobal"),
    Route(("sobjects", "*", "describe"), {"GET": describe}, xml_root="DescribeSObject"),
    Route(("sobjects", "*", "eventSchema"), {"GET": schema_by_name}, since=_SCHEMA_SINCE),
    Route(("event", "eventSchema", "*"), {"GET": schema_by_id}, since=_SCHEMA_SINCE),
)
