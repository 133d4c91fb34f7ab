from __future__ import annotations

from tidewire.schema.field_types import FieldType
from tidewire.schema.fields import auto_number, detail, location, lookup, multi_picklist, picklist
from tidewire.schema.layout import custom_object
from tidewire.schema.model import EventType, Field, RollUp
from tidewire.schema.type_json import (
    parse_event,
    parse_fields,
    parse_object,
    render_event,
    render_fields,
    render_object,
)

FIELDS = (
    detail("Account__c", "Account", "Account", "Account__r", "Invoices", updateable=True),
    lookup("Who__c", "Who", ("Contact", "Lead"), "Who__r", delete_constraint="Restrict"),
    auto_number("Number__c", "Number", "N-{000}", start_number=7),
    picklist("Status__c", "Status", "Open;Closed", restricted=True, default="Open"),
    multi_picklist("Colours__c", "Colours", "Red;Green"),
    *location("Place__c", "Place"),
    Field(name="Twice__c", label="Twice", type=FieldType.NUMBER, formula="Amount__c * 2"),
    Field(
        name="Total__c",
        label="Total",
        type=FieldType.CURRENCY,
        roll_up=RollUp("Line__c", "Invoice__c", "SUM", "Amount__c", (("Paid__c", "=", True),)),
    ),
)


def test_object_comes_back_from_its_document() -> None:
    obj = custom_object("Invoice__c", "Invoice", "Invoices", "a00", 1001, None, FIELDS)
    assert parse_object(render_object(obj)) == obj


def test_fields_and_events_come_back_from_their_documents() -> None:
    assert parse_fields(render_fields(FIELDS)) == FIELDS
    event = EventType(name="E__e", label="E", label_plural="Es", key_prefix="e00", fields=FIELDS[3:4])
    assert parse_event(render_event(event)) == event


def test_field_of_an_older_document_takes_the_defaults_of_what_it_lacks() -> None:
    older = '[{"name": "A__c", "label": "A", "type": "Text", "picklist": [], "reference_to": []}]'
    assert parse_fields(older) == (Field(name="A__c", label="A", type=FieldType.TEXT),)
