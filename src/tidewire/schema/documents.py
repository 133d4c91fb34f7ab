"""Types as JSON documents, the form in which a store keeps them."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from tidewire.schema.model import EventType, Field, FieldType, ObjectType, PicklistValue, RollUp


def render_object(obj: ObjectType) -> str:
    """The object as JSON text; `parse_object` gives it back."""
    return json.dumps(asdict(obj), default=_enum_value)


def parse_object(text: str) -> ObjectType:
    """An object from its JSON text."""
    document = json.loads(text)
    document["fields"] = tuple(_field(f) for f in document["fields"])
    return ObjectType(**document)


def render_fields(fields: tuple[Field, ...]) -> str:
    """The fields that an org added to a standard object, as JSON text."""
    return json.dumps([asdict(f) for f in fields], default=_enum_value)


def parse_fields(text: str) -> tuple[Field, ...]:
    """Fields from their JSON text."""
    return tuple(_field(f) for f in json.loads(text))


def render_event(event: EventType) -> str:
    """The platform event as JSON text; `parse_event` gives it back."""
    return json.dumps(asdict(event), default=_enum_value)


def parse_event(text: str) -> EventType:
    """A platform event from its JSON text."""
    document = json.loads(text)
    document["fields"] = tuple(_field(f) for f in document["fields"])
    return EventType(**document)


def _enum_value(value: object) -> object:
    if isinstance(value, FieldType):
        return value.value
    raise TypeError(type(value).__name__)


def _field(document: dict[str, Any]) -> Field:
    return Field(
        **document
        | {
            "type": FieldType(document["type"]),
            "picklist": tuple(PicklistValue(**v) for v in document["picklist"]),
            "reference_to": tuple(document["reference_to"]),
            "roll_up": _roll_up(document.get("roll_up")),
        }
    )


def _roll_up(document: dict[str, Any] | None) -> RollUp | None:
    if document is None:
        return None
    return RollUp(**document | {"filters": tuple(tuple(f) for f in document["filters"])})
