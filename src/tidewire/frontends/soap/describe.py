"""The calls that tell about objects: describeGlobal and describeSObject(s).

What is told is `access.describe`'s; here it gets the order of the WSDL. Elements that may be absent are left out
when there is nothing to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tidewire.frontends.soap.calls import SoapCall, check_count
from tidewire.frontends.soap.wire import render_element
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
    try_change_event_entity,
)
from tidewire.gate.publishing import knows_event
from tidewire.gate.record_types import read_record_types
from tidewire.schema.model import EventType, ObjectType

MAX_DESCRIBED = 100
MAX_BATCH_SIZE = 200
_NILLABLE = frozenset({"keyPrefix"})
_FLAGS_BEFORE_LABEL = (
    "activateable",
    "createable",
    "custom",
    "customSetting",
    "deepCloneable",
    "deletable",
    "deprecatedAndHidden",
    "feedEnabled",
    "hasSubtypes",
    "idEnabled",
    "isInterface",
    "isSubtype",
    "keyPrefix",
    "label",
    "labelPlural",
    "layoutable",
    "mergeable",
    "mruEnabled",
    "name",
    "queryable",
    "replicateable",
    "retrieveable",
    "searchable",
    "triggerable",
    "undeletable",
    "updateable",
)
_NOT_IN_WSDL = frozenset(
    {"urls", "sobjectDescribeOption", "listviewable", "lookupLayoutable", "aiPredictionField"}
)


async def describe_global(call: SoapCall) -> str:
    """Every object, change event and platform event that the caller may know of."""
    return f"<result>{await render_global(call)}</result>"


async def render_global(call: SoapCall) -> str:
    """The inside of a DescribeGlobalResult."""
    objects = await call.gate.visible_objects(call.principal)
    entries = [render_global_entry(entity, call.endpoint.version) for entity in objects]
    entries += render_change_event_entries(objects, call.endpoint.version)
    entries += [render_event_entry(event, call.endpoint.version) for event in await _events(call)]
    entries.sort(key=lambda entry: str(entry["name"]))
    inner = "".join(
        f"<sobjects>{_render_named({**entry, 'idEnabled': True}, _FLAGS_BEFORE_LABEL)}</sobjects>"
        for entry in entries
    )
    return f"<encoding>UTF-8</encoding><maxBatchSize>{MAX_BATCH_SIZE}</maxBatchSize>{inner}"


async def describe_sobject(call: SoapCall) -> str:
    """Everything about one object that the caller may know."""
    return f"<result>{await _describe(call, call.request.text('sObjectType'))}</result>"


async def describe_sobjects(call: SoapCall) -> str:
    """The same for up to a hundred objects."""
    names = call.request.texts("sObjectType")
    check_count(names, MAX_DESCRIBED)
    return "".join([f"<result>{await _describe(call, name)}</result>" for name in names])


async def _describe(call: SoapCall, name: str) -> str:
    version = call.endpoint.version
    event = next((e for e in await _events(call) if e.name.lower() == name.lower()), None)
    if event is not None:
        described = render_event_describe(event, version)
    elif told := try_change_event_entity(call.gate.catalog, name):
        entity, readable, _ = await call.gate.visible_fields(call.principal, told)
        described = render_change_event_describe(entity, readable, version)
    else:
        entity, readable, editable = await call.gate.visible_fields(call.principal, name)
        children = await _children(call, entity)
        record_types = await read_record_types(call.gate, entity)
        described = render_describe(entity, readable, editable, children, version, record_types)
    return _render_mapping({**described, "idEnabled": True})


async def _children(call: SoapCall, parent: ObjectType) -> list[ChildLink]:
    links = []
    for entity in await call.gate.visible_objects(call.principal):
        lookups = [f for f in entity.fields if parent.name in f.reference_to]
        if lookups:
            _, readable, _ = await call.gate.visible_fields(call.principal, entity.name)
            links += [ChildLink(entity.name, f) for f in lookups if f.name in readable]
    return links


async def _events(call: SoapCall) -> list[EventType]:
    grants = await call.gate.grants(call.principal)
    return [event for event in call.gate.catalog.all_events if knows_event(grants, event)]


def _render_mapping(values: Mapping[str, object]) -> str:
    """A description's entries in alphabetical order, which is the WSDL's."""
    return _render_named(values, sorted(name for name in values if name not in _NOT_IN_WSDL))


def _render_named(values: Mapping[str, object], names: Iterable[str]) -> str:
    return "".join(
        _render_default(values)
        if name == "defaultValue" and "soapType" in values
        else _render_entry(name, values[name])
        for name in names
    )


def _render_default(field: Mapping[str, object]) -> str:
    """A field's default value, which by the schema may be of any type and so names its own."""
    return _render_entry("defaultValue", field["defaultValue"]).replace(
        ">", f' xsi:type="{field["soapType"]}">', 1
    )


def _render_entry(name: str, value: object) -> str:
    match value:
        case None:
            return render_element(name, None) if name in _NILLABLE else ""
        case Mapping():
            return f"<{name}>{_render_mapping(value)}</{name}>"
        case str() if name == "soapType":
            return render_element(name, value.replace("urn:", "tns:"))  # as the schema has it, unlike REST
        case str() | bool() | int() | float():
            return render_element(name, value)
        case Sequence():
            return "".join(_render_entry(name, item) for item in value)
        case _:
            return render_element(name, str(value))
