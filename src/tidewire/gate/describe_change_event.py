"""Describe of change events as objects, limited to the fields that the caller may see. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from tidewire.gate.describe import render_event_describe, render_event_entry, render_field
from tidewire.names import change_event_name
from tidewire.schema.catalog import Catalog
from tidewire.schema.channels import can_capture
from tidewire.schema.field_types import FieldType
from tidewire.schema.model import EventType, Field, ObjectType

_ID = Field(name="Id", label="Record ID", type=FieldType.ID, is_system=True)
_REPLAY_ID = Field(name="ReplayId", label="Replay ID", type=FieldType.TEXT, length=1000, is_system=True)
_HEADER = Field(name="ChangeEventHeader", label="Change Event Header", type=FieldType.TEXT, is_system=True)
_READ_ONLY = dict.fromkeys(
    ("createable", "updateable", "filterable", "sortable", "groupable", "aggregatable"), False
)
_COMPLEX = {"type": "complexvalue", "soapType": "urn:ChangeEventHeader", "length": 0, "byteLength": 0}
_STANDARD = {"createable": False, "custom": False, "keyPrefix": None}


def try_change_event_entity(catalog: Catalog, name: str) -> str | None:
    """Return the object whose change event has this name in any letter case, or None."""
    wanted = name.lower()
    if not wanted.endswith("changeevent"):
        return None
    return next(
        (o.name for o in catalog.objects if change_event_name(o.name).lower() == wanted and can_capture(o)),
        None,
    )


def render_change_event_entry(obj: ObjectType, version: int) -> dict[str, object]:
    """Render a change event as an entry of the global describe."""
    return render_event_entry(_event_type(obj), version) | _STANDARD


def render_change_event_entries(objects: Iterable[ObjectType], version: int) -> list[dict[str, object]]:
    """Render the change events of all objects that can be captured, selected or not."""
    return [render_change_event_entry(obj, version) for obj in objects if can_capture(obj)]


def render_change_event_describe(
    obj: ObjectType, readable: frozenset[str], version: int
) -> dict[str, object]:
    """Render the describe of a change event; `readable` are the fields of the object that the caller may see."""
    carried = [f for f in obj.fields if f.in_change_events and not f.compound and f.name in readable]
    fields = [
        render_field(f, can_edit=False) | _READ_ONLY
        for f in (_ID, _REPLAY_ID, _HEADER, *(f for f in carried if f.type is not FieldType.ID))
    ]
    for entry in fields:
        if entry["name"] == _HEADER.name:
            entry.update(_COMPLEX)
    body = render_event_describe(_event_type(obj), version)
    return body | _STANDARD | {"fields": fields}


def _event_type(obj: ObjectType) -> EventType:
    label = f"{obj.label} Change Event"
    return EventType(
        name=change_event_name(obj.name), label=label, label_plural=label, key_prefix="", fields=()
    )
