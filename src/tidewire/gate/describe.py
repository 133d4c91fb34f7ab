"""Describe of objects and events: entries of the global list and full descriptions, with every key. Pure.

A flag that is true must hold for this server: sortable means ORDER BY works, createable that the caller may set the
field. URLs are listed only for resources that exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidewire.access.grants import is_permissionable
from tidewire.crm.merge import MERGEABLE
from tidewire.events import Value
from tidewire.gate.record_types import MASTER, RecordType
from tidewire.names import data_url
from tidewire.schema.field_types import DOUBLE_TYPES, FieldType
from tidewire.schema.model import EventType, Field, ObjectType
from tidewire.schema.standard.statuses import status_rows
from tidewire.schema.values import render_value
from tidewire.soql.typing_rules import is_groupable, is_sortable

FIELD_KINDS = tuple(sorted({each.row.word for each in FieldType} | {"combobox", "complexvalue"}))
"""Every possible `type` of a described field."""
SOAP_TYPES = tuple(sorted({each.row.soap_type for each in FieldType} | {"urn:ChangeEventHeader"}))
"""Every possible `soapType` of a described field."""
_NEVER_GROUPED = frozenset({"NotifyForFields", "NotifyForOperations"})
_LONGEST_GROUPED = 255
# Status objects share one prefix on the platform, so their describe has none.
_WITHOUT_PREFIX = frozenset(status_rows())
NAMED_LAYOUTS = {"User": ("UserAlt",)}
"""Named layouts by object."""
_DATETIME_SUFFIX = "+0000"
_ID_LENGTH = 18
_AUTO_NUMBER_LENGTH = 30


@dataclass(frozen=True, slots=True)
class ChildLink:
    """A lookup of another object that points at the described one."""

    entity: str
    field: Field


def render_global_entry(entity: ObjectType, version: int) -> dict[str, object]:
    """Render an object as an entry of the global describe."""
    is_data = not entity.is_setup
    is_named = is_data and entity.name_field is not None
    urls = _urls(entity.name, version) | (_page_urls(entity.name, version) if is_data else {})
    return _entry(entity, urls) | {
        "createable": entity.createable,
        "updateable": entity.updateable,
        "deletable": entity.deletable,
        "undeletable": is_data and entity.deletable,
        "queryable": True,
        "replicateable": is_data,
        "retrieveable": True,
        "layoutable": is_data,
        "searchable": is_named,
        "mruEnabled": is_named,  # recent items are listed by name
    }


def render_event_entry(event: EventType, version: int) -> dict[str, object]:
    """Render a platform event as an entry of the global describe: at most createable, if it is a custom one."""
    urls = _urls(event.name, version)
    urls["eventSchema"] = urls["sobject"] + "/eventSchema"
    return _entry(event, urls)


def _urls(name: str, version: int) -> dict[str, str]:
    sobject = data_url(version, "sobjects", name)
    return {"rowTemplate": sobject + "/{ID}", "describe": sobject + "/describe", "sobject": sobject}


def _page_urls(name: str, version: int) -> dict[str, str]:
    """URLs of layouts, list views and actions."""
    sobject = data_url(version, "sobjects", name)
    described = {
        kind: f"{sobject}/describe/{kind}" for kind in ("layouts", "compactLayouts", "approvalLayouts")
    }
    return described | {kind: f"{sobject}/{kind}" for kind in ("listviews", "quickActions")}


def _entry(described: ObjectType | EventType, urls: dict[str, str]) -> dict[str, object]:
    """Render the entry of an event; an object overrides some flags."""
    return {
        "activateable": False,
        "associateEntityType": None,
        "associateParentEntity": None,
        "createable": described.custom,
        "custom": described.custom,
        "customSetting": False,
        "deepCloneable": False,
        "deletable": False,
        "deprecatedAndHidden": False,
        "feedEnabled": False,
        "hasSubtypes": False,
        "isInterface": False,
        "isSubtype": False,
        "keyPrefix": None if described.name in _WITHOUT_PREFIX else described.key_prefix or None,
        "label": described.label,
        "labelPlural": described.label_plural,
        "layoutable": False,
        "mergeable": described.name in MERGEABLE,
        "mruEnabled": False,
        "name": described.name,
        "queryable": False,
        "replicateable": False,
        "retrieveable": False,
        "searchable": False,
        "triggerable": False,
        "undeletable": False,
        "updateable": False,
        "urls": urls,
    }


def render_describe(
    entity: ObjectType,
    readable: frozenset[str],
    editable: frozenset[str],
    children: Iterable[ChildLink],
    version: int,
    record_types: Sequence[RecordType] = (MASTER,),
) -> dict[str, object]:
    """Render the describe of an object, limited to the fields that its reader may see."""
    masters = [f for f in entity.fields if f.is_master_detail]
    fields = [
        render_field(
            f,
            can_edit=f.name in editable,
            is_name=f is entity.name_field,
            is_key=f.name in entity.keys,
            relationship_order=masters.index(f) if f in masters else None,
        )
        for f in entity.fields
        if f.name in readable
    ]
    entry = render_global_entry(entity, version)
    described = _full(entry, fields, [_render_child(child) for child in children])
    layouts = data_url(version, "sobjects", entity.name, "describe", "layouts")
    infos = [render_record_type(each, layouts if entry["layoutable"] else "") for each in record_types]
    scopes = [{"label": f"All {entity.label_plural}", "name": "everything"}]
    if "ownerid" in entity.by_name:
        scopes.append({"label": f"My {entity.label_plural}", "name": "mine"})
    named = data_url(version, "sobjects", entity.name, "describe", "namedLayouts")
    return described | {
        "namedLayoutInfos": [
            {"name": name, "urls": {"layout": f"{named}/{name}"}}
            for name in NAMED_LAYOUTS.get(entity.name, ())
        ],
        "recordTypeInfos": infos,
        "supportedScopes": scopes,
    }


def render_record_type(record_type: RecordType, layouts_url: str) -> dict[str, object]:
    """Render a record type; the master is the default for new records."""
    record_type_id = record_type.record_type_id
    return {
        "active": record_type.is_active,
        "available": record_type.is_active,
        "defaultRecordTypeMapping": record_type.is_master,
        "developerName": record_type.developer_name,
        "master": record_type.is_master,
        "name": record_type.name,
        "recordTypeId": record_type_id,
        "urls": {"layout": f"{layouts_url}/{record_type_id}"} if layouts_url else dict[str, str](),
    }


def render_event_describe(event: EventType, version: int) -> dict[str, object]:
    """Render the describe of a platform event, including its four standard fields."""
    standard = (
        Field(name="ReplayId", label="Replay ID", type=FieldType.TEXT, length=1000, createable=False),
        Field(name="EventUuid", label="Event UUID", type=FieldType.TEXT, length=36, createable=False),
        Field(name="CreatedDate", label="Created Date", type=FieldType.DATETIME, is_system=True),
        Field(
            name="CreatedById",
            label="Created By ID",
            type=FieldType.REFERENCE,
            reference_to=("User",),
            relationship_name="CreatedBy",
            is_system=True,
        ),
    )
    fields = [
        render_field(f, can_edit=event.custom and not f.is_system and f.createable)
        for f in (*standard, *event.fields)
    ]
    for entry in fields:
        entry.update(updateable=False, filterable=False, sortable=False, groupable=False, aggregatable=False)
    return _full(render_event_entry(event, version), fields, [])


def _full(
    entry: dict[str, object], fields: list[dict[str, object]], children: list[dict[str, object]]
) -> dict[str, object]:
    full = entry | {
        "actionOverrides": [],
        "childRelationships": children,
        "compactLayoutable": False,
        "defaultImplementation": None,
        "extendedBy": None,
        "extendsInterfaces": None,
        "fields": fields,
        "implementedBy": None,
        "implementsInterfaces": None,
        "listviewable": None,
        "lookupLayoutable": None,
        "namedLayoutInfos": [],
        "networkScopeFieldName": None,
        "recordTypeInfos": [render_record_type(MASTER, "")],
        "searchLayoutable": False,
        "sobjectDescribeOption": "FULL",
        "supportedScopes": [{"label": "All", "name": "everything"}],
    }
    return dict(sorted(full.items()))


def render_field(
    field: Field,
    *,
    can_edit: bool,
    is_name: bool = False,
    is_key: bool = False,
    relationship_order: int | None = None,
) -> dict[str, object]:
    """Render one field with every key, in alphabetical order.

    `relationship_order` is the place of a master-detail field among those of its object, from 0.
    """
    row = field.type.row
    kind, soap_type = row.word, row.soap_type
    if field.name == "Subject" and field.picklist:
        kind = "combobox"
    is_text = soap_type == "xsd:string"
    is_number = field.type in DOUBLE_TYPES
    length = _length(field)
    is_long = field.type is FieldType.TEXT and field.length > _LONGEST_GROUPED
    # GROUP BY takes a time of day, but the platform's descriptions do not say so.
    is_ungrouped = field.type is FieldType.TIME or field.name in _NEVER_GROUPED or is_long
    can_group = is_groupable(field) and not is_ungrouped
    # A record whose optional name is omitted gets its id as name.
    has_default = _has_default(field) or (is_name and field.type is FieldType.TEXT and not field.required)
    is_required = field.required or field.is_system or row.is_never_null
    return {
        "aggregatable": field.is_filterable and row.is_aggregatable,
        "aiPredictionField": False,
        "autoNumber": field.type is FieldType.AUTO_NUMBER,
        "byteLength": length * 3 if is_text else length,
        "calculated": bool(field.formula) or field.roll_up is not None,
        "calculatedFormula": field.formula or None,
        "cascadeDelete": _is_cascading(field),
        "caseSensitive": field.case_sensitive,
        "compoundFieldName": field.compound or None,
        "controllerName": None,
        "createable": field.createable and can_edit,
        "custom": field.custom,
        "defaultValue": _default(field),
        "defaultValueFormula": None,
        "defaultedOnCreate": has_default,
        "dependentPicklist": False,
        "deprecatedAndHidden": False,
        "digits": field.precision if field.type is FieldType.INTEGER else 0,
        "displayLocationInDecimal": False,
        "encrypted": False,
        "externalId": field.external_id,
        "extraTypeInfo": row.extra_type_info,
        "filterable": field.is_filterable,
        "filteredLookupInfo": None,
        "formulaTreatNullNumberAsZero": False,
        "groupable": can_group,
        "highScaleNumber": False,
        "htmlFormatted": field.type is FieldType.RICH_TEXT,
        "idLookup": is_key or field.type is FieldType.ID or field.external_id,
        "inlineHelpText": field.help_text or None,
        "label": field.label,
        "length": length,
        "mask": None,
        "maskType": None,
        "name": field.name,
        "nameField": is_name,
        "namePointing": len(field.reference_to) > 1,
        "nillable": not (is_required or field.name == "OwnerId"),
        "permissionable": is_permissionable(field),
        "picklistValues": [
            {
                "active": choice.is_active,
                "defaultValue": choice.is_default,
                "label": choice.label,
                "validFor": None,
                "value": choice.value,
            }
            for choice in field.picklist
        ],
        "polymorphicForeignKey": len(field.reference_to) > 1,
        "precision": field.precision if is_number else 0,
        "queryByDistance": False,
        "referenceTargetField": None,
        "referenceTo": list(field.reference_to),
        "relationshipName": field.relationship_name or None,
        "relationshipOrder": relationship_order,
        "restrictedDelete": field.delete_constraint == "Restrict",
        "restrictedPicklist": field.restricted,
        "scale": field.scale if is_number else 0,
        "searchPrefilterable": False,
        "soapType": soap_type,
        "sortable": is_sortable(field),
        "type": kind,
        "unique": field.unique,
        "updateable": field.updateable and can_edit,
        "writeRequiresMasterRead": False,
    }


def _length(field: Field) -> int:
    if field.type in (FieldType.ID, FieldType.REFERENCE):
        return _ID_LENGTH
    if field.type is FieldType.AUTO_NUMBER:
        return field.length or _AUTO_NUMBER_LENGTH
    return field.length


def _default(field: Field) -> Value:
    if field.default is None:
        return None
    return render_value(field, field.default, _DATETIME_SUFFIX)


def _is_cascading(field: Field) -> bool:
    return field.is_master_detail or field.delete_constraint == "Cascade"


def _has_default(field: Field) -> bool:
    return (
        field.is_system
        or field.default is not None
        or field.type.row.is_never_null
        or field.name == "OwnerId"  # defaults to the creator
        or any(choice.is_default for choice in field.picklist)
    )


def _render_child(child: ChildLink) -> dict[str, object]:
    return {
        "cascadeDelete": _is_cascading(child.field),
        "childSObject": child.entity,
        "deprecatedAndHidden": False,
        "field": child.field.name,
        "junctionIdListNames": [],
        "junctionReferenceTo": [],
        "relationshipName": child.field.child_relationship_name or None,
        "restrictedDelete": child.field.delete_constraint == "Restrict",
    }
