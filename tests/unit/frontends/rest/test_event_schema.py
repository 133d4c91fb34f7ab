"""The two forms of an event's schema."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from tidewire.frontends.rest.describe import is_format_valid, render_event_schema
from tidewire.schema.avro import change_event_schema, schema_id
from tidewire.schema.standard.accounts import ACCOUNT

LOW_INK = {
    "type": "record",
    "name": "Low_Ink__e",
    "namespace": "com.sforce.eventbus",
    "fields": [
        {"name": "CreatedDate", "type": "long", "doc": "CreatedDate:DateTime"},
        {"name": "CreatedById", "type": "string", "doc": "CreatedBy:EntityId"},
        {
            "name": "Printer_Model__c",
            "type": ["null", "string"],
            "doc": "Data:Text:00NTW00000001",
            "default": None,
        },
        {"name": "Due__c", "type": ["null", "long"], "doc": "Data:DateTime:00NTW00000002", "default": None},
    ],
}
JSON = orjson.dumps(LOW_INK).decode()


@pytest.mark.parametrize(
    "payload_format, version, is_valid",
    [
        (None, 40, True),
        (None, 59, True),
        ("COMPACT", 42, False),
        ("COMPACT", 43, True),
        ("EXPANDED", 43, True),
        ("compact", 43, False),
        ("", 59, False),
    ],
)
def test_payload_format_exists_from_version_43_on(
    payload_format: str | None, version: int, is_valid: bool
) -> None:
    assert is_format_valid(payload_format, version) is is_valid


@pytest.mark.parametrize("payload_format, version", [(None, 42), ("COMPACT", 43)])
def test_compact_form_is_the_schema_with_its_id(payload_format: str | None, version: int) -> None:
    compact = render_event_schema(JSON, payload_format, version)
    assert compact.pop("uuid") == schema_id(LOW_INK)
    assert compact == LOW_INK


@pytest.mark.parametrize("payload_format", [None, "EXPANDED"])
def test_expanded_form_describes_the_json_of_a_message(payload_format: str | None) -> None:
    expanded: dict[str, Any] = render_event_schema(JSON, payload_format, 43)
    assert (expanded["name"], expanded["type"]) == ("Low_Ink__e", "expanded-record")
    data, channel = expanded["fields"]
    assert channel == {"name": "channel", "type": "string"}
    schema, payload, event = data["type"]["fields"]
    assert schema == {"name": "schema", "type": "string"}
    assert event["type"]["fields"] == [{"name": "replayId", "type": "long"}]
    types = {f["name"]: f["type"] for f in payload["type"]["fields"]}
    assert types == {
        "CreatedDate": "string",
        "CreatedById": "string",
        "Printer_Model__c": ["null", "string"],
        "Due__c": ["null", "string"],
    }
    assert payload["type"]["fields"][0]["doc"] == "CreatedDate:DateTime"


def test_change_event_expands_with_its_header() -> None:
    schema = orjson.dumps(change_event_schema(ACCOUNT)).decode()
    expanded: dict[str, Any] = render_event_schema(schema, None, 59)
    payload = expanded["fields"][0]["type"]["fields"][1]["type"]
    assert payload["fields"][0]["name"] == "ChangeEventHeader"
    types = {f["name"]: f["type"] for f in payload["fields"]}
    assert types["LastModifiedDate"] == ["null", "string"]
    assert types["NumberOfEmployees"] == ["null", "int"]
