"""Headers decoded without their events: by hand or by the schema, with the same result."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pipeline.histories import SCHEMAS
from tidewire.errors import PayloadInvalid
from tidewire.pipeline.source.headers import NO_HEADER, HeaderReader, render_headers
from tidewire.schema.avro import CHANGE_TYPES
from tidewire.schema.codec import EventSchema

ACCOUNT = SCHEMAS["Account"][0]
IDS = st.text("0123456789ABCxyz", min_size=18, max_size=18)
HEADERS = st.fixed_dictionaries(
    {
        "entityName": st.sampled_from(["Account", "Account", "Contact"]),
        "recordIds": st.one_of(
            st.lists(IDS, min_size=1, max_size=1),
            st.lists(IDS, max_size=3),
            st.just(["001*"]),
            st.lists(st.text(), max_size=2),
        ),
        "changeType": st.sampled_from(CHANGE_TYPES),
        "changeOrigin": st.one_of(st.just("com/salesforce/api/rest/60.0"), st.text(max_size=80)),
        "transactionKey": st.one_of(st.uuids().map(str), st.text()),
        "sequenceNumber": st.integers(-(2**31), 2**31 - 1),
        "commitTimestamp": st.integers(-(2**63), 2**63 - 1),
        "commitNumber": st.integers(-(2**63), 2**63 - 1),
        "commitUser": st.one_of(IDS, st.text()),
        "nulledFields": st.just([]),
        "diffFields": st.just([]),
        "changedFields": st.lists(st.just("0x2"), max_size=1),
    }
)


def header_of(values: dict[str, Any]) -> list[Any]:
    names = (
        *("entityName", "changeType", "recordIds", "changeOrigin", "transactionKey"),
        *("sequenceNumber", "commitTimestamp", "commitNumber", "commitUser"),
    )
    return [*(values[name] for name in names), None]


def read(reader: HeaderReader, payload: bytes) -> list[Any]:
    return [column[0].as_py() for column in render_headers([reader.read(payload)])]


@given(st.lists(HEADERS, min_size=1, max_size=8))
def test_header_of_any_shape_is_read_as_it_was_written(written: list[dict[str, Any]]) -> None:
    reader = HeaderReader(ACCOUNT.json)
    for values in written:
        payload = ACCOUNT.encode({"ChangeEventHeader": values, "Name": "x"})
        assert read(reader, payload) == header_of(values)


@given(HEADERS, st.data())
def test_damaged_header_is_rejected_or_read_as_the_schema_says(
    values: dict[str, Any], data: st.DataObject
) -> None:
    payload = bytearray(ACCOUNT.encode({"ChangeEventHeader": values, "Name": "x"}))
    place = data.draw(st.integers(0, len(payload) - 1))
    payload[place] = data.draw(st.integers(0, 255))
    damaged = bytes(payload[: data.draw(st.integers(0, len(payload)))])
    reader, fresh = HeaderReader(ACCOUNT.json), HeaderReader(ACCOUNT.json)
    usual = {**values, "recordIds": ["001000000000001AAA"], "transactionKey": "k" * 36}
    reader.read(ACCOUNT.encode({"ChangeEventHeader": {**usual, "entityName": "Account"}}))
    try:
        slow = read(fresh, damaged)
    except PayloadInvalid:
        with pytest.raises(PayloadInvalid):
            reader.read(damaged)
    else:
        assert read(reader, damaged) == slow


def test_event_without_header_has_none() -> None:
    schema = {"type": "record", "name": "E__e", "fields": [{"name": "CreatedDate", "type": "long"}]}
    assert HeaderReader(json.dumps(schema)).read(b"\x02") == NO_HEADER


def test_header_with_other_fields_is_read_by_its_schema() -> None:
    schema = json.loads(ACCOUNT.json)
    fields = schema["fields"][0]["type"]["fields"]
    fields[0], fields[3] = fields[3], fields[0]
    other = EventSchema(json.dumps(schema))
    values = {
        "entityName": "Account",
        "recordIds": ["001000000000001AAA"],
        "changeType": "UPDATE",
        "changeOrigin": "o",
        "transactionKey": "k" * 36,
        "sequenceNumber": 1,
        "commitTimestamp": 2,
        "commitNumber": 3,
        "commitUser": "005000000000001AAA",
        "nulledFields": [],
        "diffFields": [],
        "changedFields": [],
    }
    reader = HeaderReader(other.json)
    for _ in range(2):
        assert read(reader, other.encode({"ChangeEventHeader": values})) == header_of(values)


def test_headers_of_many_events_become_columns_in_order() -> None:
    assert [len(column) for column in render_headers([])] == [0] * 10
    with_numbers = (*NO_HEADER[:5], b"\x01", b"\xfe\xff\x03", b"", *NO_HEADER[8:])
    columns = render_headers([NO_HEADER, with_numbers])
    assert [columns[place].to_pylist() for place in (5, 6, 7)] == [[None, -1], [None, 32767], [None, None]]
