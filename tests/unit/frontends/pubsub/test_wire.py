"""Replay ids, encoded events and field security in Avro."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewire.errors import BodyMalformed
from tidewire.events import Event, Family
from tidewire.frontends.pubsub import wire
from tidewire.matching.channel_values import TopicDescription
from tidewire.schema.avro import change_event_schema
from tidewire.schema.bitmap import decode_bitmap, encode_bitmap
from tidewire.schema.codec import EventSchema
from tidewire.schema.proto import pubsub_pb2 as pb
from tidewire.schema.redaction import redact_fields
from tidewire.schema.standard import STANDARD_OBJECTS

OBJECTS = {obj.name: obj for obj in STANDARD_OBJECTS}
ACCOUNT = EventSchema(json.dumps(change_event_schema(OBJECTS["Account"])))
CONTACT = EventSchema(json.dumps(change_event_schema(OBJECTS["Contact"])))


def change(schema: EventSchema, fields: dict[str, Any], changed: list[str], nulled: list[str]) -> bytes:
    header = {
        "entityName": schema.name.removesuffix("ChangeEvent"),
        "recordIds": ["001TW0000000001AAA"],
        "changeType": "UPDATE",
        "changeOrigin": "",
        "transactionKey": "k" * 36,
        "sequenceNumber": 1,
        "commitTimestamp": 1,
        "commitNumber": 1,
        "commitUser": "005TW0000000001AAA",
        "nulledFields": encode_bitmap(schema, nulled),
        "diffFields": [],
        "changedFields": encode_bitmap(schema, changed),
    }
    return schema.encode({"ChangeEventHeader": header, **fields})


def event(family: Family = Family.CHANGE, payload: bytes = b"\x01", position: int = 7) -> Event:
    return Event(position, "AccountChangeEvent", family, payload, 0, "sid", "uuid-1", 9)


def visible(
    schema: EventSchema, payload: bytes, hidden: set[str]
) -> tuple[dict[str, Any], list[str], list[str]]:
    value = schema.decode(redact_fields(schema, payload, frozenset(hidden)))
    header = value["ChangeEventHeader"]
    return (
        {name: held for name, held in value.items() if held is not None and name != "ChangeEventHeader"},
        decode_bitmap(schema, header["changedFields"]),
        decode_bitmap(schema, header["nulledFields"]),
    )


@given(st.integers(0, 2**63 - 1))
def test_replay_id_round_trip_in_both_lengths(position: int) -> None:
    rendered = wire.render_replay_id(position)
    assert len(rendered) == 10
    assert wire.try_parse_replay_id(rendered) == position
    assert wire.try_parse_replay_id(rendered[:8]) == position


@pytest.mark.parametrize(
    "replay_id", [b"", b"123", b"\0" * 9, b"\0" * 11, b"\0" * 8 + b"\0\1", b"\xff" * 8, b"1234567890"]
)
def test_replay_id_of_no_known_form_is_refused(replay_id: bytes) -> None:
    assert wire.try_parse_replay_id(replay_id) is None


def test_response_of_joined_entries_parses_as_a_whole() -> None:
    form = wire.PubSubForm()
    large = b"x" * 70_000
    entries = [
        form.encode(event(payload=payload, position=position), "/data/AccountChangeEvent", frozenset(), None)
        for position, payload in ((7, b"\x01"), (8, large))
    ]
    response = pb.FetchResponse.FromString(wire.render_fetch_response("rpc", entries, 12, 98))
    assert [e.event.payload for e in response.events] == [b"\x01", large]
    assert [int.from_bytes(e.replay_id[:8], "big") for e in response.events] == [7, 8]
    first = response.events[0].event
    assert (first.id, first.schema_id) == ("uuid-1", "sid")
    assert [(h.key, h.value) for h in first.headers] == [("tidewire-tx-last", b"9")]
    assert response.latest_replay_id == (12).to_bytes(8, "big") + b"\0\0"
    assert (response.rpc_id, response.pending_num_requested) == ("rpc", 98)


@pytest.mark.parametrize("family", [Family.PUSH_TOPIC, Family.GENERIC])
def test_event_without_a_schema_is_not_carried(family: Family) -> None:
    assert wire.PubSubForm().encode(event(family), "/topic/T", frozenset(), None) == b""


def test_event_with_nothing_hidden_keeps_its_stored_bytes() -> None:
    stored = change(ACCOUNT, {"Phone": "1"}, ["Phone"], [])
    assert redact_fields(ACCOUNT, stored, frozenset({"Unrelated__c"})) == stored


def test_hidden_field_loses_value_and_bits() -> None:
    stored = change(
        ACCOUNT,
        {"Phone": "555", "AnnualRevenue": 1e6, "Name": "Acme"},
        ["Phone", "AnnualRevenue", "Name", "Fax"],
        ["Fax"],
    )
    fields, changed, nulled = visible(ACCOUNT, stored, {"Phone", "AnnualRevenue", "Fax"})
    assert fields == {"Name": "Acme"}
    assert changed == ["Name"]
    assert nulled == []


def test_hidden_component_leaves_the_rest_of_its_compound() -> None:
    address = {"Street": "1 Main", "City": "Oslo"}
    stored = change(
        ACCOUNT,
        {"BillingAddress": address, "ShippingAddress": {"City": "Rome"}},
        ["BillingAddress.Street", "BillingAddress.City", "ShippingAddress.City"],
        [],
    )
    fields, changed, _ = visible(ACCOUNT, stored, {"BillingCity"})
    assert fields["BillingAddress"]["Street"] == "1 Main"
    assert fields["BillingAddress"]["City"] is None
    assert fields["ShippingAddress"]["City"] == "Rome"
    assert changed == ["BillingAddress.Street", "ShippingAddress.City"]


def test_hidden_compound_disappears_whole() -> None:
    stored = change(ACCOUNT, {"BillingAddress": {"City": "Oslo"}}, ["BillingAddress.City"], [])
    assert visible(ACCOUNT, stored, {"BillingAddress"}) == ({}, [], [])


def test_compound_whose_only_value_is_hidden_becomes_null() -> None:
    stored = change(ACCOUNT, {"BillingAddress": {"City": "Oslo"}}, ["BillingAddress.City"], [])
    assert visible(ACCOUNT, stored, {"BillingCity"}) == ({}, [], [])


def test_hidden_part_of_a_name_is_found_by_its_own_name() -> None:
    stored = change(
        CONTACT, {"Name": {"FirstName": "Ada", "LastName": "King"}}, ["Name.FirstName", "Name.LastName"], []
    )
    fields, changed, _ = visible(CONTACT, stored, {"FirstName"})
    assert fields["Name"]["FirstName"] is None
    assert fields["Name"]["LastName"] == "King"
    assert changed == ["Name.LastName"]


def test_form_cuts_hidden_fields_before_encoding() -> None:
    stored = change(ACCOUNT, {"Phone": "555-SECRET"}, ["Phone"], [])
    cut = wire.PubSubForm().encode(event(payload=stored), "/data/ChangeEvents", frozenset({"Phone"}), ACCOUNT)
    assert b"555-SECRET" not in cut
    assert b"555-SECRET" in wire.PubSubForm().encode(event(payload=stored), "/c", frozenset(), ACCOUNT)


def test_publish_response_gives_refused_events_no_replay_id() -> None:
    long_key = "5e1f5f0a-2a7c-4c5e-8f63-2f4f5b0f9a11"
    results = [
        wire.render_published("a", 41),
        wire.render_rejected("b", "does not decode"),
        wire.render_published(long_key, 42),
    ]
    response = pb.PublishResponse.FromString(wire.render_publish_response(results, "sid", "rpc"))
    assert [r.correlation_key for r in response.results] == ["a", "b", long_key]
    assert [int.from_bytes(r.replay_id[:8], "big") if r.replay_id else None for r in response.results] == [
        41,
        None,
        42,
    ]
    assert (response.results[1].error.code, response.results[1].error.msg) == (pb.PUBLISH, "does not decode")
    assert not response.results[0].HasField("error")
    assert (response.schema_id, response.rpc_id) == ("sid", "rpc")


def test_topic_info_carries_the_description() -> None:
    info = pb.TopicInfo.FromString(
        wire.render_topic_info(TopicDescription("/event/A__e", True, False, "sid"), "CORE/prod/x", "rpc")
    )
    assert (info.topic_name, info.can_publish, info.can_subscribe) == ("/event/A__e", True, False)
    assert (info.schema_id, info.tenant_guid, info.rpc_id) == ("sid", "CORE/prod/x", "rpc")


def test_message_of_other_bytes_is_refused() -> None:
    with pytest.raises(BodyMalformed, match="FetchRequest"):
        wire.parse_message(pb.FetchRequest, b"\xff\xff\xff")
