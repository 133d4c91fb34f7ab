"""The objects of the Tooling API, one entry each. Rows are built from what the caller may see."""

from __future__ import annotations

from collections.abc import Mapping

from tidewire.frontends.rest.tooling.channels import CHANNEL_OBJECTS
from tidewire.frontends.rest.tooling.model import (
    FULL_NAME,
    METADATA,
    Row,
    Seen,
    ToolingObject,
    audit_fields,
    audit_values,
    checkbox_fields,
    durable_id,
    link,
    metadata_fields,
    text_fields,
    tooling_type,
)
from tidewire.gate.metadata.field_render import field_kind, render_field_properties
from tidewire.gate.metadata.objects import is_event, is_shared, render_event, render_object, shown_fields
from tidewire.gate.metadata.registry import (
    Source,
    component_id,
    field_id,
    iter_fields,
    object_id,
    record_types_of,
)
from tidewire.names import change_event_name
from tidewire.schema.catalog import Catalog
from tidewire.schema.channels import can_capture
from tidewire.schema.field_types import DOUBLE_TYPES, NUMBER_TYPES, FieldType
from tidewire.schema.fields import integer
from tidewire.schema.model import EventType, Field, ObjectType

_NO_ID = "000000000000000AAA"
_SUFFIXES = ("__ChangeEvent", "__c", "__e")

_ENTITY = tooling_type(
    "EntityDefinition",
    "Entity Definition",
    "Entity Definitions",
    "4ie",
    [
        *text_fields(
            "DurableId", "QualifiedApiName", "DeveloperName", "NamespacePrefix", "MasterLabel", "Label"
        ),
        *text_fields("PluralLabel", "KeyPrefix", "PublisherId", "Description", "DeploymentStatus"),
        *text_fields("InternalSharingModel", "ExternalSharingModel"),
        *checkbox_fields(
            "IsCustomizable", "IsCustomSetting", "IsQueryable", "IsRetrieveable", "IsReplicateable"
        ),
        *checkbox_fields(
            "IsSearchable", "IsLayoutable", "IsTriggerable", "IsApexTriggerable", "IsWorkflowEnabled"
        ),
        *checkbox_fields("IsEverCreatable", "IsEverUpdatable", "IsEverDeletable", "IsDeprecatedAndHidden"),
        *checkbox_fields(
            "IsFeedEnabled", "IsIdEnabled", "IsCompactLayoutable", "IsProcessEnabled", "HasSubtypes"
        ),
    ],
)
_FIELD = tooling_type(
    "FieldDefinition",
    "Field Definition",
    "Field Definitions",
    "4fd",
    [
        *text_fields(
            "DurableId", "QualifiedApiName", "DeveloperName", "NamespacePrefix", "MasterLabel", "Label"
        ),
        *text_fields(
            "DataType", "ValueTypeId", "ExtraTypeInfo", "RelationshipName", "Description", "PublisherId"
        ),
        link("EntityDefinitionId", "EntityDefinition", "EntityDefinition", "Fields"),
        *(integer(name, name, 9) for name in ("Length", "Precision", "Scale")),
        *checkbox_fields(
            "IsCalculated", "IsCompound", "IsNameField", "IsNillable", "IsIndexed", "IsHtmlFormatted"
        ),
        *checkbox_fields(
            "IsHighScaleNumber", "IsPolymorphicForeignKey", "IsFieldHistoryTracked", "IsApiFilterable"
        ),
        *checkbox_fields("IsApiGroupable", "IsApiSortable", "IsListVisible", "IsFlsEnabled"),
    ],
)
_CUSTOM_FIELD = tooling_type(
    "CustomField",
    "Custom Field",
    "Custom Fields",
    "00N",
    [
        *text_fields(
            "DeveloperName", "TableEnumOrId", "NamespacePrefix", "ManageableState", "InlineHelpText"
        ),
        *text_fields("Description", "RelationshipLabel", "SummaryOperation"),
        link("EntityDefinitionId", "EntityDefinition", "EntityDefinition", "CustomFields"),
        *(integer(name, name, 9) for name in ("Length", "Precision", "Scale")),
        *audit_fields(),
        *metadata_fields(),
    ],
    is_writeable=True,
)
_CUSTOM_OBJECT = tooling_type(
    "CustomObject",
    "Custom Object",
    "Custom Objects",
    "01I",
    [
        *text_fields(
            "DeveloperName", "NamespacePrefix", "ManageableState", "Description", "SharingModel", "Language"
        ),
        *text_fields("ExternalName", "ExternalRepository", "CustomHelpId"),
        *audit_fields(),
        *metadata_fields(),
    ],
    is_writeable=True,
)


