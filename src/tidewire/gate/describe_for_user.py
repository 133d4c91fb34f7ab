"""Objects, platform events and change events as one user may know them, for every front end that describes."""

from __future__ import annotations

from tidewire.access.principal import Principal
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
from tidewire.schema.model import EventType, ObjectType


async def known_events(gate: Gate, principal: Principal) -> list[EventType]:
    """Return the platform events that the user may read or publish; others do not exist for the user."""
    grants = await gate.grants(principal)
    return [event for event in gate.catalog.all_events if knows_event(grants, event)]


async def list_entries(gate: Gate, principal: Principal, version: int) -> list[dict[str, object]]:
    """Return the global list: an entry for everything that can be described, by name."""
    objects = await gate.visible_objects(principal)
    entries = [render_global_entry(entity, version) for entity in objects]
    entries += render_change_event_entries(objects, version)
    entries += [render_event_entry(event, version) for event in await known_events(gate, principal)]
    return sorted(entries, key=lambda entry: str(entry["name"]))


async def find_entry(
    gate: Gate, principal: Principal, name: str, version: int
) -> tuple[dict[str, object], ObjectType | None]:
    """Return one entry of the global list, and the object unless it is an event's. Raises ObjectUnknown."""
    if event := await _try_event(gate, principal, name):
        return render_event_entry(event, version), None
    if changed := try_change_event_entity(gate.catalog, name):
        entity, _, _ = await gate.visible_fields(principal, changed)
        return render_change_event_entry(entity, version), None
    entity, _, _ = await gate.visible_fields(principal, name)
    return render_global_entry(entity, version), entity


async def describe_entity(gate: Gate, principal: Principal, name: str, version: int) -> dict[str, object]:
    """Return the full description of an object or event. Raises ObjectUnknown."""
    if event := await _try_event(gate, principal, name):
        return render_event_describe(event, version)
    if changed := try_change_event_entity(gate.catalog, name):
        entity, readable, _ = await gate.visible_fields(principal, changed)
        return render_change_event_describe(entity, readable, version)
    entity, readable, editable = await gate.visible_fields(principal, name)
    children = await _child_links(gate, principal, entity)
    record_types = await read_record_types(gate, entity)
    return render_describe(entity, readable, editable, children, version, record_types)


async def _try_event(gate: Gate, principal: Principal, name: str) -> EventType | None:
    events = await known_events(gate, principal)
    return next((event for event in events if event.name.lower() == name.lower()), None)


async def _child_links(gate: Gate, principal: Principal, parent: ObjectType) -> list[ChildLink]:
    """Return the lookups to `parent` that the user may read."""
    links = []
    for entity in await gate.visible_objects(principal):
        lookups = [f for f in entity.fields if parent.name in f.reference_to]
        if lookups:
            _, readable, _ = await gate.visible_fields(principal, entity.name)
            links += [ChildLink(entity.name, f) for f in lookups if f.name in readable]
    return links
