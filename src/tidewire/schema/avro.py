"""Avro schemas of change events and platform events, and the ids by which clients ask for them."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from fastavro.schema import to_parsing_canonical_form

from tidewire.names import change_event_name
from tidewire.schema.field_types import FieldType
from tidewire.schema.model import EventType, Field, ObjectType
from tidewire.schema.standard.flag_lists import flag_lists
from tidewire.schema.standard.people import early_fields, has_person_accounts

NAMESPACE = "com.sforce.eventbus"
CHANGE_TYPES = (
    "CREATE",
    "UPDATE",
    "DELETE",
    "UNDELETE",
    "GAP_CREATE",
    "GAP_UPDATE",
    "GAP_DELETE",
    "GAP_UNDELETE",
    "GAP_OVERFLOW",
    "SNAPSHOT",
)


def change_event_schema(obj: ObjectType) -> dict[str, Any]:
    """Return the schema of an object's change events: the header, then every field that change events carry."""
    fields: list[dict[str, Any]] = [
        {"name": "ChangeEventHeader", "type": header_type(), "doc": "Data:ComplexValueType"}
    ]
    defined: set[str] = set()
    has_persons = has_person_accounts(obj)
    for field in _in_wire_order(obj):
        avro_type: Any = field.type.row.avro_type
        if has_persons and field.name == "Name":
            fields.append(_switchable_name(obj))
            continue
        if field.is_compound and avro_type not in defined:
            defined.add(avro_type)
            avro_type = _compound_type(avro_type, obj.components(field.name))
        fields.append({"name": field.name, "type": ["null", avro_type], "doc": _doc(field), "default": None})
    for name in flag_lists(obj):
        strings = {"type": "array", "items": "string"}
        fields.append({"name": name, "type": ["null", strings], "doc": "Data:BitVector", "default": None})
    return _record(change_event_name(obj.name), fields)


def _in_wire_order(obj: ObjectType) -> list[Field]:
    """Return the fields of an object's change events in the order that clients of the original know.

    In orgs with person accounts, some fields that were added late come early.
    """
    ordered = [f for f in obj.fields if f.in_change_events and not f.compound]
    for name, before in early_fields(obj):
        late = [f for f in ordered if f.name == name or (name.endswith("*") and f.name.startswith(name[:-1]))]
        ordered = [f for f in ordered if f not in late]
        at = next((n for n, f in enumerate(ordered, 1) if f.name == before), len(ordered))
        ordered[at:at] = late
    return ordered


def platform_event_schema(event: EventType) -> dict[str, Any]:
    """Return the schema of a platform event: when and by whom it was published, then its own fields."""
    fields: list[dict[str, Any]] = [
        {"name": "CreatedDate", "type": "long", "doc": "CreatedDate:DateTime"},
        {"name": "CreatedById", "type": "string", "doc": "CreatedBy:EntityId"},
    ]
    fields += [
        {"name": f.name, "type": ["null", f.type.row.avro_type], "doc": _doc(f), "default": None}
        for f in event.fields
    ]
    return _record(event.name, fields)


def schema_id(schema: dict[str, Any]) -> str:
    """The id of a schema: base64url of the MD5 of its Parsing Canonical Form, in which docs do not count."""
    canonical = to_parsing_canonical_form(schema)
    digest = hashlib.md5(canonical.encode(), usedforsecurity=False).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _record(name: str, fields: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "record", "name": name, "namespace": NAMESPACE, "fields": fields}


def header_type() -> dict[str, Any]:
    """Return the type of every change event's first field."""
    strings = {"type": "array", "items": "string"}
    change_type = {"type": "enum", "name": "ChangeType", "symbols": list(CHANGE_TYPES)}
    types: dict[str, Any] = {
        "entityName": "string",
        "recordIds": strings,
        "changeType": change_type,
        "changeOrigin": "string",
        "transactionKey": "string",
        "sequenceNumber": "int",
        "commitTimestamp": "long",
        "commitNumber": "long",
        "commitUser": "string",
        "nulledFields": strings,
        "diffFields": strings,
        "changedFields": strings,
    }
    fields = [{"name": name, "type": type_} for name, type_ in types.items()]
    return {"type": "record", "name": "ChangeEventHeader", "fields": fields}


def _switchable_name(account: ObjectType) -> dict[str, Any]:
    """Name of an account that may be a person: the text of a business, the parts of a person."""
    parts = [
        {"name": name, "type": ["null", account.by_name[name.lower()].type.row.avro_type], "default": None}
        for name in ("Salutation", "FirstName", "LastName")
    ]
    record = {"type": "record", "name": "Switchable_PersonName", "fields": parts}
    return {
        "name": "Name",
        "type": ["null", "string", record],
        "doc": "Data:Switchable_PersonName",
        "default": None,
    }


def _compound_type(name: str, components: tuple[Field, ...]) -> dict[str, Any]:
    fields = [
        {"name": part.component, "type": ["null", part.type.row.avro_type], "default": None}
        for part in components
    ]
    return {"type": "record", "name": name, "fields": fields}


def _doc(field: Field) -> str:
    role = "ForeignKey" if field.type is FieldType.REFERENCE else "Data"
    if field.name == "CreatedDate":
        role = field.name
    # Standard fields have no id of their own; custom ones are named by their 15-character id.
    suffix = f":{field.field_id[:15]}" if field.field_id else ""
    word = field.type.row.avro_doc
    if field.type is FieldType.PICKLIST and field.restricted and not field.custom:
        word = "StaticEnum"
    return f"{role}:{word}{suffix}"
