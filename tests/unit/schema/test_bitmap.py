from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewire.errors import FieldUnknown, PayloadInvalid
from tidewire.schema.avro import change_event_schema
from tidewire.schema.bitmap import decode_bitmap, encode_bitmap
from tidewire.schema.codec import EventSchema
from tidewire.schema.fields import lookup, text
from tidewire.schema.model import ObjectType
from tidewire.schema.standard.access import USER
from tidewire.schema.standard.accounts import ACCOUNT


def recorded_account() -> ObjectType:
    """Account as in the org whose events were recorded: record types, state picklists, fields of its own."""
    fields = []
    for f in ACCOUNT.fields:
        fields.append(f)
        if f.name == "Type":
            fields.append(lookup("RecordTypeId", "Record Type ID", "RecordType", "RecordType"))
        if f.component == "Country":
            fields += [
                replace(text(f.compound + code, code, 10), compound=f.compound, component=code)
                for code in ("StateCode", "CountryCode")
            ]
    fields += [text(f"Field{n}__c", f"Field {n}", 80) for n in range(50)]
    return replace(ACCOUNT, fields=tuple(fields))


RECORDED = EventSchema(json.dumps(change_event_schema(recorded_account())))
PLAIN = EventSchema(json.dumps(change_event_schema(ACCOUNT)))
FIELD_68 = RECORDED.field_names[68]


@pytest.mark.parametrize(
    "names, entries",
    [
        (["LastModifiedDate", "ShippingAddress.Street"], ["0x800000", "6-0x01"]),
        (["LastModifiedDate", FIELD_68], ["0x100000000000800000"]),
        (["ShippingAddress.Latitude", "ShippingAddress.Longitude"], ["6-0x0180"]),
        (["Name", "LastModifiedDate"], ["0x800002"]),
        ([], []),
    ],
)
def test_recorded_bitmaps_are_written_and_read(names: list[str], entries: list[str]) -> None:
    assert encode_bitmap(RECORDED, names) == entries
    assert decode_bitmap(RECORDED, entries) == names


def test_documented_sample_of_two_compounds_is_read_and_written_back() -> None:
    schema = EventSchema(
        json.dumps(
            {
                "type": "record",
                "name": "SampleChangeEvent",
                "fields": [
                    {"name": f"F{n}", "type": ["null", "string"] if n not in (4, 7) else _parts(n)}
                    for n in range(32)
                ],
            }
        )
    )
    entries = ["0x650004E0", "4-0x10", "7-0x06"]
    names = decode_bitmap(schema, entries)
    assert names == ["F5", "F6", "F7", "F10", "F24", "F26", "F29", "F30", "F4.P4", "F7.P1", "F7.P2"]
    assert encode_bitmap(schema, names) == entries


def _parts(n: int) -> list[object]:
    fields = [{"name": f"P{i}", "type": ["null", "string"]} for i in range(8)]
    return ["null", {"type": "record", "name": f"Compound{n}", "fields": fields}]


def test_bitmap_of_nested_fields_leaves_the_parent_bit_clear() -> None:
    assert encode_bitmap(PLAIN, ["BillingAddress.City"]) == ["4-0x02"]


def test_bitmap_groups_come_in_field_order_whatever_the_order_of_names() -> None:
    names = ["ShippingAddress.City", "Phone", "BillingAddress.City", "Name"]
    assert encode_bitmap(PLAIN, names) == ["0x42", "4-0x02", "5-0x02"]


def _all_names(schema: EventSchema) -> list[str]:
    names = []
    for field in schema.field_names:
        parts = schema.component_names(field)
        names += [f"{field}.{part}" for part in parts] if parts else [field]
    return names


@given(st.sets(st.sampled_from(_all_names(RECORDED))))
def test_bitmap_round_trip_gives_the_same_fields(names: set[str]) -> None:
    entries = encode_bitmap(RECORDED, names)
    assert set(decode_bitmap(RECORDED, entries)) == names
    for entry in entries:
        digits = entry.partition("0x")[2]
        assert len(digits) % 2 == 0
        assert digits == digits.upper()
        assert not digits.startswith("00")


def test_lower_case_and_odd_hex_of_other_writers_is_read() -> None:
    assert decode_bitmap(PLAIN, ["0x4c0"]) == decode_bitmap(PLAIN, ["0x04C0"])


@pytest.mark.parametrize("name", ["Nothing", "BillingAddress.Planet", "Phone.City", ""])
def test_bitmap_of_an_unknown_field_is_refused(name: str) -> None:
    with pytest.raises(FieldUnknown):
        encode_bitmap(PLAIN, [name])


@pytest.mark.parametrize(
    "entry",
    ["", "0x", "04C0", "0xZZ", "-0x01", "x-0x01", "99-0x01", "6-0x01", "0x_1", "0x1 ", "4-0x0100"],
)
def test_malformed_bitmap_is_refused(entry: str) -> None:
    with pytest.raises(PayloadInvalid):
        decode_bitmap(PLAIN, [entry])


def test_bitmap_with_bits_past_the_last_field_is_refused() -> None:
    one_past = f"0x{1 << len(PLAIN.field_names):X}"
    with pytest.raises(PayloadInvalid):
        decode_bitmap(PLAIN, [one_past])


@given(st.lists(st.text(max_size=12), max_size=3))
def test_any_text_is_a_bitmap_or_is_refused(entries: list[str]) -> None:
    try:
        names = decode_bitmap(PLAIN, entries)
    except PayloadInvalid:
        return
    assert set(names) <= {*_all_names(PLAIN), *PLAIN.field_names, *_header_names()}


def _header_names() -> set[str]:
    return {f"ChangeEventHeader.{part}" for part in PLAIN.component_names("ChangeEventHeader")}


def test_user_name_parts_are_nested_under_name() -> None:
    schema = EventSchema(json.dumps(change_event_schema(USER)))
    assert encode_bitmap(schema, ["Name.FirstName", "Name.LastName"]) == ["2-0x03"]
