from __future__ import annotations

from dataclasses import replace

import pytest

from tidewire.errors import DefinitionInvalid
from tidewire.schema.field_types import FieldType
from tidewire.schema.fields import checkbox, detail, location, text
from tidewire.schema.layout import FIRST_ADDED_COLUMN, add_fields, custom_object
from tidewire.schema.model import Field, ObjectType
from tidewire.schema.standard.accounts import ACCOUNT, CONTACT


def invoice(*fields: Field, name_field: Field | None = None) -> ObjectType:
    return custom_object("Invoice__c", "Invoice", "Invoices", "a00", 1001, name_field, fields)


def test_custom_object_lays_out_standard_fields_in_event_order() -> None:
    obj = invoice(text("Memo__c", "Memo", 80))
    in_events = [f.name for f in obj.fields if f.in_change_events]
    assert in_events == [
        "OwnerId",
        "Name",
        "CreatedDate",
        "CreatedById",
        "LastModifiedDate",
        "LastModifiedById",
        "Memo__c",
    ]
    assert [f.column for f in obj.fields] == ["id", *(f"c{n}" for n in range(1, 10))]
    assert (obj.table, obj.key_prefix, obj.custom) == ("o1001_0", "a00", True)


def test_custom_object_without_name_field_has_a_text_name() -> None:
    name = invoice().name_field
    assert name is not None
    assert (name.type, name.length, name.label) == (FieldType.TEXT, 80, "Invoice Name")


def test_custom_object_keeps_an_auto_number_name() -> None:
    numbered = Field(
        name="Name",
        label="Invoice Number",
        type=FieldType.AUTO_NUMBER,
        length=30,
        display_format="INV-{0000}",
        createable=False,
        updateable=False,
    )
    name = invoice(name_field=numbered).name_field
    assert name is not None
    assert (name.type, name.display_format) == (FieldType.AUTO_NUMBER, "INV-{0000}")


def test_fields_added_to_a_custom_object_take_the_next_columns() -> None:
    once = invoice(text("A__c", "A", 10))
    twice = add_fields(once, [text("B__c", "B", 10), checkbox("C__c", "C")])
    assert [f.column for f in twice.fields[-3:]] == ["c9", "c10", "c11"]
    assert all(f.custom for f in twice.fields[-3:])


def test_fields_added_to_a_standard_object_start_past_the_reserved_columns() -> None:
    obj = add_fields(ACCOUNT, [text("A__c", "A", 10)])
    again = add_fields(obj, [text("B__c", "B", 10)])
    assert [f.column for f in again.fields[-2:]] == [f"c{FIRST_ADDED_COLUMN}", f"c{FIRST_ADDED_COLUMN + 1}"]


def test_field_that_brings_its_column_keeps_it_and_new_ones_go_past_it() -> None:
    stored = replace(text("Old__c", "Old", 10), column="c230")
    obj = add_fields(ACCOUNT, [stored, text("New__c", "New", 10)])
    assert [f.column for f in obj.fields[-2:]] == ["c230", "c231"]


def test_field_with_a_taken_name_is_refused() -> None:
    with pytest.raises(DefinitionInvalid, match="two fields named phone"):
        add_fields(ACCOUNT, [text("phone", "Phone", 10)])


def test_field_with_a_taken_column_is_refused() -> None:
    with pytest.raises(DefinitionInvalid, match="shares its column"):
        add_fields(ACCOUNT, [replace(text("A__c", "A", 10), column="c1")])


def test_detail_has_a_required_master_and_no_owner() -> None:
    master = detail("Account__c", "Account", "Account", "Account__r", "Invoices")
    obj = invoice(master)
    assert obj.try_field("OwnerId") is None
    assert (master.required, master.updateable, master.delete_constraint) == (True, False, "Cascade")


def test_location_stores_its_parts_and_not_itself() -> None:
    obj = add_fields(ACCOUNT, location("Place__c", "Place"))
    assert [(f.name, f.column) for f in obj.fields[-3:]] == [
        ("Place__c", ""),
        ("Place__Latitude__s", "c201"),
        ("Place__Longitude__s", "c202"),
    ]


def test_formula_leaves_change_events_when_it_joins_an_object() -> None:
    obj = add_fields(ACCOUNT, [Field(name="X__c", label="X", type=FieldType.NUMBER, formula="1 + 1")])
    assert not obj.fields[-1].in_change_events


def test_name_of_a_person_is_among_the_stored_fields() -> None:
    assert CONTACT.by_name["name"] in CONTACT.stored_fields
    assert CONTACT.by_name["mailingaddress"] not in CONTACT.stored_fields
