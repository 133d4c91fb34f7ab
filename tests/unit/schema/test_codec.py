from __future__ import annotations

import io
import json
import pickle
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewire.errors import PayloadInvalid
from tidewire.schema.avro import change_event_schema, platform_event_schema
from tidewire.schema.codec import EventSchema
from tidewire.schema.field_types import COMPOUND_TYPES, FieldType
from tidewire.schema.model import EventType, Field
from tidewire.schema.standard.accounts import ACCOUNT, CONTACT

ALL_TYPES = EventType(
    name="Everything__e",
    label="Everything",
    label_plural="Everything",
    key_prefix="e00",
    fields=tuple(
        Field(name=f"{t.name.title()}__c", label=t.name, type=t) for t in FieldType if t not in COMPOUND_TYPES
    ),
)
# What foreign servers may send: every Avro type, unions of many branches, self-reference.
FOREIGN: dict[str, Any] = {
    "type": "record",
    "name": "Foreign",
    "namespace": "org.example",
    "fields": [
        {
            "name": "Name",
            "type": [
                "null",
                "string",
                {
                    "type": "record",
                    "name": "Switchable_PersonName",
                    "fields": [{"name": "LastName", "type": ["null", "string"], "default": None}],
                },
            ],
        },
        {"name": "single", "type": "float"},
        {"name": "raw", "type": "bytes"},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 4}},
        {"name": "again", "type": "Hash"},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {"name": "grid", "type": {"type": "array", "items": {"type": "array", "items": ["string", "null"]}}},
        {"name": "nothing", "type": "null"},
        {"name": "next", "type": ["null", "Foreign"], "default": None},
        {"name": "text", "type": {"type": "string", "avro.java.string": "String"}, "default": 'it\'s "x"\\'},
    ],
}

SCHEMAS = {
    "account": change_event_schema(ACCOUNT),
    "contact": change_event_schema(CONTACT),
    "event": platform_event_schema(ALL_TYPES),
    "foreign": FOREIGN,
}
COMPILED = {name: EventSchema(json.dumps(schema)) for name, schema in SCHEMAS.items()}
PARSED = {name: fastavro.parse_schema(schema) for name, schema in SCHEMAS.items()}

HEADER = {
    "entityName": "Account",
    "recordIds": ["001TW0000000001AAA"],
    "changeType": "UPDATE",
    "changeOrigin": "com/salesforce/api/rest/67.0;client=test",
    "transactionKey": "0001a2b3-c4d5-e6f7-0819-2a3b4c5d6e7f",
    "sequenceNumber": 1,
    "commitTimestamp": 1_700_000_000_000,
    "commitNumber": 1_698_100_138_468_892_700,
    "commitUser": "005TW0000000001AAA",
    "nulledFields": [],
    "diffFields": [],
    "changedFields": ["0x400002", "4-0x02"],
}
UPDATE = {
    "ChangeEventHeader": HEADER,
    "Name": "Café ☕",
    "BillingAddress": {"City": "Łódź", "Latitude": 51.77},
    "AnnualRevenue": 1e6,
    "NumberOfEmployees": -5,
    "LastModifiedDate": 1_700_000_000_000,
}


def oracle_encode(name: str, value: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, PARSED[name], value)
    return buffer.getvalue()


def oracle_decode(name: str, payload: bytes) -> Any:
    return fastavro.schemaless_reader(io.BytesIO(payload), PARSED[name], None)


