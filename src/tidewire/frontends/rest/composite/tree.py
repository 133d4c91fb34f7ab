"""The tree resource: new records with their children inside, up to 200 in one transaction, all or none.

Records are created level by level, each with its parent's id in the lookup of the relationship, and answered in that
order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidewire.errors import BodyMalformed, PlatformError, RequiredFieldMissing, TooManyRecords
from tidewire.frontends.rest.calls import Api, ApiCall, Route, object_in_path, render_answer
from tidewire.frontends.rest.collections import MAX_RECORDS, render_row_error, too_many_records
from tidewire.frontends.rest.wire import parse_json_object, without_attributes
from tidewire.frontends.rest.wire_errors import render_protocol_error
from tidewire.gate.gate import Gate
from tidewire.gate.publishing import event_object, knows_event
from tidewire.gate.shared_transaction import run_in_transaction
from tidewire.schema.model import Field, ObjectType
from tidewire.soql.scope import children_name_of
from tidewire.transport.http import HttpResponse

_MAX_LEVELS = 5
_MAX_TYPES = 5
_NO_TYPE = "Include an entity type for each record in the request."
_DUPLICATE = "Duplicate ReferenceId provided in the request."

Links = Mapping[tuple[str, str], tuple[ObjectType, Field]]
"""The child object and its lookup, by parent object and relationship name, both in lower case."""


@dataclass(frozen=True, slots=True)
class _Node:
    """A record to create. `parent` is the index of its parent node, whose id goes into `lookup`."""

    reference_id: str
    entity: str
    values: Mapping[str, object]
    parent: int = -1
    lookup: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class _Level:
    """The records of one list in the request, not parsed yet."""

    records: list[object]
    entity: ObjectType
    parent: int = -1
    lookup: str = ""


async def create_tree(api: Api, call: ApiCall) -> HttpResponse:
    """Create the records of a tree."""
    (name,) = call.arguments
    body = parse_json_object(call.request)
    with object_in_path:
        root = await _root(api.gate, call, name)
    nodes = _parse_nodes(body.get("records"), root, await _links(api.gate, call))
    if any(not node.reference_id for node in nodes):
        message = "Include a reference ID for each record in the request."
        return render_protocol_error(call.request, 400, "INVALID_INPUT", message)
    invalid = [_render_error(node, _render_input_error(node.error)) for node in nodes if node.error]
    if invalid:
        return render_answer(api, call, 400, {"hasErrors": True, "results": invalid})
    made = await run_in_transaction(
        api.gate,
        call.context,
        lambda gate: _create(gate, call, nodes),
        lambda results: not any(isinstance(r, PlatformError) for r in results),
    )
    failed = [
        _render_error(node, render_row_error(result))
        for node, result in zip(nodes, made, strict=True)
        if isinstance(result, PlatformError)
    ]
    if failed:
        return render_answer(api, call, 400, {"hasErrors": True, "results": failed})
    created = [{"referenceId": n.reference_id, "id": i} for n, i in zip(nodes, made, strict=True)]
    return render_answer(api, call, 201, {"hasErrors": False, "results": created})


async def _root(gate: Gate, call: ApiCall, name: str) -> ObjectType:
    """Return the object, or the event, that the top records are of."""
    event = gate.catalog.try_event(name)
    if event is not None and knows_event(await gate.grants(call.principal), event):
        return event_object(event)
    root, _, _ = await gate.visible_fields(call.principal, name, "create")
    return root


async def _create(gate: Gate, call: ApiCall, nodes: list[_Node]) -> list[str | PlatformError | None]:
    """Create the records. Returns for each node its id, its error, or None if its parent failed."""
    made: list[str | PlatformError | None] = []
    for node in nodes:
        values = dict(node.values)
        if node.lookup:
            parent = made[node.parent]
            if not isinstance(parent, str):
                made.append(None)
                continue
            values[node.lookup] = parent
        try:
            if gate.catalog.try_event(node.entity) is not None:
                made.append((await gate.publisher.publish(call.context, node.entity, values)).event_id)
            else:
                made.append(await gate.create(call.context, node.entity, values))
        except PlatformError as error:
            made.append(error)
    return made


async def _links(gate: Gate, call: ApiCall) -> Links:
    """Return the child relationships that the caller may know."""
    links: dict[tuple[str, str], tuple[ObjectType, Field]] = {}
    for child in await gate.visible_objects(call.principal):
        _, readable, _ = await gate.visible_fields(call.principal, child.name)
        for lookup in child.fields:
            name = children_name_of(lookup).lower()
            if name and lookup.name in readable:
                for parent in lookup.reference_to:
                    links.setdefault((parent.lower(), name), (child, lookup))
    return links


def _parse_nodes(records: object, root: ObjectType, links: Links) -> list[_Node]:
    if not isinstance(records, list) or not records:
        raise RequiredFieldMissing("At least 1 record is required", fields=[])
    nodes: list[_Node] = []
    seen: set[str] = set()
    levels = [_Level(records, root)]
    for _ in range(_MAX_LEVELS):
        below: list[_Level] = []
        for level in levels:
            for record in level.records:
                if len(nodes) == MAX_RECORDS:
                    raise too_many_records(MAX_RECORDS)
                below += _children(record, level.entity, links, len(nodes))
                nodes.append(_parse_node(record, level, links, seen))
        levels = below
    if levels:
        raise TooManyRecords(f"A tree can be up to {_MAX_LEVELS} levels deep", limit=_MAX_LEVELS)
    if len({node.entity for node in nodes}) > _MAX_TYPES:
        raise TooManyRecords(f"A tree can hold up to {_MAX_TYPES} types of records", limit=_MAX_TYPES)
    return nodes


def _parse_node(record: object, level: _Level, links: Links, seen: set[str]) -> _Node:
    if not isinstance(record, dict):
        raise BodyMalformed("records must be JSON objects")
    attributes = record.get("attributes")
    given = attributes if isinstance(attributes, dict) else {}
    reference_id, entity = given.get("referenceId"), given.get("type")
    error = ""
    if not isinstance(entity, str) or not entity:
        error = _NO_TYPE
    elif entity.lower() != level.entity.name.lower():
        error = f"The record must be of type {level.entity.name}, not {entity[:80]}."
    reference_id = reference_id if isinstance(reference_id, str) else ""
    if reference_id in seen:
        error = _DUPLICATE
    seen.add(reference_id)
    values = {
        name: value
        for name, value in without_attributes(record).items()
        if not _is_children(name, value, level.entity, links)
    }
    return _Node(reference_id, level.entity.name, values, level.parent, level.lookup, error)


def _children(record: object, entity: ObjectType, links: Links, place: int) -> list[_Level]:
    found: list[_Level] = []
    for name, value in record.items() if isinstance(record, dict) else ():
        if _is_children(name, value, entity, links):
            child, lookup = links[entity.name.lower(), name.lower()]
            found.append(_Level(value["records"], child, place, lookup.name))
    return found


def _is_children(name: str, value: object, entity: ObjectType, links: Links) -> bool:
    """Whether a value is a list of children; under any other name it is taken for a field."""
    return (
        isinstance(value, dict)
        and isinstance(value.get("records"), list)
        and (entity.name.lower(), name.lower()) in links
    )


def _render_input_error(message: str) -> dict[str, object]:
    return {"statusCode": "INVALID_INPUT", "message": message, "fields": []}


def _render_error(node: _Node, error: dict[str, object]) -> dict[str, object]:
    return {"referenceId": node.reference_id, "errors": [error]}


ROUTES: tuple[Route[Api], ...] = (Route(("composite", "tree", "*"), {"POST": create_tree}, since=34),)
