from __future__ import annotations

import json
from typing import Any

import pytest

from tidewire.events import Event, Family
from tidewire.frontends.bayeux.change_forms import is_hidden
from tidewire.frontends.bayeux.forms import bayeux_form
from tidewire.schema.bitmap import encode_bitmap
from tidewire.schema.codec import EventSchema

NOTHING: frozenset[str] = frozenset()
NOON_MS = 1_794_744_000_000
HEADER_TYPE: dict[str, Any] = {
    "type": "record",
    "name": "ChangeEventHeader",
    "fields": [
        {"name": "entityName", "type": "string"},
        {"name": "recordIds", "type": {"type": "array", "items": "string"}},
        {"name": "changeType", "type": "string"},
        {"name": "changeOrigin", "type": "string"},
        {"name": "transactionKey", "type": "string"},
        {"name": "sequenceNumber", "type": "int"},
        {"name": "commitTimestamp", "type": "long"},
        {"name": "commitNumber", "type": "long"},
        {"name": "commitUser", "type": "string"},
        {"name": "nulledFields", "type": {"type": "array", "items": "string"}},
        {"name": "diffFields", "type": {"type": "array", "items": "string"}},
        {"name": "changedFields", "type": {"type": "array", "items": "string"}},
    ],
}
ADDRESS_TYPE: dict[str, Any] = {
    "type": "record",
    "name": "Address",
    "fields": [{"name": name, "type": ["null", "string"], "default": None} for name in ("Street", "City")],
}


def optional(name: str, avro_type: object, doc: str) -> dict[str, object]:
    return {"name": name, "type": ["null", avro_type], "doc": doc, "default": None}


CHANGE_SCHEMA = EventSchema(
    json.dumps(
        {
            "type": "record",
            "name": "ThingChangeEvent",
            "namespace": "com.sforce.eventbus",
            "fields": [
                {"name": "ChangeEventHeader", "type": HEADER_TYPE, "doc": "Data:ComplexValueType"},
                optional("Name", "string", "Data:Text"),
                optional("BillingAddress", ADDRESS_TYPE, "Data:Address"),
                optional("Due__c", "long", "Data:DateOnly:00N1"),
                optional("Starts__c", "long", "Data:TimeOnly:00N2"),
                optional("Count__c", "long", "Data:Double:00N3"),
                optional("LastModifiedDate", "long", "Data:DateTime"),
            ],
        }
    )
)
PLATFORM_SCHEMA = EventSchema(
    json.dumps(
        {
            "type": "record",
            "name": "Alarm__e",
            "namespace": "com.sforce.eventbus",
            "fields": [
                {"name": "CreatedDate", "type": "long", "doc": "CreatedDate:DateTime"},
                {"name": "CreatedById", "type": "string", "doc": "CreatedBy:EntityId"},
                optional("Text__c", "string", "Data:Text:00N4"),
            ],
        }
    )
)


def make_event(family: Family, payload: bytes, schema_id: str = "") -> Event:
    return Event(77, "topic", family, payload, NOON_MS, schema_id, "uuid-1", 77)


def change(change_type: str, changed: list[str], fields: dict[str, Any]) -> Event:
    header = {
        "entityName": "Thing__c",
        "recordIds": ["a00"],
        "changeType": change_type,
        "changeOrigin": "",
        "transactionKey": "key",
        "sequenceNumber": 1,
        "commitTimestamp": NOON_MS,
        "commitNumber": 5,
        "commitUser": "005",
        "nulledFields": [],
        "diffFields": [],
        "changedFields": encode_bitmap(CHANGE_SCHEMA, changed),
    }
    payload = CHANGE_SCHEMA.encode({"ChangeEventHeader": header, **fields})
    return make_event(Family.CHANGE, payload, CHANGE_SCHEMA.schema_id)


def payload_of(event: Event, version: float = 62.0, hidden: frozenset[str] = NOTHING) -> dict[str, Any]:
    encoded = bayeux_form(version).encode(event, "/data/ThingChangeEvent", hidden, CHANGE_SCHEMA)
    message = json.loads(encoded)
    assert message["channel"] == "/data/ThingChangeEvent"
    assert message["data"]["event"] == {"replayId": 77}
    assert message["data"]["schema"] == CHANGE_SCHEMA.schema_id
    payload: dict[str, Any] = message["data"]["payload"]
    return payload


