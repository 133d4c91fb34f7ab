"""Renders types as JSON documents for the store, and parses them."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

from tidewire.schema.field_types import FieldType
from tidewire.schema.model import EventType, Field, ObjectType, PicklistValue, RollUp, StatusCategory


def render_object(obj: ObjectType) -> str:
    """Render the object as JSON text; `parse_object` gives it back."""
    document = asdict(obj) | {"fields": [_field_document(f) for f in obj.fields]}
    for name in ("named_by", "id_lookup"):  # only standard objects have them, and those are not stored
        del document[name]
    return json.dumps(document, default=_enum_value)


def parse_object(text: str) -> ObjectType:
    """Parse an object from its JSON text."""
    document = json.loads(text)
    document["fields"] = tuple(_field(f) for f in document["fields"])
    return ObjectType(**document)


def render_fields(fields: tuple[Field, ...]) -> str:
    """Render the fields that an org added to a standard object as JSON text."""
    return json.dumps([_field_document(f) for f in fields], default=_enum_value)


def parse_fields(text: str) -> tuple[Field, ...]:
    """Fields from their JSON text."""
    return tuple(_field(f) for f in json.loads(text))


_CHANGEABLE = ("picklist", "default", "help_text", "description")
"""What an org may change about a standard field."""
_CHANGEABLE_OF_OBJECT = ("description", "internal_sharing")


def render_changes(standard: ObjectType, obj: ObjectType) -> str:
    """Render an org's changes to a standard object as JSON text; empty if there are none."""
    changed: dict[str, Any] = {
        name: getattr(obj, name)
        for name in _CHANGEABLE_OF_OBJECT
        if getattr(obj, name) != getattr(standard, name)
    }
    fields: dict[str, dict[str, Any]] = {}
    for f in standard.fields:
        own = obj.try_field(f.name)
        names = [n for n in _CHANGEABLE if own is not None and getattr(own, n) != getattr(f, n)]
        if own is not None and names:
            whole = _field_document(own)
            fields[f.name] = {n: whole[n] for n in names}
    if fields:
        changed["fields"] = fields
    return json.dumps(changed) if changed else ""


def with_changes(standard: ObjectType, text: str) -> ObjectType:
    """Return a standard object with an org's changes applied."""
    document = json.loads(text)
    changed: dict[str, dict[str, Any]] = document.pop("fields", {})
    for attributes in changed.values():
        if "picklist" in attributes:
            attributes["picklist"] = _parse_picklist(attributes["picklist"])
    fields = tuple(replace(f, **changed[f.name]) if f.name in changed else f for f in standard.fields)
    return replace(standard, fields=fields, **document)


def render_event(event: EventType) -> str:
    """Render the platform event as JSON text; `parse_event` gives it back."""
    return json.dumps(
        asdict(event) | {"fields": [_field_document(f) for f in event.fields]}, default=_enum_value
    )


def parse_event(text: str) -> EventType:
    """Parse a platform event from its JSON text."""
    document = json.loads(text)
    document["fields"] = tuple(_field(f) for f in document["fields"])
    return EventType(**document)


def _field_document(field: Field) -> dict[str, Any]:
    document = asdict(field)
    for choice in document["picklist"]:
        choice["meaning"] = choice.pop("category")  # the stored name of a status category
    return document


def _enum_value(value: object) -> object:
    if isinstance(value, FieldType):
        return value.value
    raise TypeError(type(value).__name__)


def _field(document: dict[str, Any]) -> Field:
    return Field(
        **document
        | {
            "type": FieldType(document["type"]),
            "picklist": _parse_picklist(document["picklist"]),
            "reference_to": tuple(document["reference_to"]),
            "roll_up": _roll_up(document.get("roll_up")),
        }
    )


def _parse_picklist(values: list[dict[str, Any]]) -> tuple[PicklistValue, ...]:
    parsed = []
    for document in values:
        category = document.pop("meaning", None)
        parsed.append(PicklistValue(**document, category=StatusCategory(**category) if category else None))
    return tuple(parsed)


def _roll_up(document: dict[str, Any] | None) -> RollUp | None:
    if document is None:
        return None
    return RollUp(**document | {"filters": tuple(tuple(f) for f in document["filters"])})
