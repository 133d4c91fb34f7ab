"""What a user may not see is not in the bytes that the user gets."""

from __future__ import annotations

import uuid

import pytest
import requests

from tests.running import Rest
from tests.wire.pubsub.conftest import Peer, create_accounts
from tidewire.schema.bitmap import decode_bitmap
from tidewire.schema.codec import EventSchema
from tidewire.testing import ServerProcess

ACCOUNTS = "/data/AccountChangeEvent"


def test_hidden_fields_are_null_for_the_reader_and_set_for_others(
    peer: Peer, reader: Peer, rest: Rest
) -> None:
    with peer.latest(ACCOUNTS) as full, reader.latest(ACCOUNTS) as cut:
        create_accounts(rest, 1, Phone="555-HIDDEN", AnnualRevenue=12345.0, Industry="Banking")
        seen_in_full = full.events(1)[0]
        seen_cut = cut.events(1)[0]
    assert peer.decode(seen_in_full)["Phone"] == "555-HIDDEN"
    value = reader.decode(seen_cut)
    assert (value["Phone"], value["AnnualRevenue"], value["Industry"]) == (None, None, "Banking")
    assert b"555-HIDDEN" not in seen_cut.event.payload
    assert seen_cut.replay_id == seen_in_full.replay_id


def test_change_of_a_hidden_field_leaves_no_trace_in_the_bitmaps(
    peer: Peer, reader: Peer, rest: Rest
) -> None:
    (record,) = create_accounts(rest, 1, Phone="1", Fax="2")
    with reader.latest(ACCOUNTS) as feed:
        rest.update("Account", record, {"Phone": None, "Fax": None, "AnnualRevenue": 7})
        event = feed.events(1)[0]
    info = reader.call("GetSchema", reader.pb.SchemaRequest(schema_id=event.event.schema_id))
    schema = EventSchema(info.schema_json)
    header = reader.decode(event)["ChangeEventHeader"]
    assert decode_bitmap(schema, header["nulledFields"]) == ["Fax"]
    changed = set(decode_bitmap(schema, header["changedFields"]))
    assert "Fax" in changed
    assert not changed & {"Phone", "AnnualRevenue"}


@pytest.mark.parametrize("channel", ["/data/OpportunityChangeEvent"])
def test_object_without_access_cannot_be_subscribed_to(reader: Peer, channel: str) -> None:
    with reader.feed() as feed:
        status, code, _ = feed.ask(1, topic_name=channel).refusal()
    assert (status, code) in {
        ("PERMISSION_DENIED", "subscription.topic.cannot.subscribe"),
        ("NOT_FOUND", "topic.meta.permission"),
    }


def test_schema_of_an_event_without_access_is_not_told(
    peer: Peer, reader: Peer, server: ServerProcess
) -> None:
    name = f"Sealed_{uuid.uuid4().hex[:12]}__e"
    document = {"events": {name: {"label": "Sealed", "fields": {"Code__c": {"type": "Text", "length": 9}}}}}
    applied = requests.post(
        f"{server.http}/services/tidewire/v1/apply",
        json=document,
        headers={"Authorization": f"Bearer {peer.token}"},
        timeout=120,
    )
    assert applied.status_code == 200, applied.text
    schema_id = peer.call("GetTopic", peer.pb.TopicRequest(topic_name=f"/event/{name}")).schema_id
    asked = peer.pb.SchemaRequest(schema_id=schema_id)
    assert name in peer.call("GetSchema", asked).schema_json
    assert reader.refused("GetSchema", asked)[:2] == ("NOT_FOUND", "schema.meta.permission")
