"""Checking a payload without decoding it takes and refuses just what decoding does."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.schema.test_codec import COMPILED, UPDATE, foreign_value
from tidewire.errors import PayloadInvalid
from tidewire.schema.codec import EventSchema

TYPES: dict[str, object] = {
    "string": "string",
    "bytes": "bytes",
    "boolean": "boolean",
    "int": "int",
    "long": "long",
    "double": "double",
    "float": "float",
    "union": ["null", "string", "long"],
    "enum": {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]},
    "fixed": {"type": "fixed", "name": "Hash", "size": 4},
    "map": {"type": "map", "values": "null"},
    "longs": {"type": "array", "items": "long"},
    "nulls": {"type": "array", "items": "null"},
}
SINGLE = {
    name: EventSchema(json.dumps({"type": "record", "name": "One", "fields": [{"name": "v", "type": type_}]}))
    for name, type_ in TYPES.items()
}


def is_decodable(schema: EventSchema, payload: bytes) -> bool:
    try:
        schema.decode(payload)
    except PayloadInvalid:
        return False
    return True


def is_accepted(schema: EventSchema, payload: bytes) -> bool:
    try:
        schema.check(payload)
    except PayloadInvalid:
        return False
    return True


@settings(max_examples=400)
@given(st.sampled_from(sorted(SINGLE)), st.binary(max_size=24))
@example("string", b"\x04\xff\xfe")  # not UTF-8
@example("string", b"\x06\xed\xa0\x80")  # half of a surrogate pair
@example("string", b"\x01")  # a negative length
@example("string", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01x")  # a length beyond the end
@example("boolean", b"\x02")
@example("long", b"\xff" * 10 + b"\x01")  # eleven bytes
@example("long", b"\xff" * 9 + b"\x03")  # more than 64 bits
@example("long", b"\xff" * 9 + b"\x01")  # the lowest of all
@example("int", b"\x80\x80\x80\x80\x10")  # 2**31
@example("int", b"\xff\xff\xff\xff\x0f")  # the lowest int
@example("int", b"\x80\x80\x80\x80\x80\x00")  # zero in six bytes
@example("double", b"\0" * 7)
@example("union", b"\x01")  # branch -1
@example("union", b"\x06")
@example("enum", b"\x04")
@example("enum", b"\x01")  # symbol -1
@example("fixed", b"abc")
@example("nulls", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01")  # as many items as a long can say
@example("nulls", b"\xc8\x01" * 50)  # block after block of items without bytes
@example("longs", b"\x03\x04\x02\x04\x00")  # a block that tells its size
def test_check_of_single_values_agrees_with_decoding(name: str, payload: bytes) -> None:
    assert is_accepted(SINGLE[name], payload) == is_decodable(SINGLE[name], payload)


FLAT = EventSchema(
    json.dumps(
        {
            "type": "record",
            "name": "Flat",
            "fields": [
                {"name": "at", "type": "long"},
                {"name": "text", "type": ["null", "string"]},
                {"name": "count", "type": ["int", "null", "boolean"]},
                {"name": "size", "type": ["null", "double", "float"]},
                {"name": "last", "type": "string"},
            ],
        }
    )
)
FLAT_VALUES = st.fixed_dictionaries(
    {
        "at": st.integers(-(2**63), 2**63 - 1),
        "text": st.none() | st.text(max_size=70),
        "count": st.none() | st.booleans() | st.integers(-(2**31), 2**31 - 1),
        "size": st.none() | st.floats(allow_nan=False),
        "last": st.text(max_size=70) | st.text(st.characters(max_codepoint=127), max_size=63),
    }
)


@pytest.fixture(scope="module")
def busy() -> EventSchema:
    """A schema that so many payloads were checked by that one look says of most that they fit."""
    schema = EventSchema(FLAT.json)
    payload = FLAT.encode({"at": 1, "last": ""})
    for _ in range(5000):
        schema.check(payload)
    return schema


@settings(max_examples=300)
@given(data=st.data())
def test_busy_schema_checks_as_one_that_was_never_used(busy: EventSchema, data: st.DataObject) -> None:
    payload = FLAT.encode(data.draw(FLAT_VALUES))
    assert is_accepted(busy, payload)
    place = data.draw(st.integers(0, len(payload)))
    damaged = payload[:place] + data.draw(st.binary(max_size=2)) + payload[place + 1 :]
    assert is_accepted(busy, damaged) == is_decodable(FLAT, damaged)


@settings(max_examples=300)
@given(st.data())
def test_check_of_a_damaged_event_agrees_with_decoding(data: st.DataObject) -> None:
    schema = COMPILED["account"]
    payload = bytearray(schema.encode(UPDATE))
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    assert is_accepted(schema, bytes(payload)) == is_decodable(schema, bytes(payload))


@pytest.mark.parametrize("name", ["account", "foreign"])
def test_check_takes_a_whole_event_and_no_part_of_it(name: str) -> None:
    schema = COMPILED[name]
    payload = schema.encode(UPDATE if name == "account" else foreign_value(next=foreign_value()))
    schema.check(payload)
    for size in range(len(payload)):
        assert not is_accepted(schema, payload[:size])
    with pytest.raises(PayloadInvalid, match="longer or shorter"):
        schema.check(payload + b"\0")


def test_check_of_an_event_nested_deeper_than_the_stack_refuses_it() -> None:
    link = {"type": "record", "name": "Link", "fields": [{"name": "next", "type": ["null", "Link"]}]}
    schema = EventSchema(json.dumps(link))
    schema.check(b"\2\2\0")
    with pytest.raises(PayloadInvalid):
        schema.check(b"\2" * 100_000 + b"\0")
