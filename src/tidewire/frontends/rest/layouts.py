"""Resources for clients with a user interface: layouts, actions, tabs, themes and menus.

This server has no page designer. An object has one layout, with every field that the caller may see in the order of
the description, and one compact layout with its name. Actions and menus are empty lists.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence

from tidewire.errors import ResourceUnknown, TooManyRecords
from tidewire.frontends.rest.calls import Api, ApiCall, Route, object_in_path, render_answer
from tidewire.gate.describe import NAMED_LAYOUTS, render_field, render_record_type
from tidewire.gate.record_types import MASTER_ID, read_record_types
from tidewire.ids import try_normalise_id
from tidewire.names import data_url
from tidewire.schema.model import Field, ObjectType
from tidewire.transport.http import HttpResponse

_LAYOUT_ID = "00h000000000000AAA"
_COLUMNS = 2
_MAX_COMPACT = 100

Handler = Callable[[Api, ApiCall], Awaitable[HttpResponse]]


async def _open(api: Api, call: ApiCall, name: str) -> tuple[ObjectType, list[Field], frozenset[str]]:
    with object_in_path:
        entity, readable, editable = await api.gate.visible_fields(call.principal, name)
    return entity, [f for f in entity.fields if f.name in readable and not f.compound], editable


async def describe_layouts(api: Api, call: ApiCall) -> HttpResponse:
    """Return the layouts of an object, and the layout of each record type."""
    entity, fields, editable = await _open(api, call, call.arguments[0])
    url = _url(call, entity, "describe", "layouts")
    mappings = [
        render_record_type(each, url) | {"layoutId": _LAYOUT_ID, "picklistsForRecordType": None}
        for each in await read_record_types(api.gate, entity)
    ]
    body = {
        "layouts": [_layout(fields, editable)],
        "recordTypeMappings": [dict(sorted(mapping.items())) for mapping in mappings],
        "recordTypeSelectorRequired": [len(mappings) > 1],
    }
    return render_answer(api, call, 200, body)


async def describe_layout(api: Api, call: ApiCall) -> HttpResponse:
    """Return the layout of one record type; all record types share it."""
    name, record_type = call.arguments
    entity, fields, editable = await _open(api, call, name)
    known = [each.record_type_id for each in await read_record_types(api.gate, entity)]
    if try_normalise_id(record_type) not in known:
        raise ResourceUnknown("The requested resource does not exist")
    return render_answer(api, call, 200, _layout(fields, editable))


async def describe_named_layout(api: Api, call: ApiCall) -> HttpResponse:
    """Return a layout by the name that the object's description lists."""
    name, wanted = call.arguments
    entity, fields, editable = await _open(api, call, name)
    if wanted not in NAMED_LAYOUTS.get(entity.name, ()):
        raise ResourceUnknown("The requested resource does not exist")
    return render_answer(api, call, 200, {"layouts": [_layout(fields, editable) | {"name": wanted}]})


def _layout(fields: list[Field], editable: frozenset[str]) -> dict[str, object]:
    shown = [f for f in fields if not f.is_system]
    rows = [shown[i : i + _COLUMNS] for i in range(0, len(shown), _COLUMNS)]
    section = {
        "collapsed": False,
        "columns": _COLUMNS,
        "heading": "Information",
        "layoutRows": [
            {"layoutItems": [_item(f, editable) for f in row], "numItems": len(row)} for row in rows
        ],
        "layoutSectionId": None,
        "parentLayoutId": _LAYOUT_ID,
        "rows": len(rows),
        "tabOrder": "LeftToRight",
        "useCollapsibleSection": False,
        "useHeading": False,
    }
    return {
        "buttonLayoutSection": None,
        "detailLayoutSections": [section],
        "editLayoutSections": [section],
        "feedView": None,
        "highlightsPanelLayoutSection": None,
        "id": _LAYOUT_ID,
        "multirowEditLayoutSections": [],
        "offlineLinks": [],
        "quickActionList": {"quickActionListItems": []},
        "relatedContent": None,
        "relatedLists": [],
        "saveOptions": [],
    }


def _item(field: Field, editable: frozenset[str]) -> dict[str, object]:
    can_edit = field.name in editable
    component = {
        "details": render_field(field, can_edit=can_edit),
        "displayLines": 1,
        "tabOrder": 1,
        "type": "Field",
        "value": field.name,
    }
    return {
        "editableForNew": can_edit and field.createable,
        "editableForUpdate": can_edit and field.updateable,
        "label": field.label,
        "layoutComponents": [component],
        "placeholder": False,
        "required": field.required,
    }


async def describe_compact_layouts(api: Api, call: ApiCall) -> HttpResponse:
    """Return the compact layout of an object; every object has one."""
    entity, fields, editable = await _open(api, call, call.arguments[0])
    layout = _compact_layout(entity, fields, editable)
    mapping = {
        "available": True,
        "compactLayoutId": None,
        "compactLayoutName": "SYSTEM",
        "recordTypeId": MASTER_ID,
        "recordTypeName": "Master",
        "urls": {"compactLayout": None},
    }
    body = {
        "compactLayouts": [layout],
        "defaultCompactLayoutId": None,
        "recordTypeCompactLayoutMappings": [mapping],
        "urls": {"primary": _url(call, entity, "describe", "compactLayouts", "primary")},
    }
    return render_answer(api, call, 200, body)