FULL = {
    "Name": "n",
    "BillingAddress": {"Street": None, "City": "Kiel"},
    "Due__c": NOON_MS - NOON_MS % 86_400_000,
    "Starts__c": 3_600_000,
    "Count__c": 4,
    "LastModifiedDate": NOON_MS,
}


@pytest.mark.parametrize("change_type", ["CREATE", "UNDELETE"])
def test_whole_record_has_its_values_and_nothing_empty(change_type: str) -> None:
    payload = payload_of(change(change_type, [], FULL))
    header = payload.pop("ChangeEventHeader")
    assert payload == {
        "Name": "n",
        "BillingAddress": {"City": "Kiel"},
        "Due__c": "2026-11-15",
        "Starts__c": "01:00:00.000Z",
        "Count__c": 4,
        "LastModifiedDate": "2026-11-15T12:00:00.000Z",
    }
    assert header == {
        "entityName": "Thing__c",
        "recordIds": ["a00"],
        "changeType": change_type,
        "changedFields": [],
        "changeOrigin": "",
        "transactionKey": "key",
        "sequenceNumber": 1,
        "commitTimestamp": NOON_MS,
        "commitNumber": 5,
        "commitUser": "005",
    }


def test_compound_with_nothing_in_it_is_left_out() -> None:
    payload = payload_of(change("CREATE", [], {"BillingAddress": {"Street": None, "City": None}}))
    assert list(payload) == ["ChangeEventHeader"]


def test_update_has_the_changed_fields_and_their_nulls() -> None:
    changed = ["Name", "BillingAddress.City", "BillingAddress.Street", "LastModifiedDate"]
    fields = {"BillingAddress": {"Street": None, "City": "Bonn"}, "LastModifiedDate": NOON_MS}
    payload = payload_of(change("UPDATE", changed, fields))
    header = payload.pop("ChangeEventHeader")
    assert sorted(header["changedFields"]) == sorted(changed)
    assert payload == {
        "Name": None,
        "BillingAddress": {"Street": None, "City": "Bonn"},
        "LastModifiedDate": "2026-11-15T12:00:00.000Z",
    }


@pytest.mark.parametrize("change_type", ["DELETE", "GAP_UPDATE", "GAP_OVERFLOW"])
def test_delete_and_gap_have_a_header_only(change_type: str) -> None:
    assert list(payload_of(change(change_type, [], {}))) == ["ChangeEventHeader"]


def test_changed_fields_came_with_version_47() -> None:
    event = change("UPDATE", ["Name"], {"Name": "n"})
    assert "changedFields" not in payload_of(event, 46.0)["ChangeEventHeader"]
    assert payload_of(event, 47.0)["ChangeEventHeader"]["changedFields"] == ["Name"]


def test_hidden_field_is_neither_shown_nor_named() -> None:
    changed = ["Name", "BillingAddress.City", "Count__c"]
    told = {name: FULL[name] for name in ("Name", "BillingAddress", "Count__c", "LastModifiedDate")}
    event = change("UPDATE", changed, told)
    payload = payload_of(event, hidden=frozenset({"Name", "BillingCity"}))
    assert payload["ChangeEventHeader"]["changedFields"] == ["Count__c"]
    assert set(payload) == {"ChangeEventHeader", "Count__c", "LastModifiedDate"}
    created = payload_of(change("CREATE", [], FULL), hidden=frozenset({"BillingCity", "LastModifiedDate"}))
    assert "BillingAddress" not in created
    assert "LastModifiedDate" not in created


@pytest.mark.parametrize(
    "name, hidden, expected",
    [
        ("BillingAddress.City", "BillingCity", True),
        ("BillingAddress.City", "BillingAddress", True),
        ("BillingAddress.City", "City", False),
        ("Address.City", "City", True),
        ("Name.LastName", "LastName", True),
        ("Name", "LastName", False),
        ("Phone", "Phone", True),
        ("Site__c.Latitude", "Site__Latitude__s", True),
        ("Site__c.Latitude", "Site__Longitude__s", False),
        ("Site__c.Latitude", "Latitude", False),
    ],
)
def test_part_of_a_compound_is_hidden_by_its_own_field_name(name: str, hidden: str, expected: bool) -> None:
    assert is_hidden(name, frozenset({hidden})) is expected


