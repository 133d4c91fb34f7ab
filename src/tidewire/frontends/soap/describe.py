"""The calls that tell about objects: describeGlobal, describeSObject(s), describeLayout and describeTabs.

What is told is `access.describe`'s; here it gets the order of the WSDL. Elements that may be absent are left out
when there is nothing to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tidewire.access.describe import (
    ChildLink,
    render_describe,
    render_event_describe,
    render_event_entry,
    render_global_entry,
)
from tidewire.frontends.soap.calls import SoapCall, check_count
from tidewire.frontends.soap.wire import render_element, render_elements
from tidewire.ids import make_id
from tidewire.schema.model import EventType, ObjectType

MAX_DESCRIBED = 100
MAX_BATCH_SIZE = 200
_MASTER_RECORD_TYPE = "012000000000000AAA"
_LAYOUT_PREFIX = "00h"
_TAB_SET_PREFIX = "02u"
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
    """Every object and every platform event that the caller may know of."""
    objects = await call.gate.visible_objects(call.principal)
    entries = [render_global_entry(entity, call.endpoint.version) for entity in objects]
    entries += [render_event_entry(event, call.endpoint.version) for event in await _events(call)]
    entries.sort(key=lambda entry: str(entry["name"]))
    inner = "".join(
        f"<sobjects>{_render_named({**entry, 'idEnabled': True}, _FLAGS_BEFORE_LABEL)}</sobjects>"
        for entry in entries
    )
    return f"<result><encoding>UTF-8</encoding><maxBatchSize>{MAX_BATCH_SIZE}</maxBatchSize>{inner}</result>"


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
    else:
        entity, readable, editable = await call.gate.visible_fields(call.principal, name)
        children = await _children(call, entity)
        described = render_describe(entity, readable, editable, children, version)
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
    return [e for e in call.gate.catalog.events if grants.can_read(e.name) or grants.on(e.name).can_create]


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
        case str() | bool() | int() | float():
            return render_element(name, value)
        case Sequence():
            return "".join(_render_entry(name, item) for item in value)
        case _:
            return render_element(name, str(value))


async def describe_layout(call: SoapCall) -> str:
    """One layout for everybody: each field that the caller may see, one under the other."""
    entity, readable, editable = await call.gate.visible_fields(
        call.principal, call.request.text("sObjectType")
    )
    layout_id = make_id(_LAYOUT_PREFIX, 1)
    fields = [f for f in entity.fields if f.name in readable and not f.compound]
    rows = "".join(
        "<layoutRows><layoutItems>"
        + render_elements(
            (
                ("editableForNew", f.createable and f.name in editable),
                ("editableForUpdate", f.updateable and f.name in editable),
                ("label", f.label),
            )
        )
        + f"<layoutComponents><displayLines>1</displayLines><tabOrder>{number}</tabOrder><type>Field</type>"
        + f"{render_element('value', f.name)}</layoutComponents>"
        + f"<placeholder>false</placeholder>{render_element('required', f.required)}"
        + "</layoutItems><numItems>1</numItems></layoutRows>"
        for number, f in enumerate(fields, 1)
    )
    section = (
        f"<collapsed>false</collapsed><columns>1</columns>{render_element('heading', entity.label)}{rows}"
        f"<parentLayoutId>{layout_id}</parentLayoutId><rows>{len(fields)}</rows>"
        "<tabOrder>TopToBottom</tabOrder>"
        "<useCollapsibleSection>false</useCollapsibleSection><useHeading>true</useHeading>"
    )
    mapping = (
        "<recordTypeMappings><active>true</active><available>true</available>"
        "<defaultRecordTypeMapping>true</defaultRecordTypeMapping><developerName>Master</developerName>"
        f"<layoutId>{layout_id}</layoutId><master>true</master><name>Master</name>"
        f"<recordTypeId>{_MASTER_RECORD_TYPE}</recordTypeId></recordTypeMappings>"
    )
    return (
        f"<result><layouts><detailLayoutSections>{section}</detailLayoutSections>"
        f"<editLayoutSections>{section}</editLayoutSections><id>{layout_id}</id></layouts>{mapping}"
        "<recordTypeSelectorRequired>false</recordTypeSelectorRequired></result>"
    )


async def describe_tabs(call: SoapCall) -> str:
    """One set of tabs: an object of data each."""
    objects = await call.gate.visible_objects(call.principal)
    tabs = "".join(
        "<tabs>"
        + render_elements(
            (
                ("custom", entity.custom),
                ("iconUrl", ""),
                ("label", entity.label_plural),
                ("miniIconUrl", ""),
                ("name", f"standard-{entity.name}" if not entity.custom else entity.name),
                ("sobjectName", entity.name),
                ("url", ""),
            )
        )
        + "</tabs>"
        for entity in objects
        if not entity.is_setup
    )
    head = render_elements((("description", ""), ("label", "Tidewire"), ("logoUrl", ""), ("namespace", None)))
    tab_set = render_elements((("selected", True), ("tabSetId", make_id(_TAB_SET_PREFIX, 1))))
    return f"<result>{head}{tab_set}{tabs}</result>"