async def describe_primary_compact_layout(api: Api, call: ApiCall) -> HttpResponse:
    """Return the primary compact layout, which is the only one."""
    entity, fields, editable = await _open(api, call, call.arguments[0])
    return render_answer(api, call, 200, _compact_layout(entity, fields, editable))


def _compact_layout(entity: ObjectType, fields: list[Field], editable: frozenset[str]) -> dict[str, object]:
    return {
        "actions": [],
        "fieldItems": [_item(f, editable) for f in fields if f is entity.name_field],
        "id": None,
        "imageItems": [],
        "label": "System Default",
        "name": "SYSTEM",
        "objectType": entity.name,
    }


async def describe_several_compact_layouts(api: Api, call: ApiCall) -> HttpResponse:
    """Return the compact layouts of several objects, by object name."""
    names = [name.strip() for name in call.request.query.get("q", "").split(",") if name.strip()]
    if len(names) > _MAX_COMPACT:
        raise TooManyRecords(f"At most {_MAX_COMPACT} objects can be asked for", limit=_MAX_COMPACT)
    layouts = {}
    for name in names:
        entity, fields, editable = await _open(api, call, name)
        layouts[entity.name] = _compact_layout(entity, fields, editable)
    return render_answer(api, call, 200, layouts)


def _answer_always(value: object) -> Handler:
    """Return the handler of a resource that is empty on this server; its object, if any, must be visible."""

    async def answer(api: Api, call: ApiCall) -> HttpResponse:
        if call.arguments:
            await _open(api, call, call.arguments[0])
        return render_answer(api, call, 200, value)

    return answer


async def list_tabs(api: Api, call: ApiCall) -> HttpResponse:
    """List one tab for every data object that the caller may see."""
    tabs = [
        {
            "colors": list[str](),
            "custom": entity.custom,
            "iconUrl": None,
            "icons": list[str](),
            "label": entity.label_plural,
            "miniIconUrl": None,
            "name": entity.name if entity.custom else f"standard-{entity.name}",
            "sobjectName": entity.name,
            "url": f"{call.request.base_url}/{entity.key_prefix}",
        }
        for entity in await api.gate.visible_objects(call.principal)
        if not entity.is_setup and entity.name_field
    ]
    return render_answer(api, call, 200, tabs)


def _empty_lists(resource: str, names: Sequence[str], items: str, since: int) -> Iterator[Route[Api]]:
    """Yield the routes of a resource that lists these names, and of each name, which has no items."""

    async def list_names(api: Api, call: ApiCall) -> HttpResponse:
        links = {name: data_url(call.version, resource, name) for name in names}
        return render_answer(api, call, 200, links)

    async def show_name(api: Api, call: ApiCall) -> HttpResponse:
        if call.arguments[0] not in names:
            raise ResourceUnknown("The requested resource does not exist")
        return render_answer(api, call, 200, {items: []})

    yield Route((resource,), {"GET": list_names}, since)
    yield Route((resource, "*"), {"GET": show_name}, since)


def _url(call: ApiCall, entity: ObjectType, *rest: str) -> str:
    return data_url(call.version, "sobjects", entity.name, *rest)


ROUTES: tuple[Route[Api], ...] = (
    Route(
        ("sobjects", "*", "describe", "layouts"), {"GET": describe_layouts}, xml_root="DescribeLayoutResult"
    ),
    Route(("sobjects", "*", "describe", "layouts", "*"), {"GET": describe_layout}, xml_root="DescribeLayout"),
    Route(("sobjects", "*", "describe", "namedLayouts", "*"), {"GET": describe_named_layout}, since=31),
    Route(("sobjects", "*", "describe", "compactLayouts"), {"GET": describe_compact_layouts}),
    Route(("compactLayouts",), {"GET": describe_several_compact_layouts}, since=31, is_listed=False),
    Route(
        ("sobjects", "*", "describe", "compactLayouts", "primary"), {"GET": describe_primary_compact_layout}
    ),
    Route(("sobjects", "*", "describe", "approvalLayouts"), {"GET": _answer_always({"approvalLayouts": []})}),
    Route(("sobjects", "*", "quickActions"), {"GET": _answer_always([])}),
    Route(("quickActions",), {"GET": _answer_always([])}, since=28),
    Route(("tabs",), {"GET": list_tabs}, since=31),
    Route(("theme",), {"GET": _answer_always({"themeItems": []})}, since=29),
    *_empty_lists("appMenu", ("AppSwitcher", "NetworkTabs", "Salesforce1"), "appMenuItems", since=29),
    *_empty_lists("actions", ("custom", "standard"), "actions", since=32),
)