def push(kind: str) -> Event:
    stored = {
        "type": kind,
        "createdDate": "2026-11-15T08:00:00.123Z",
        "sobject": {"Id": "001", "Phone": None},
    }
    return make_event(Family.PUSH_TOPIC, json.dumps(stored).encode())


def test_push_topic_event_has_replay_id_and_type() -> None:
    encoded = bayeux_form(37.0).encode(push("updated"), "/topic/A", NOTHING, None)
    assert json.loads(encoded) == {
        "data": {
            "event": {"createdDate": "2026-11-15T08:00:00.123Z", "replayId": 77, "type": "updated"},
            "sobject": {"Id": "001", "Phone": None},
        },
        "channel": "/topic/A",
    }


def test_push_topic_event_before_37_has_no_replay_id_and_the_old_time_form() -> None:
    message = json.loads(bayeux_form(36.0).encode(push("updated"), "/topic/A", NOTHING, None))
    assert message["data"]["event"] == {"createdDate": "2026-11-15T08:00:00.123+0000", "type": "updated"}


@pytest.mark.parametrize("kind", ["deleted", "undeleted"])
def test_deletes_are_carried_from_version_29_on(kind: str) -> None:
    assert bayeux_form(28.0).encode(push(kind), "/topic/A", NOTHING, None) == b""
    assert (
        json.loads(bayeux_form(29.0).encode(push(kind), "/topic/A", NOTHING, None))["data"]["event"]["type"]
        == kind
    )


def test_push_topic_event_loses_hidden_fields() -> None:
    message = json.loads(bayeux_form(62.0).encode(push("created"), "/topic/A", frozenset({"Phone"}), None))
    assert message["data"]["sobject"] == {"Id": "001"}


def test_push_topic_event_loses_hidden_parts_of_an_address() -> None:
    address = {"city": "Bonn", "postalCode": "53111"}
    stored = json.loads(push("created").payload) | {"sobject": {"Id": "001", "BillingAddress": address}}
    event = make_event(Family.PUSH_TOPIC, json.dumps(stored).encode())
    hidden = frozenset({"BillingPostalCode"})
    message = json.loads(bayeux_form(62.0).encode(event, "/topic/A", hidden, None))
    assert message["data"]["sobject"] == {"Id": "001", "BillingAddress": {"city": "Bonn"}}


def test_push_topic_event_loses_the_hidden_half_of_a_place() -> None:
    place = {"latitude": 50.7, "longitude": 7.1}
    stored = json.loads(push("created").payload) | {"sobject": {"Id": "001", "Site__c": place}}
    event = make_event(Family.PUSH_TOPIC, json.dumps(stored).encode())
    message = json.loads(bayeux_form(62.0).encode(event, "/topic/A", frozenset({"Site__Latitude__s"}), None))
    assert message["data"]["sobject"] == {"Id": "001", "Site__c": {"longitude": 7.1}}


@pytest.mark.parametrize(
    "version, head", [(51.0, {"replayId": 77}), (52.0, {"replayId": 77, "EventUuid": "uuid-1"})]
)
def test_platform_event_shows_its_fields_and_from_52_its_uuid(
    version: float, head: dict[str, object]
) -> None:
    payload = PLATFORM_SCHEMA.encode({"CreatedDate": NOON_MS, "CreatedById": "005", "Text__c": None})
    event = make_event(Family.PLATFORM, payload, PLATFORM_SCHEMA.schema_id)
    message = json.loads(bayeux_form(version).encode(event, "/event/Alarm__e", NOTHING, PLATFORM_SCHEMA))
    assert message["data"] == {
        "schema": PLATFORM_SCHEMA.schema_id,
        "payload": {"CreatedDate": "2026-11-15T12:00:00.000Z", "CreatedById": "005", "Text__c": None},
        "event": head,
    }


def test_versions_that_spell_alike_share_a_form() -> None:
    assert bayeux_form(52.0) is bayeux_form(62.0)
    assert len({bayeux_form(v).name for v in (28.0, 29.0, 37.0, 47.0, 52.0)}) == 5
