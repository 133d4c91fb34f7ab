"""Records that are mostly null, beside the writer that walks every field."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastavro.schema import parse_schema

from tidewire.errors import PayloadInvalid
from tidewire.schema.avro import change_event_schema
from tidewire.schema.codec import EventSchema
from tidewire.schema.compiler import compile_writer
from tidewire.schema.sparse_writer import SparseWriter
from tidewire.schema.standard import STANDARD_OBJECTS

ACCOUNT = next(o for o in STANDARD_OBJECTS if o.name == "Account")
FIELDS: list[dict[str, Any]] = [
    {"name": "text", "type": ["null", "string"], "default": None},
    {"name": "count", "type": ["null", "int"], "default": None},
    {"name": "time", "type": ["null", "long"], "default": None},
    {"name": "price", "type": ["null", "double"], "default": None},
    {"name": "flag", "type": ["null", "boolean"], "default": None},
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}, "default": "B"},
    {"name": "must", "type": "string"},
    {"name": "parts", "type": ["null", {"type": "array", "items": "string"}], "default": None},
]
SCHEMA = {"type": "record", "name": "Thing", "fields": FIELDS}


def write_fully(value: dict[str, Any]) -> bytes:
    named: dict[str, Any] = {}
    parts: list[bytes] = []
    compile_writer(parse_schema(SCHEMA, named_schemas=named), named)(value, parts.append)
    return b"".join(parts)


@pytest.mark.parametrize(
    "value",
    [
        {"must": ""},
        {"must": "x", "text": "Zürich", "unknown": 1},
        {"must": "x", "text": "y" * 3000, "count": -5, "time": 1 << 40},
        {"flag": False, "price": -0.5, "must": "x", "kind": "A"},
        {"flag": True, "price": 3, "must": "x", "parts": ["a", "b"], "text": None},
    ],
    ids=["least", "text", "numbers", "any order", "all kinds"],
)
def test_bytes_are_those_of_the_writer_that_walks_every_field(value: dict[str, Any]) -> None:
    named: dict[str, Any] = {}
    parsed = parse_schema(SCHEMA, named_schemas=named)
    assert isinstance(parsed, dict)
    assert SparseWriter(parsed, named).write(value) == write_fully(value)


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"must": None},
        {"must": "x", "count": 1 << 31},
        {"must": "x", "time": 1 << 63},
        {"must": "x", "flag": 1},
        {"must": "x", "price": "3"},
        {"must": "x", "text": "\ud800"},
        {"must": "x", "text": 3},
        {"must": "x", "kind": "C"},
    ],
)
def test_values_that_do_not_fit_are_refused(value: dict[str, Any]) -> None:
    with pytest.raises(PayloadInvalid):
        EventSchema(json.dumps(SCHEMA)).encode(value)


def test_change_event_with_few_fields_reads_back_as_those_and_nulls() -> None:
    schema = EventSchema(json.dumps(change_event_schema(ACCOUNT)))
    header = {
        "entityName": "Account",
        "recordIds": ["001000000000001AAA"],
        "changeType": "CREATE",
        "changeOrigin": "",
        "transactionKey": "t",
        "sequenceNumber": 1,
        "commitTimestamp": 1_700_000_000_000,
        "commitNumber": 7,
        "commitUser": "005000000000001AAA",
        "nulledFields": [],
        "diffFields": [],
        "changedFields": [],
    }
    value = {"Name": "Acme", "BillingAddress": {"City": "Oslo"}, "ChangeEventHeader": header}
    decoded = schema.decode(schema.encode(value))
    assert {name: v for name, v in decoded.items() if v is not None} == {
        "ChangeEventHeader": header,
        "Name": "Acme",
        "BillingAddress": {**dict.fromkeys(schema.component_names("BillingAddress")), "City": "Oslo"},
    }
