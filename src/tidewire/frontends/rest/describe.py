"""The resources that say what there is: a version's resources, the global list, descriptions, event schemas."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import orjson

from tidewire.access.principal import Principal
from tidewire.errors import ResourceUnknown
from tidewire.frontends.rest import event_schema
from tidewire.frontends.rest.calls import Api, ApiCall, Route, object_in_path, render_answer
from tidewire.frontends.rest.conditional_requests import Validators, etag_of, try_answer_unchanged
from tidewire.frontends.rest.identity import identity_url
from tidewire.frontends.rest.recent import read_recent
from tidewire.frontends.rest.wire_errors import render_protocol_error
from tidewire.gate.describe import (
    ChildLink,
    render_describe,
    render_event_describe,
    render_event_entry,
    render_global_entry,
)
from tidewire.gate.describe_change_event import (
    render_change_event_describe,
    render_change_event_entries,
    render_change_event_entry,
    try_change_event_entity,
)
from tidewire.gate.gate import Gate
from tidewire.gate.publishing import knows_event
from tidewire.gate.record_types import read_record_types
from tidewire.names import change_event_name, data_url, entity_of_change_event
from tidewire.schema.model import EventType, ObjectType
from tidewire.transport.http import HttpResponse

MAX_BATCH_SIZE = 200  # records that one collection request may carry, as the global list announces it
_SHOWN_RECENT = 10
_TYPES_PERMISSION = "CustomizeApplication"
_BESIDE = frozenset({"jobs"})  # resources with an API of their own
# Resource names with the first version that has them; each is the path of its own under the version.
_RESOURCES: tuple[tuple[str, int], ...] = (
    ("actions", 32),
    ("appMenu", 29),
    ("composite", 34),
    ("jobs", 41),
    ("limits", 24),
    ("parameterizedSearch", 36),
    ("query", 20),
    ("queryAll", 29),
    ("quickActions", 28),
    ("recent", 20),
    ("search", 20),
    ("sobjects", 20),
    ("tabs", 31),
    ("theme", 29),
    ("tooling", 20),
)


async def list_resources(api: Api, call: ApiCall) -> HttpResponse:
    """The resources of a version, and who is asking."""
    known = api.resource_names() | _BESIDE
    resources = {
        name: data_url(call.version, name)
        for name, first in _RESOURCES
        if call.version >= first and name in known
    }
    if call.version >= event_schema.FIRST_VERSION:
        resources["eventSchema"] = data_url(call.version, "event", "eventSchema")
    resources["identity"] = identity_url(call.request.base_url, call.principal.org_id, call.principal.user_id)
    return render_answer(api, call, 200, dict(sorted(resources.items())))


async def list_objects(api: Api, call: ApiCall) -> HttpResponse:
    """The global list: every object, change event and platform event that the caller may know of."""
    objects = await api.gate.visible_objects(call.principal)
    entries = [render_global_entry(entity, call.version) for entity in objects]
    entries += render_change_event_entries(objects, call.version)
    entries += [render_event_entry(event, call.version) for event in await _events(api.gate, call.principal)]
    entries.sort(key=lambda entry: str(entry["name"]))
    body = {"encoding": "UTF-8", "maxBatchSize": MAX_BATCH_SIZE, "sobjects": entries}
    return _render_described(api, call, "", body)


async def describe_briefly(api: Api, call: ApiCall) -> HttpResponse:
    """An object's entry of the global list, and the records of it that the caller used last."""
    (name,) = call.arguments
    if event := await _try_event(api.gate, call.principal, name):
        entry = render_event_entry(event, call.version)
        return render_answer(api, call, 200, {"objectDescribe": entry, "recentItems": []})
    if told := try_change_event_entity(api.gate.catalog, name):
        with object_in_path():
            entity, _, _ = await api.gate.visible_fields(call.principal, told)
        entry = render_change_event_entry(entity, call.version)
        return render_answer(api, call, 200, {"objectDescribe": entry, "recentItems": []})
    with object_in_path():
        entity, _, _ = await api.gate.visible_fields(call.principal, name)
    recent = await read_recent(api, call, _SHOWN_RECENT, entity.name)
    entry = render_global_entry(entity, call.version)
    return render_answer(api, call, 200, {"objectDescribe": entry, "recentItems": recent})


