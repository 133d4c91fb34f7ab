"""From archived events to rows of history: what each kind of event becomes."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from tests.pipeline.histories import SCHEMAS, History
from tests.unit.pipeline.oracle import ENTITIES
from tidewire.ids import EMPTY_ID
from tidewire.pipeline.apply.decode import Decoded, Decoder, Note
from tidewire.pipeline.lake.tables import BRONZE

BILL = ENTITIES[-1]
TEXTS = {schema.schema_id: schema.json for versions in SCHEMAS.values() for schema in versions}


def bronze(history: History, **header: Any) -> pa.RecordBatch:
    rows = [
        {"replay_id": e.replay_id, "schema_id": e.schema_id, "payload": e.payload, **header}
        for e in history.events
    ]
    return pa.RecordBatch.from_pylist(rows, schema=BRONZE)


def decode(history: History, floors: dict[str, int] | None = None, **header: Any) -> Decoded:
    decoder = Decoder(TEXTS, floors)
    decoder.add(bronze(history, **header))
    return decoder.decoded


def rows_of(decoded: Decoded, entity: str = "Account") -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = decoded.rows[entity].render().to_pylist()
    return rows


def test_create_carries_every_field_present_and_update_only_what_changed() -> None:
    history = History()
    record_id = history.create("Account", {"Name": "a", "BillingAddress.City": "Bonn", "Phone": None})
    history.update("Account", [record_id], {"Phone": "1", "BillingAddress.City": None})
    history.commit()
    create, update = rows_of(decode(history))
    assert json.loads(create["values_json"]) == {"Name": "a", "BillingAddress_City": "Bonn"}
    assert (create["changed"], create["enriched_json"], create["problem"]) == ([], None, None)
    assert json.loads(update["values_json"]) == {"Phone": "1", "BillingAddress_City": None}
    assert update["changed"] == ["Phone", "BillingAddress_City"]
    assert (create["sequence"], update["sequence"]) == (1, 2)
    assert create["transaction_key"] == update["transaction_key"]
    assert create["user_id"] == "005TW0000000001AAA"
    assert create["origin"] == "com/example/test"


def test_merged_event_becomes_a_row_for_each_record() -> None:
    history = History()
    ids = [history.create("Account", {"Name": "a"}) for _ in range(3)]
    history.commit()
    history.update("Account", ids, {"Phone": "1"})
    history.commit()
    rows = rows_of(decode(history))[3:]
    assert [row["record_id"] for row in rows] == ids
    assert {row["replay_id"] for row in rows} == {history.position}
    assert {row["values_json"] for row in rows} == {'{"Phone":"1"}'}


def test_enriched_fields_stand_apart_from_what_changed() -> None:
    history = History()
    record_id = history.new_id("Account")
    history.add("Account", "UPDATE", [record_id], {"Phone": "1", "Site": "here"}, changed=["Phone"])
    history.add("Account", "DELETE", [record_id], {"Site": "here"})
    history.commit()
    update, delete = rows_of(decode(history))
    assert (update["values_json"], update["enriched_json"]) == ('{"Phone":"1"}', '{"Site":"here"}')
    assert (delete["values_json"], delete["enriched_json"]) == ("{}", '{"Site":"here"}')


def test_text_difference_is_marked_as_one_and_noted() -> None:
    history = History()
    record_id = history.new_id("Account")
    changed = ["Description"]
    history.add("Account", "UPDATE", [record_id], {"Description": "--- "}, changed=changed, diff=changed)
    history.commit()
    decoded = decode(history)
    assert json.loads(rows_of(decoded)[0]["values_json"]) == {"Description": {"diff": "--- "}}
    assert [(note.record_id, note.reason) for note in decoded.notes] == [(record_id, "difference")]


@pytest.mark.parametrize(
    "change_type,ids,problem,shown",
    [
        ("GAP_UPDATE", ["001A", "001B"], "gap", ["001A", "001B"]),
        ("GAP_CREATE", ["001A"], "gap", ["001A"]),
        ("GAP_DELETE", ["001A"], None, ["001A"]),
        ("GAP_OVERFLOW", [EMPTY_ID], "overflow", [EMPTY_ID]),
        ("UPDATE", ["001*"], "wildcard_unknown", ["001*"]),
        ("SNAPSHOT", ["001A"], "change_type_unknown", ["001A"]),
    ],
)
def test_event_that_is_no_plain_change_is_a_row_with_its_problem(
    change_type: str, ids: list[str], problem: str | None, shown: list[str]
) -> None:
    history = History()
    history.add("Account", change_type, ids, {})
    history.commit()
    decoded = decode(history)
    assert [(row["record_id"], row["problem"]) for row in rows_of(decoded)] == [(i, problem) for i in shown]
    assert [note.reason for note in decoded.notes] == [problem] * (len(shown) if problem else 0)


def test_wildcard_names_its_columns_by_itself_or_by_what_the_new_schema_changes() -> None:
    old, new = SCHEMAS[BILL][:2]
    history = History()
    history.add("Bill__c", "UPDATE", ["a01*"], {}, changed=["Name"], version=1)
    history.add("Bill__c", "UPDATE", ["a01*"], {}, version=1)
    history.commit()
    decoder = Decoder({old.schema_id: old.json, new.schema_id: new.json}, None, {"Bill__c": old.schema_id})
    batch = bronze(history)
    decoder.add(batch.slice(1))
    assert [note.columns for note in decoder.decoded.notes] == [("Amount__c",)]
    decoder.add(batch.slice(0, 1))
    assert decoder.decoded.notes[1].columns == ("Name",)
    assert [row["changed"] for row in rows_of(decoder.decoded, "Bill__c")] == [["Amount__c"], ["Name"]]


def test_events_of_three_schemas_in_one_batch_are_decoded_each_by_its_own() -> None:
    history = History()
    for version in (0, 1, 0):
        history.create("Invoice__c", {"Name": "i", "Total__c": 1.0}, version=version)
    history.create("Account", {"Name": "a"})
    history.commit()
    decoded = decode(history)
    used = [schema.schema_id for schema in SCHEMAS["Invoice__c"]]
    assert [row["schema_id"] for row in rows_of(decoded, "Invoice__c")] == [used[0], used[1], used[0]]
    positions = [event.replay_id for event in history.events]
    assert decoded.schemas["Invoice__c"] == {used[0]: positions[2], used[1]: positions[1]}


def test_rows_at_or_below_the_floor_are_left_out_but_noted() -> None:
    history = History()
    history.add("Account", "GAP_UPDATE", ["001A"], {})
    history.add("Account", "GAP_UPDATE", ["001B"], {})
    history.commit()
    decoded = decode(history, {"Account": history.events[0].replay_id})
    assert [row["record_id"] for row in rows_of(decoded)] == ["001B"]
    assert [note.record_id for note in decoded.notes] == ["001A", "001B"]


def test_event_that_stands_in_the_log_twice_is_taken_once() -> None:
    history = History()
    history.create("Account", {"Name": "a"})
    history.commit()
    history.events *= 2
    assert len(rows_of(decode(history))) == 1


def test_event_whose_schema_is_missing_keeps_what_its_header_said() -> None:
    history = History()
    history.create("Account", {"Name": "a"})
    history.commit()
    decoder = Decoder({})
    decoder.add(bronze(history, entity="Account", change_type="CREATE", record_ids=["001A"]))
    (row,) = rows_of(decoder.decoded)
    assert (row["record_id"], row["change_type"], row["problem"]) == ("001A", "CREATE", "schema_unknown")
    assert [note.reason for note in decoder.decoded.notes] == ["schema_unknown"]


def test_undecodable_event_may_be_about_any_record_of_its_schemas_object() -> None:
    history = History()
    history.create("Account", {"Name": "a"})
    history.commit()
    history.events[0].payload = b"\xff"
    decoded = decode(history)
    (row,) = rows_of(decoded)
    assert (row["record_id"], row["problem"]) == (EMPTY_ID, "payload_invalid")
    (note,) = decoded.notes
    schema_id = SCHEMAS["Account"][0].schema_id
    assert note == Note("Account", EMPTY_ID, history.position, "payload_invalid", "", schema_id, note.detail)


@pytest.mark.parametrize("entity", ["../../etc", "", "a b", "x" * 81, "1Account"])
def test_entity_that_could_leave_its_directory_is_not_decoded(entity: str) -> None:
    schema = SCHEMAS["Account"][0]
    history = History()
    history.create("Account", {"Name": "a"})
    history.commit()
    event = schema.decode(history.events[0].payload)
    event["ChangeEventHeader"]["entityName"] = entity
    history.events[0].payload = schema.encode(event)
    decoded = decode(history, entity=entity, change_type="CREATE", record_ids=["001A"])
    assert decoded.rows == {}
    assert [(note.entity, note.reason) for note in decoded.notes] == [("", "payload_invalid")]