def _name_parts(name: str) -> Row:
    """Return a name without namespace and suffix, and its namespace."""
    for suffix in _SUFFIXES:
        if name.endswith(suffix):
            namespace, _, stem = name.removesuffix(suffix).rpartition("__")
            return {"DeveloperName": stem, "NamespacePrefix": namespace or None}
    return {"DeveloperName": name, "NamespacePrefix": None}


def _entity_rows(seen: Seen) -> list[Row]:
    rows = [_object_row(obj) for obj in seen.catalog.objects]
    rows += [_event_row(event) for event in seen.catalog.events]
    return rows + [_change_event_row(obj) for obj in seen.catalog.objects if can_capture(obj)]


def _names(name: str, label: str, durable: str) -> Row:
    return {
        "Id": _NO_ID,
        "DurableId": durable,
        "QualifiedApiName": name,
        **_name_parts(name),
        "MasterLabel": label,
        "Label": label,
    }


def _object_row(obj: ObjectType) -> Row:
    is_data = not obj.is_setup
    sharing = obj.internal_sharing if is_shared(obj) else None
    return _names(obj.name, obj.label, durable_id(obj)) | {
        "PluralLabel": obj.label_plural,
        "KeyPrefix": obj.key_prefix,
        "PublisherId": "<local>" if obj.custom else "System",
        "Description": obj.description or None,
        "DeploymentStatus": "Deployed" if obj.custom else None,
        "InternalSharingModel": sharing,
        "ExternalSharingModel": sharing,
        "IsCustomizable": is_data,
        "IsQueryable": True,
        "IsRetrieveable": True,
        "IsReplicateable": is_data,
        "IsSearchable": is_data and obj.name_field is not None,
        "IsEverCreatable": obj.createable,
        "IsEverUpdatable": obj.updateable,
        "IsEverDeletable": obj.deletable,
        "IsIdEnabled": True,
    }


def _event_row(event: EventType) -> Row:
    return _names(event.name, event.label, durable_id(event)) | {
        "PluralLabel": event.label_plural,
        "KeyPrefix": event.key_prefix,
        "PublisherId": "<local>",
        "Description": event.description or None,
        "DeploymentStatus": "Deployed",
        "IsCustomizable": True,
        "IsEverCreatable": True,
    }


def _change_event_row(obj: ObjectType) -> Row:
    name = change_event_name(obj.name)
    durable = component_id("01I", name) if obj.custom else name
    return _names(name, f"{obj.label} Change Event", durable) | {
        "PluralLabel": f"{obj.label} Change Event",
        "KeyPrefix": None,
        "PublisherId": "CDC",
    }


def _field_rows(seen: Seen) -> list[Row]:
    rows = [_field_row(obj, f) for obj in seen.catalog.objects for f in seen.fields_of(obj)]
    return rows + [_field_row(event, f) for event in seen.catalog.events for f in event.fields]


def _field_row(owner: ObjectType | EventType, f: Field) -> Row:
    obj = owner if isinstance(owner, ObjectType) else None
    entity = durable_id(owner)
    own = (
        field_id(owner.name, f)[:15] if f.custom else f.name.removesuffix("Id") if f.reference_to else f.name
    )
    is_number = f.type in NUMBER_TYPES
    return _names(f.name, f.label, f"{entity}.{own}") | {
        "EntityDefinitionId": entity,
        "DataType": _data_type(obj, f),
        "ValueTypeId": f.type.row.word,
        "RelationshipName": f.relationship_name or None,
        "Description": f.description or None,
        "PublisherId": "<local>" if f.custom else "System",
        "Length": f.length,
        "Precision": f.precision if is_number else 0,
        "Scale": f.scale if is_number else 0,
        "IsCalculated": bool(f.formula) or f.roll_up is not None,
        "IsCompound": f.is_compound,
        "IsNameField": obj is not None and f is obj.name_field,
        "IsNillable": not f.required and not f.is_system and f.type is not FieldType.CHECKBOX,
        "IsIndexed": f.unique or f.external_id or f.type is FieldType.ID,
        "IsHtmlFormatted": f.type is FieldType.RICH_TEXT,
        "IsPolymorphicForeignKey": len(f.reference_to) > 1,
        "IsApiFilterable": f.is_filterable,
        "IsApiSortable": f.is_filterable,
        "IsFlsEnabled": not f.is_system and not f.required,
    }