async def describe(api: Api, call: ApiCall) -> HttpResponse:
    """Everything about an object that the caller may know."""
    (name,) = call.arguments
    if event := await _try_event(api.gate, call.principal, name):
        return _render_described(api, call, event.name, render_event_describe(event, call.version))
    if told := try_change_event_entity(api.gate.catalog, name):
        with object_in_path():
            entity, readable, _ = await api.gate.visible_fields(call.principal, told)
        body = render_change_event_describe(entity, readable, call.version)
        return _render_described(api, call, str(body["name"]), body)
    with object_in_path():
        entity, readable, editable = await api.gate.visible_fields(call.principal, name)
    children = await _children(api.gate, call.principal, entity)
    record_types = await read_record_types(api.gate, entity)
    body = render_describe(entity, readable, editable, children, call.version, record_types)
    return _render_described(api, call, entity.name, body)


def _render_described(api: Api, call: ApiCall, name: str, body: object) -> HttpResponse:
    tag = etag_of(body)
    changed_ms = api.changes.changed_ms((call.principal.user_id, call.version, name), tag)
    validators = Validators(tag, changed_ms)
    unchanged = try_answer_unchanged(call.request, validators)
    if unchanged is not None:
        return unchanged
    return render_answer(api, call, 200, body, *validators.headers())


async def _children(gate: Gate, principal: Principal, parent: ObjectType) -> list[ChildLink]:
    links = []
    for entity in await gate.visible_objects(principal):
        lookups = [f for f in entity.fields if parent.name in f.reference_to]
        if lookups:
            _, readable, _ = await gate.visible_fields(principal, entity.name)
            links += [ChildLink(entity.name, f) for f in lookups if f.name in readable]
    return links


async def _events(gate: Gate, principal: Principal) -> list[EventType]:
    """The platform events that the caller may read or publish; the others do not exist for it."""
    grants = await gate.grants(principal)
    return [event for event in gate.catalog.all_events if knows_event(grants, event)]


async def _try_event(gate: Gate, principal: Principal, name: str) -> EventType | None:
    events = await _events(gate, principal)
    return next((event for event in events if event.name.lower() == name.lower()), None)


async def schema_by_name(api: Api, call: ApiCall) -> HttpResponse:
    """The newest schema of an event type."""
    (name,) = call.arguments
    await _check_topic(api.gate, call.principal, name)
    return await _schema(api, call, lambda: api.gate.event_schema(name))


async def _check_topic(gate: Gate, principal: Principal, name: str) -> None:
    objects = await gate.visible_objects(principal)
    visible = {change_event_name(entity.name).lower() for entity in objects}
    visible |= {event.name.lower() for event in await _events(gate, principal)}
    if name.lower() not in visible:
        raise ResourceUnknown("The requested resource does not exist")


async def schema_by_id(api: Api, call: ApiCall) -> HttpResponse:
    """The schema with this id, which some event was once written by, or would be."""
    (schema_id,) = call.arguments

    async def load() -> str:
        found = await api.gate.any_schema_json(schema_id)
        name = str(orjson.loads(found)["name"])
        if not (_is_gone(api.gate, name) and (await api.gate.grants(call.principal)).has(_TYPES_PERMISSION)):
            await _check_topic(api.gate, call.principal, name)
        return found

    return await _schema(api, call, load)


def _is_gone(gate: Gate, name: str) -> bool:
    """Whether a schema is left of a type that was removed or renamed: whoever makes types may still read it."""
    entity = entity_of_change_event(name)
    known = gate.catalog.try_object(entity) if entity else gate.catalog.try_any_event(name)
    return known is None


async def _schema(api: Api, call: ApiCall, load: Callable[[], Awaitable[str]]) -> HttpResponse:
    if call.version < event_schema.FIRST_VERSION:
        raise ResourceUnknown("The requested resource does not exist")
    payload_format = call.request.query.get("payloadFormat")
    if not event_schema.is_format_valid(payload_format, call.version):
        return render_protocol_error(
            call.request,
            400,
            "INVALID_PARAMETER",
            "payloadFormat takes EXPANDED or COMPACT, from API version 43.0 on",
        )
    with object_in_path():
        schema_json = await load()
    body = event_schema.render_event_schema(schema_json, payload_format, call.version)
    return render_answer(api, call, 200, body)


ROUTES: tuple[Route[Api], ...] = (
    Route((), {"GET": list_resources}, xml_root="Resources"),
    Route(("sobjects",), {"GET": list_objects}, xml_root="DescribeGlobal"),
    Route(("sobjects", "*", "describe"), {"GET": describe}, xml_root="DescribeSObject"),
    Route(("sobjects", "*", "eventSchema"), {"GET": schema_by_name}),
    Route(("event", "eventSchema", "*"), {"GET": schema_by_id}),
)
