"""Calls for clients with a user interface: layouts, tabs, themes and menus.

This server has no page designer. An object has one layout, with every field that the caller may see, and one compact
and one search layout with its name. Approvals, icons, colours and menu items are empty.
"""

from __future__ import annotations

from tidewire.errors import PicklistValueInvalid
from tidewire.frontends.soap.calls import SoapCall, check_count
from tidewire.frontends.soap.describe import MAX_DESCRIBED, render_global
from tidewire.frontends.soap.wire import render_element, render_elements
from tidewire.frontends.soap.wsdl.shapes import MENUS
from tidewire.ids import make_id
from tidewire.schema.model import Field, ObjectType

_MASTER_RECORD_TYPE = "012000000000000AAA"
_LAYOUT_PREFIX = "00h"
_TAB_SET_PREFIX = "02u"
_COMPACT_NAME = "SYSTEM"
_NO_THEME = ""  # a theme without items is an empty element


async def describe_layout(call: SoapCall) -> str:
    """Return the layout of an object: the fields that the caller may see, in one column."""
    entity, fields, editable = await _open(call, call.request.text("sObjectType"))
    layout_id = make_id(_LAYOUT_PREFIX, 1)
    rows = "".join(
        f"<layoutRows><layoutItems>{_item(f, editable, number)}</layoutItems><numItems>1</numItems></layoutRows>"
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


async def describe_compact_layouts(call: SoapCall) -> str:
    """Return the compact layout of an object; every object has one."""
    layout = await _compact_layout(call, call.request.text("sObjectType"))
    mapping = (
        "<recordTypeCompactLayoutMappings><available>true</available>"
        f'<compactLayoutId xsi:nil="true"/><compactLayoutName>{_COMPACT_NAME}</compactLayoutName>'
        f"<recordTypeId>{_MASTER_RECORD_TYPE}</recordTypeId><recordTypeName>Master</recordTypeName>"
        "</recordTypeCompactLayoutMappings>"
    )
    return (
        f"<result><compactLayouts>{layout}</compactLayouts>"
        f'<defaultCompactLayoutId xsi:nil="true"/>{mapping}</result>'
    )


async def describe_primary_compact_layouts(call: SoapCall) -> str:
    """Return the compact layouts of several objects."""
    names = call.request.texts("sObjectTypes")
    check_count(names, MAX_DESCRIBED)
    return "".join([f"<result>{await _compact_layout(call, name)}</result>" for name in names])


async def _compact_layout(call: SoapCall, name: str) -> str:
    entity, fields, editable = await _open(call, name)
    shown = (f for f in fields if f is entity.name_field)
    items = "".join(f"<fieldItems>{_item(f, editable, 1)}</fieldItems>" for f in shown)
    named = (("label", "System Default"), ("name", _COMPACT_NAME), ("objectType", entity.name))
    return f'{items}<id xsi:nil="true"/>{render_elements(named)}'


async def describe_search_layouts(call: SoapCall) -> str:
    """Return the search layouts of objects: the name field."""
    names = call.request.texts("sObjectType")
    check_count(names, MAX_DESCRIBED)
    return "".join([await _search_layout(call, name) for name in names])


async def _search_layout(call: SoapCall, name: str) -> str:
    entity, fields, _ = await _open(call, name)
    columns = "".join(
        "<searchColumns>"
        + render_elements((("field", f"{entity.name}.{f.name}"), ("label", f.label), ("name", f.name)))
        + "</searchColumns>"
        for f in fields
        if f is entity.name_field
    )
    head = render_elements((("label", "Search Results"), ("limitRows", None), ("objectType", entity.name)))
    return f"<result>{head}{columns}</result>"


async def describe_search_scope_order(call: SoapCall) -> str:
    """List the objects that a search without RETURNING covers, in its order."""
    return "".join(
        f"<result>{render_elements((('keyPrefix', entity.key_prefix), ('name', entity.name)))}</result>"
        for entity in await call.gate.visible_objects(call.principal)
        if not entity.is_setup and entity.name_field
    )


async def describe_approval_layout(call: SoapCall) -> str:
    """Return no approval layouts: there are no approvals."""
    await _open(call, call.request.text("sObjectType"))
    return "<result/>"


async def describe_theme(call: SoapCall) -> str:
    """Return no icons and colours, of all objects or of those in the call."""
    names = call.request.texts("sobjectType")
    check_count(names, MAX_DESCRIBED)
    for name in names:
        await _open(call, name)
    return f"<result>{_NO_THEME}</result>"


async def describe_global_theme(call: SoapCall) -> str:
    """List every object, and an empty theme."""
    return f"<result><global>{await render_global(call)}</global><theme>{_NO_THEME}</theme></result>"


async def describe_app_menu(call: SoapCall) -> str:
    """Return a menu without items."""
    menu = call.request.text("appMenuType")
    if menu not in MENUS:
        raise PicklistValueInvalid(
            f"appMenuType: '{menu[:80]}' is not a valid value for the type AppMenuType",
            fields=["appMenuType"],
        )
    return "<result/>"


async def describe_tabs(call: SoapCall) -> str:
    """Return one tab set with a tab for every data object."""
    tabs = "".join(f"<tabs>{tab}</tabs>" for tab in await _tabs(call))
    head = render_elements((("description", ""), ("label", "Tidewire"), ("logoUrl", ""), ("namespace", None)))
    tab_set = render_elements((("selected", True), ("tabSetId", make_id(_TAB_SET_PREFIX, 1))))
    return f"<result>{head}{tab_set}{tabs}</result>"


async def describe_all_tabs(call: SoapCall) -> str:
    """Return the same tabs without their set."""
    return "".join(f"<result>{tab}</result>" for tab in await _tabs(call))


async def _tabs(call: SoapCall) -> list[str]:
    return [
        render_elements(
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
        for entity in await call.gate.visible_objects(call.principal)
        if not entity.is_setup
    ]


async def _open(call: SoapCall, name: str) -> tuple[ObjectType, list[Field], frozenset[str]]:
    entity, readable, editable = await call.gate.visible_fields(call.principal, name)
    return entity, [f for f in entity.fields if f.name in readable and not f.compound], editable


def _item(f: Field, editable: frozenset[str], tab_order: int) -> str:
    """Render the inside of a DescribeLayoutItem."""
    can_edit = f.name in editable
    head = (
        ("editableForNew", f.createable and can_edit),
        ("editableForUpdate", f.updateable and can_edit),
        ("label", f.label),
    )
    return (
        render_elements(head)
        + f"<layoutComponents><displayLines>1</displayLines><tabOrder>{tab_order}</tabOrder><type>Field</type>"
        + f"{render_element('value', f.name)}</layoutComponents>"
        + f"<placeholder>false</placeholder>{render_element('required', f.required)}"
    )