def _data_type(obj: ObjectType | None, f: Field) -> str:
    kind = field_kind(obj, f)
    if f.formula:
        return f"Formula ({kind})"
    if f.roll_up is not None:
        return f"Roll-Up Summary ({f.roll_up.function})"
    if f.reference_to:
        word = "Master-Detail" if f.is_master_detail else kind
        return f"{word}({','.join(f.reference_to)})"
    if f.type in DOUBLE_TYPES:
        return f"{kind}({f.precision - f.scale}, {f.scale})"
    return f"{kind}({f.length})" if f.type.row.states_length and f.length else kind


def _custom_field_rows(seen: Seen) -> list[Row]:
    audit = audit_values(seen)
    return [
        _custom_field_row(owner, f) | audit
        for owner, f in iter_fields(seen.catalog)
        if isinstance(owner, EventType) or seen.grants.can_read_field(owner, f)
    ]


def _custom_field_row(owner: ObjectType | EventType, f: Field) -> Row:
    has_length = f.type.row.states_length and not f.formula
    return {
        "Id": field_id(owner.name, f),
        **_name_parts(f.name),
        "TableEnumOrId": durable_id(owner),
        "ManageableState": "unmanaged",
        "InlineHelpText": f.help_text or None,
        "Description": f.description or None,
        "SummaryOperation": f.roll_up.function.lower() if f.roll_up is not None else None,
        "EntityDefinitionId": durable_id(owner),
        "Length": f.length if has_length else None,
        "Precision": f.precision if f.type in DOUBLE_TYPES else None,
        "Scale": f.scale if f.type in DOUBLE_TYPES else None,
        FULL_NAME: f"{owner.name}.{f.name}",
    }


def _field_metadata(seen: Seen, row: Row) -> Mapping[str, object]:
    entity, _, name = str(row[FULL_NAME]).partition(".")
    if is_event(entity):
        event = seen.catalog.try_event(entity)
        found = next(f for f in event.fields if f.name == name) if event is not None else None
        return {METADATA: None if found is None else render_field_properties(None, found)}
    obj = seen.catalog.object(entity)
    return {METADATA: render_field_properties(obj, obj.by_name[name.lower()])}


def _custom_object_rows(seen: Seen) -> list[Row]:
    audit = audit_values(seen)
    types: list[ObjectType | EventType] = [o for o in seen.catalog.objects if o.custom]
    types += seen.catalog.events
    return [
        {
            "Id": object_id(each),
            **_name_parts(each.name),
            "ManageableState": "unmanaged",
            "Description": each.description or None,
            "SharingModel": each.internal_sharing if isinstance(each, ObjectType) else None,
            "Language": "en_US",
            FULL_NAME: each.name,
        }
        | audit
        for each in types
    ]


def _object_metadata(seen: Seen, row: Row) -> Mapping[str, object]:
    name = str(row[FULL_NAME])
    event = seen.catalog.try_event(name)
    if event is not None:
        return {METADATA: render_event(event)}
    obj = seen.catalog.object(name)
    readable = [f for f in shown_fields(obj) if seen.grants.can_read_field(obj, f)]
    return {METADATA: render_object(obj, record_types_of(Source(seen.reader, seen.catalog), name), readable)}


TOOLING_OBJECTS: dict[str, ToolingObject] = {
    each.type.name.lower(): each
    for each in (
        ToolingObject(_ENTITY, _entity_rows, key="DurableId"),
        ToolingObject(_FIELD, _field_rows, key="DurableId"),
        ToolingObject(_CUSTOM_FIELD, _custom_field_rows, complete=_field_metadata),
        ToolingObject(_CUSTOM_OBJECT, _custom_object_rows, complete=_object_metadata),
        *CHANNEL_OBJECTS,
    )
}
"""Every object by its lower-case name. To add an object, add an entry here."""

TOOLING_CATALOG = Catalog(version=0, objects=tuple(each.type for each in TOOLING_OBJECTS.values()))
"""The same objects for the SOQL binder."""
