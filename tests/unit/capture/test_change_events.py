"""Change events from changes: what is in them, what is null, and which bits are set."""

from __future__ import annotations

import json
from typing import Any

from tidewire.capture.change_events import iter_change_events
from tidewire.events import Change, ChangeType, CommitContext, Family, Value
from tidewire.ids import make_id
from tidewire.schema.avro import change_event_schema
from tidewire.schema.bitmap import decode_bitmap
from tidewire.schema.catalog import Catalog
from tidewire.schema.codec import EventSchema
from tidewire.schema.standard import STANDARD_OBJECTS

CATALOG = Catalog(1, STANDARD_OBJECTS).with_captured({"Account", "Contact"})
SCHEMAS = {
    name + "ChangeEvent": EventSchema(json.dumps(change_event_schema(CATALOG.object(name))))
    for name in ("Account", "Contact")
}
CONTEXT = CommitContext("key-" + "0" * 32, 7, 1_700_000_000_123, make_id("005", 1), "com/x")
RECORD = make_id("001", 1)
STAMPS: dict[str, Value] = {
    "LastModifiedDate": 1_700_000_000_000,
    "LastModifiedById": make_id("005", 1),
    "SystemModstamp": 1_700_000_000_000,
}


def row(entity: str, **values: Value) -> dict[str, Value]:
    empty: dict[str, Value] = {f.name: None for f in CATALOG.object(entity).stored_fields}
    return empty | STAMPS | {"Id": RECORD, "IsDeleted": False} | values


def created(entity: str, **values: Value) -> Change:
    return Change(entity, RECORD, ChangeType.CREATE, None, row(entity, **values), (), 1)


def updated(before: dict[str, Value], after: dict[str, Value], entity: str = "Account") -> Change:
    changed = tuple(f.name for f in CATALOG.object(entity).stored_fields if before[f.name] != after[f.name])
    return Change(entity, RECORD, ChangeType.UPDATE, before, after, changed, 1)


def decode_only(change: Change) -> tuple[EventSchema, dict[str, Any]]:
    (draft,) = iter_change_events([change], CONTEXT, CATALOG, SCHEMAS)
    schema = SCHEMAS[draft.topic]
    assert (draft.family, draft.schema_id, draft.created_ms) == (
        Family.CHANGE,
        schema.schema_id,
        CONTEXT.commit_ms,
    )
    return schema, schema.decode(draft.payload)


def test_create_carries_every_value_nested_compounds_and_the_whole_header() -> None:
    _, event = decode_only(created("Account", Name="Acme", BillingCity="Rome", NumberOfEmployees=5))
    assert event["ChangeEventHeader"] == {
        "entityName": "Account",
        "recordIds": [RECORD],
        "changeType": "CREATE",
        "changeOrigin": "com/x",
        "transactionKey": CONTEXT.transaction_key,
        "sequenceNumber": 1,
        "commitTimestamp": CONTEXT.commit_ms,
        "commitNumber": 7,
        "commitUser": CONTEXT.user_id,
        "nulledFields": [],
        "diffFields": [],
        "changedFields": [],
    }
    assert (event["Name"], event["NumberOfEmployees"], event["Phone"]) == ("Acme", 5, None)
    assert event["BillingAddress"]["City"] == "Rome"
    assert event["BillingAddress"]["Street"] is None
    assert event["ShippingAddress"] is None


def test_update_carries_what_changed_and_marks_what_became_null() -> None:
    before = row("Account", Name="Acme", Phone="1", BillingCity="Rome", BillingStreet="Via 1")
    after = before | {"Phone": None, "BillingCity": None, "BillingStreet": "Via 2", "LastModifiedDate": 5000}
    schema, event = decode_only(updated(before, after))
    header = event["ChangeEventHeader"]
    assert decode_bitmap(schema, header["changedFields"]) == [
        "Phone",
        "LastModifiedDate",
        "BillingAddress.Street",
        "BillingAddress.City",
    ]
    assert decode_bitmap(schema, header["nulledFields"]) == ["Phone", "BillingAddress.City"]
    assert (event["Name"], event["Phone"], event["LastModifiedDate"]) == (None, None, 5000)
    assert event["BillingAddress"]["Street"] == "Via 2"


def test_update_within_the_same_second_still_names_last_modified_date() -> None:
    before = row("Account", Name="A")
    schema, event = decode_only(updated(before, before | {"Name": "B"}))
    assert decode_bitmap(schema, event["ChangeEventHeader"]["changedFields"]) == ["Name", "LastModifiedDate"]
    assert event["LastModifiedDate"] == STAMPS["LastModifiedDate"]


def test_person_name_changes_part_by_part() -> None:
    before = row("Contact", FirstName="A", LastName="B")
    schema, event = decode_only(updated(before, before | {"FirstName": "Z"}, "Contact"))
    assert "Name.FirstName" in decode_bitmap(schema, event["ChangeEventHeader"]["changedFields"])
    assert event["Name"] == {"Salutation": None, "FirstName": "Z", "LastName": None}


def test_delete_carries_no_values() -> None:
    _, event = decode_only(
        Change("Account", RECORD, ChangeType.DELETE, row("Account", Name="A"), None, (), 3)
    )
    header = event.pop("ChangeEventHeader")
    assert (header["changeType"], header["sequenceNumber"], header["changedFields"]) == ("DELETE", 3, [])
    assert set(event.values()) == {None}


def test_save_that_changed_nothing_makes_no_event() -> None:
    before = row("Account", Name="A")
    change = updated(before, before | {"LastModifiedDate": 9000, "SystemModstamp": 9000})
    assert list(iter_change_events([change], CONTEXT, CATALOG, SCHEMAS)) == []


def test_object_that_is_not_selected_makes_no_event_but_counts() -> None:
    other = created("Opportunity", Name="O")._replace(sequence=1)
    own = created("Account", Name="A")._replace(sequence=2)
    (draft,) = iter_change_events([other, own], CONTEXT, CATALOG, SCHEMAS)
    assert SCHEMAS[draft.topic].decode(draft.payload)["ChangeEventHeader"]["sequenceNumber"] == 2


def test_name_of_a_person_is_sent_by_its_parts_only() -> None:
    before = row("Contact", FirstName="Ada", LastName="Byron", Name="Ada Byron")
    after = before | {"LastName": "Lovelace", "Name": "Ada Lovelace"}
    schema, event = decode_only(updated(before, after, "Contact"))
    assert event["Name"] == {"Salutation": None, "FirstName": None, "LastName": "Lovelace"}
    changed = decode_bitmap(schema, event["ChangeEventHeader"]["changedFields"])
    assert changed == ["LastModifiedDate", "Name.LastName"]