def values_of(schema: Any, named: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that fit a schema."""
    if isinstance(schema, list):
        return st.one_of([values_of(branch, named) for branch in schema])
    if isinstance(schema, dict) and "name" in schema:
        named[schema["name"]] = schema
    if isinstance(schema, str) and schema in named:
        schema = named[schema]
    kind = schema["type"] if isinstance(schema, dict) else schema
    primitives: dict[str, st.SearchStrategy[Any]] = {
        "null": st.none(),
        "boolean": st.booleans(),
        "int": st.integers(-(1 << 31), (1 << 31) - 1),
        "long": st.one_of(
            st.integers(-(1 << 63), (1 << 63) - 1), st.integers(1_500_000_000_000, 2_500_000_000_000)
        ),
        "double": st.floats(allow_nan=False),
        "string": st.text(max_size=20),
    }
    if kind in primitives:
        return primitives[kind]
    if kind == "enum":
        return st.sampled_from(schema["symbols"])
    if kind == "array":
        return st.lists(values_of(schema["items"], named), max_size=3)
    assert kind == "record"
    return st.fixed_dictionaries({f["name"]: values_of(f["type"], named) for f in schema["fields"]})


ACCOUNT_VALUES = values_of(SCHEMAS["account"], {})
EVENT_VALUES = values_of(SCHEMAS["event"], {})


def set_fields(value: dict[str, Any]) -> dict[str, Any]:
    return {name: field for name, field in value.items() if field is not None}


@given(ACCOUNT_VALUES)
def test_change_event_bytes_are_those_of_fastavro_and_decode_back(value: dict[str, Any]) -> None:
    payload = COMPILED["account"].encode(value)
    assert payload == oracle_encode("account", value)
    assert COMPILED["account"].decode(payload) == value
    assert COMPILED["account"].decode_non_null(payload) == set_fields(value)


@given(EVENT_VALUES)
def test_platform_event_bytes_are_those_of_fastavro_and_decode_back(value: dict[str, Any]) -> None:
    payload = COMPILED["event"].encode(value)
    assert payload == oracle_encode("event", value)
    assert COMPILED["event"].decode(payload) == value
    assert COMPILED["event"].decode_non_null(payload) == set_fields(value)


@settings(max_examples=300)
@given(st.data())
def test_damaged_event_has_the_same_fields_set_or_is_refused_either_way(data: st.DataObject) -> None:
    payload = bytearray(COMPILED["account"].encode(UPDATE))
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(payload[: data.draw(st.integers(0, len(payload)))]) + data.draw(st.binary(max_size=2))
    try:
        value = COMPILED["account"].decode(damaged)
    except PayloadInvalid:
        with pytest.raises(PayloadInvalid):
            COMPILED["account"].decode_non_null(damaged)
    else:
        assert repr(COMPILED["account"].decode_non_null(damaged)) == repr(set_fields(value))


@settings(max_examples=300)
@given(st.sampled_from(sorted(COMPILED)), st.binary(max_size=200))
def test_random_bytes_decode_or_are_refused(name: str, payload: bytes) -> None:
    try:
        value = COMPILED[name].decode(payload)
    except PayloadInvalid:
        return
    # Only the form of numbers and blocks may differ from what we would write, never the value.
    assert COMPILED[name].decode(COMPILED[name].encode(value)) == value or "nan" in repr(value)


@settings(max_examples=300)
@given(st.data())
def test_damaged_event_decodes_as_fastavro_does_or_is_refused(data: st.DataObject) -> None:
    payload = bytearray(COMPILED["account"].encode(UPDATE))
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    try:
        value = COMPILED["account"].decode(bytes(payload))
    except PayloadInvalid:
        return
    assert repr(value) == repr(oracle_decode("account", bytes(payload)))


def test_every_proper_prefix_of_an_event_is_refused() -> None:
    payload = COMPILED["account"].encode(UPDATE)
    for size in range(len(payload)):
        with pytest.raises(PayloadInvalid):
            COMPILED["account"].decode(payload[:size])


def test_trailing_bytes_are_refused() -> None:
    with pytest.raises(PayloadInvalid, match="longer or shorter"):
        COMPILED["account"].decode(COMPILED["account"].encode(UPDATE) + b"\0")


def test_absent_fields_are_written_as_null() -> None:
    decoded = COMPILED["account"].decode(COMPILED["account"].encode(UPDATE))
    assert decoded["ChangeEventHeader"] == HEADER
    assert decoded["Phone"] is None
    assert decoded["BillingAddress"]["Street"] is None
    assert set(decoded) == set(COMPILED["account"].field_names)


def foreign_value(**changes: Any) -> dict[str, Any]:
    value = {
        "Name": {"LastName": "Lovelace"},
        "single": 0.5,
        "raw": b"\0\xff",
        "hash": b"abcd",
        "again": b"efgh",
        "counts": {"a": 1, "b": -1},
        "grid": [[], ["x", None], [""]],
        "nothing": None,
        "next": None,
        "text": "t",
    }
    return value | changes


@pytest.mark.parametrize(
    "changes",
    [{}, {"Name": "Lovelace"}, {"Name": None}, {"counts": {}, "grid": []}, {"next": foreign_value()}],
)
def test_foreign_schema_with_every_avro_type_agrees_with_fastavro(changes: dict[str, Any]) -> None:
    value = foreign_value(**changes)
    payload = COMPILED["foreign"].encode(value)
    assert payload == oracle_encode("foreign", value)
    assert COMPILED["foreign"].decode(payload) == value


def test_absent_field_takes_its_default() -> None:
    value = foreign_value()
    del value["text"]
    assert COMPILED["foreign"].decode(COMPILED["foreign"].encode(value))["text"] == 'it\'s "x"\\'


def strings_schema(items: object = "string") -> EventSchema:
    field = {"name": "list", "type": {"type": "array", "items": items}}
    return EventSchema(json.dumps({"type": "record", "name": "Lists", "fields": [field]}))


def test_array_in_several_blocks_with_sizes_is_read() -> None:
    # Two items in a block that gives its size, then one in a plain block.
    payload = b"\x03\x08" + b"\x02a\x02b" + b"\x02" + b"\x02c" + b"\x00"
    assert strings_schema().decode(payload) == {"list": ["a", "b", "c"]}


@pytest.mark.parametrize(
    "payload",
    [
        b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # as many items as a long can say
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # the same, negative
        b"\xc8\x01" * 50,  # block after block of items without bytes
        b"\x02" * 7,  # blocks that never end
    ],
)
def test_array_of_more_empty_items_than_bytes_is_refused(payload: bytes) -> None:
    with pytest.raises(PayloadInvalid):
        strings_schema("null").decode(payload)


@pytest.mark.parametrize(
    "type_, payload",
    [
        ("string", b"\x04\xff\xfe"),  # not UTF-8
        ("string", b"\x06\xed\xa0\x80"),  # half of a surrogate pair
        ("string", b"\x01"),  # a negative length
        ("string", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01x"),  # a length beyond the end
        ("bytes", b"\x09ab"),
        ("boolean", b"\x02"),
        ("long", b"\xff" * 10 + b"\x01"),  # eleven bytes
        ("long", b"\xff" * 9 + b"\x03"),  # more than 64 bits
        ("int", b"\x80\x80\x80\x80\x10"),  # 2**31
        ("double", b"\0" * 7),
        (["null", "string"], b"\x04"),
        (["null", "string"], b"\x01"),  # branch -1
        ({"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}, b"\x04"),
        ({"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}, b"\x01"),  # symbol -1
        ({"type": "fixed", "name": "Hash", "size": 4}, b"abc"),
        ({"type": "map", "values": "null"}, b"\x02\x02"),
    ],
)
def test_malformed_bytes_are_refused(type_: object, payload: bytes) -> None:
    schema = EventSchema(
        json.dumps({"type": "record", "name": "One", "fields": [{"name": "v", "type": type_}]})
    )
    with pytest.raises(PayloadInvalid):
        schema.decode(payload)


@pytest.mark.parametrize(
    "changes",
    [
        {"Name": 5},
        {"Name": "\ud800"},
        {"AnnualRevenue": "1"},
        {"AnnualRevenue": 10**400},
        {"NumberOfEmployees": 1 << 31},
        {"NumberOfEmployees": 1.0},
        {"LastModifiedDate": 1 << 63},
        {"BillingAddress": "Rome"},
        {"ChangeEventHeader": None},
        {"ChangeEventHeader": HEADER | {"changeType": "MERGE"}},
        {"ChangeEventHeader": HEADER | {"recordIds": "001TW0000000001AAA"}},
        {"ChangeEventHeader": HEADER | {"commitUser": None}},
    ],
)
def test_value_that_does_not_fit_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(PayloadInvalid):
        COMPILED["account"].encode(UPDATE | changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"Name": 5},
        {"hash": b"abc"},
        {"nothing": 1},
        {"single": None},
        {"raw": "text"},
        {"counts": {1: 1}},
        {"grid": [5]},
    ],
)
def test_value_that_does_not_fit_a_foreign_schema_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(PayloadInvalid):
        COMPILED["foreign"].encode(foreign_value(**changes))


def test_event_nested_deeper_than_the_stack_is_refused() -> None:
    schema = EventSchema(
        json.dumps({"type": "record", "name": "Link", "fields": [{"name": "next", "type": ["null", "Link"]}]})
    )
    assert schema.decode(b"\2\2\0") == {"next": {"next": {"next": None}}}
    with pytest.raises(PayloadInvalid):
        schema.decode(b"\2" * 100_000 + b"\0")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "5",
        '"string"',
        '{"type": "record"}',
        '{"type": "record", "name": "R"}',
        '{"type": "record", "name": "R", "fields": [{"name": "f", "type": "Unknown"}]}',
        '{"type": "array", "items": "string"}',
        '["null", "string"]',
    ],
)
def test_text_that_is_no_record_schema_is_refused(text: str) -> None:
    with pytest.raises(PayloadInvalid):
        EventSchema(text)


def test_schema_nested_beyond_what_python_compiles_is_refused() -> None:
    deep: Any = "string"
    for _ in range(60):
        deep = {"type": "array", "items": deep}
    with pytest.raises(PayloadInvalid):
        strings_schema(deep)


def test_words_of_a_schema_never_run_as_code(capsys: pytest.CaptureFixture[str]) -> None:
    word = "x'); print('ran'); ('"
    fields = [
        {"name": "a", "type": "string", "default": word},
        {"name": "b", "type": ["null", "string"], "doc": word, word: word},
    ]
    schema = EventSchema(json.dumps({"type": "record", "name": "R", "fields": fields}))
    assert schema.decode(schema.encode({}))["a"] == word
    assert capsys.readouterr().out == ""


def test_hostile_field_name_is_refused_or_stays_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    word = "x'); print('ran'); ('"
    text = json.dumps({"type": "record", "name": "R", "fields": [{"name": word, "type": "string"}]})
    try:
        schema = EventSchema(text)
    except PayloadInvalid:
        return
    assert schema.decode(schema.encode({word: "v"})) == {word: "v"}
    assert capsys.readouterr().out == ""


def test_schema_tells_its_name_fields_and_components() -> None:
    schema = COMPILED["account"]
    assert schema.name == "AccountChangeEvent"
    assert schema.field_names[:3] == ("ChangeEventHeader", "Name", "Type")
    assert schema.component_names("ShippingAddress")[:2] == ("Street", "City")
    assert schema.component_names("ChangeEventHeader")[2] == "changeType"
    assert schema.component_names("Phone") == ()
    assert json.loads(schema.json) == SCHEMAS["account"]
    assert COMPILED["foreign"].component_names("Name") == ("LastName",)


def test_schema_travels_to_another_process_whole() -> None:
    copy = pickle.loads(pickle.dumps(COMPILED["account"]))  # noqa: S301
    assert copy.schema_id == COMPILED["account"].schema_id
    assert copy.encode(UPDATE) == COMPILED["account"].encode(UPDATE)
