"""The tree resource: new records with their children inside, up to 200 in one transaction, all or none.

Records are made level by level, each with the id of its parent in the lookup that the relationship stands for, and
told in that order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidewire.errors import BodyMalformed, PlatformError, RequiredFieldMissing, TooManyRecords
from tidewire.frontends.rest.calls import Api, ApiCall, object_in_path, render_answer, require_version
from tidewire.frontends.rest.collections import MAX_RECORDS, render_failure
from tidewire.frontends.rest.composite.references import check_depth
from tidewire.frontends.rest.wire import parse_json_object, without_attributes
from tidewire.frontends.rest.wire_errors import render_protocol_error
from tidewire.gate.gate import Gate
from tidewire.gate.publishing import event_object, knows_event
from tidewire.gate.shared_transaction import run_in_transaction
from tidewire.schema.model import Field, ObjectType
from tidewire.soql.scope import children_name_of
from tidewire.transport.http import HttpResponse

_FIRST_VERSION = 34
_MAX_LEVELS = 5
_MAX_TYPES = 5
_NO_TYPE = "Include an entity type for each record in the request."
_DUPLICATE = "Duplicate ReferenceId provided in the request."

Links = Mapping[tuple[str, str], tuple[ObjectType, Field]]
"""By object and relationship, both in lower case: the children's object and the lookup that makes them children."""


@dataclass(frozen=True, slots=True)
class _Node:
    """A record to make. `parent` is the place of its parent among all nodes, whose id goes into `lookup`."""

    reference_id: str
    entity: str
    values: Mapping[str, object]
    parent: int = -1
    lookup: str = ""
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class _Level:
    """Records of one list in the request, still to be read."""

    records: list[object]
    entity: ObjectType
    parent: int = -1
    lookup: str = ""


async def create_tree(api: Api, call: ApiCall) -> HttpResponse:
    """Make the records of a tree."""
    require_version(call, _FIRST_VERSION)
    (name,) = call.arguments
    body = parse_json_object(call.request)
    check_depth(body)
    with object_in_path():
        root = await _root(api.gate, call, name)
    nodes = _parse_nodes(body.get("records"), root, await _links(api.gate, call))
    if any(not node.reference_id for node in nodes):
        message = "Include a reference ID for each record in the request."
        return render_protocol_error(call.request, 400, "INVALID_INPUT", message)
    refused = [i for i, node in enumerate(nodes) if node.refusal]
    if refused:
        results = [_render_error(nodes[i], _refusal(nodes[i].refusal)) for i in refused]
        return render_answer(api, call, 400, {"hasErrors": True, "results": results})
    made = await run_in_transaction(
        api.gate,
        call.context,
        lambda gate: _create(gate, call, nodes),
        lambda results: not any(isinstance(r, PlatformError) for r in results),
    )
    failed = [
        _render_error(node, render_failure(result))
        for node, result in zip(nodes, made, strict=True)
        if isinstance(result, PlatformError)
    ]
    if failed:
        return render_answer(api, call, 400, {"hasErrors": True, "results": failed})
    created = [{"referenceId": n.reference_id, "id": i} for n, i in zip(nodes, made, strict=True)]
    return render_answer(api, call, 201, {"hasErrors": False, "results": created})


async def _root(gate: Gate, call: ApiCall, name: str) -> ObjectType:
    """The object of the records at the top, or of events, which have no children."""
    event = gate.catalog.try_event(name)
    if event is not None and knows_event(await gate.grants(call.principal), event):
        return event_object(event)
    root, _, _ = await gate.visible_fields(call.principal, name, "create")
    return root


async def _create(gate: Gate, call: ApiCall, nodes: list[_Node]) -> list[str | PlatformError | None]:
    """For each node its record's id, why it failed, or None if its parent did."""
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
    """The relationships to children that the caller may know of."""
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
                    raise TooManyRecords(
                        f"record limit reached. cannot submit more than {MAX_RECORDS} records into this call",
                        limit=MAX_RECORDS,
                    )
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
    refusal = ""
    if not isinstance(entity, str) or not entity:
        refusal = _NO_TYPE
    elif entity.lower() != level.entity.name.lower():
        refusal = f"The record must be of type {level.entity.name}, not {entity[:80]}."
    reference_id = reference_id if isinstance(reference_id, str) else ""
    if reference_id in seen:
        refusal = _DUPLICATE
    seen.add(reference_id)
    values = {
        name: value
        for name, value in without_attributes(record).items()
        if not _is_children(name, value, level.entity, links)
    }
    return _Node(reference_id, level.entity.name, values, level.parent, level.lookup, refusal)


def _children(record: object, entity: ObjectType, links: Links, place: int) -> list[_Level]:
    found: list[_Level] = []
    for name, value in record.items() if isinstance(record, dict) else ():
        if _is_children(name, value, entity, links):
            child, lookup = links[entity.name.lower(), name.lower()]
            found.append(_Level(value["records"], child, place, lookup.name))
    return found


def _is_children(name: str, value: object, entity: ObjectType, links: Links) -> bool:
    """Whether a value is a list of children; under a name that leads to none it is a field like any other."""
    return (
        isinstance(value, dict)
        and isinstance(value.get("records"), list)
        and (entity.name.lower(), name.lower()) in links
    )


def _refusal(message: str) -> dict[str, object]:
    return {"statusCode": "INVALID_INPUT", "message": message, "fields": []}


def _render_error(node: _Node, error: dict[str, object]) -> dict[str, object]:
    return {"referenceId": node.reference_id, "errors": [error]}
