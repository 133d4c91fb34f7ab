"""The eventSchema resource: an event's Avro schema as it is, or expanded to the JSON that CometD clients get.
Pure.

The expanded form is a description in Avro's manner, not Avro: its type is `expanded-record`, and what travels
as text in JSON (dates) is a string in it although the event itself holds a number.
"""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from tidewire.schema.avro import schema_id
from tidewire.schema.field_types import ValueKind, doc_kind

EXPANDED = "EXPANDED"
COMPACT = "COMPACT"
FIRST_VERSION = 40
FIRST_EXPANDED_VERSION = 43

_TIME_KINDS = frozenset({ValueKind.DATETIME, ValueKind.DATE, ValueKind.TIME})


def is_format_valid(payload_format: str | None, version: int) -> bool:
    """Whether the query parameter may have this value; before 43.0 it did not exist."""
    if payload_format is None:
        return True
    return version >= FIRST_EXPANDED_VERSION and payload_format in (EXPANDED, COMPACT)


def render_event_schema(schema_json: str, payload_format: str | None, version: int) -> dict[str, object]:
    """The body of the resource in the form that the version and the parameter ask for."""
    schema: dict[str, object] = orjson.loads(schema_json)
    if payload_format == COMPACT or version < FIRST_EXPANDED_VERSION:
        return schema | {"uuid": schema_id(schema)}
    return _expanded(schema)


def _expanded(schema: Mapping[str, object]) -> dict[str, object]:
    fields = schema["fields"]
    payload = {
        "type": "record",
        "name": "Payload",
        "doc": "",
        "fields": [_as_json_field(f) for f in fields] if isinstance(fields, list) else [],
    }
    event = {"type": "record", "name": "Event", "fields": [{"name": "replayId", "type": "long"}]}
    data = {
        "type": "record",
        "name": "Data",
        "namespace": "",
        "fields": [
            {"name": "schema", "type": "string"},
            {"name": "payload", "type": payload},
            {"name": "event", "type": event},
        ],
    }
    return {
        "name": schema["name"],
        "namespace": schema["namespace"],
        "type": "expanded-record",
        "fields": [{"name": "data", "type": data}, {"name": "channel", "type": "string"}],
    }


def _as_json_field(field: dict[str, object]) -> dict[str, object]:
    if doc_kind(str(field.get("doc", ""))) not in _TIME_KINDS:
        return field
    kind = field["type"]
    if isinstance(kind, list):
        return field | {"type": ["string" if part == "long" else part for part in kind]}
    return field | {"type": "string"}
