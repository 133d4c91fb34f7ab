"""Change events of one made-up object with a field of every kind, and what generated tests draw them from."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from tidewire.events import Event, Family
from tidewire.schema.avro import CHANGE_TYPES, header_type
from tidewire.schema.bitmap import encode_bitmap
from tidewire.schema.codec import EventSchema

HEADER = "ChangeEventHeader"
NOON_MS = 1_794_744_000_000
USUAL_HEADER = {
    "entityName": "Thing",
    "recordIds": ["001TW0000000001AAA"],
    "changeType": "UPDATE",
    "changeOrigin": "",
    "transactionKey": "2be2548c-428d-4713-aba8-bd4e1240b7e0",
    "sequenceNumber": 1,
    "commitTimestamp": NOON_MS,
    "commitNumber": 10_001,
    "commitUser": "005TW0000000001AAA",
}


def record(name: str, parts: dict[str, str]) -> dict[str, Any]:
    fields = [{"name": part, "type": ["null", type_], "default": None} for part, type_ in parts.items()]
    return {"type": "record", "name": name, "fields": fields}


ADDRESS = record("Address", {"Street": "string", "City": "string", "Latitude": "double"})
PERSON = record("Switchable_PersonName", {"FirstName": "string", "LastName": "string"})
LOCATION = record("Location", {"Latitude": "double", "Longitude": "double"})
STRINGS = {"type": "array", "items": "string"}
TYPES: dict[str, tuple[list[Any], str]] = {
    "Name": (["null", "string", PERSON], "Data:Switchable_PersonName"),
    "Text": (["null", "string"], "Data:Text"),
    "BillingAddress": (["null", ADDRESS], "Data:Address"),
    "Double": (["null", "double"], "Data:Currency"),
    "Int": (["null", "int"], "Data:Integer"),
    "Flag": (["null", "boolean"], "Data:Boolean"),
    "Date": (["null", "long"], "Data:DateOnly:00N1"),
    "Time": (["null", "long"], "Data:TimeOnly:00N2"),
    "Long": (["null", "long"], "Data:Whatever"),
    "Clob": (["null", "string"], "Data:StringPlusClob"),
    "Address": (["null", "Address"], "Data:Address"),
    "Site__c": (["null", LOCATION], "Data:Location:00N3"),
    "LastModifiedDate": (["null", "long"], "Data:DateTime"),
    "Preferences": (["null", STRINGS], "Data:BitVector"),
    "Owner": (["null", "string"], "ForeignKey:EntityId"),
}
SCHEMA = EventSchema(
    json.dumps(
        {
            "type": "record",
            "name": "ThingChangeEvent",
            "namespace": "com.sforce.eventbus",
            "fields": [
                {"name": HEADER, "type": header_type(), "doc": "Data:ComplexValueType"},
                *(
                    {"name": name, "type": type_, "doc": doc, "default": None}
                    for name, (type_, doc) in TYPES.items()
                ),
            ],
        }
    )
)
PATHS = [
    path for name in TYPES for path in ([f"{name}.{part}" for part in SCHEMA.component_names(name)] or [name])
]
PATHS.append("Name")
HIDEABLE = [
    *TYPES,
    "BillingCity",
    "BillingStreet",
    "BillingLatitude",
    "City",
    "Street",
    "Latitude",
    "LastName",
    "Site__Latitude__s",
    "Site__Longitude__s",
]

texts = st.one_of(
    st.text(st.sampled_from('ab "\\\x00\x02H%{}é€'), max_size=12),
    st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=140),
    st.text(max_size=8),
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "Name": st.one_of(texts, st.fixed_dictionaries({"FirstName": st.none() | texts, "LastName": texts})),
    "Text": texts,
    "BillingAddress": st.fixed_dictionaries(
        {"Street": st.none() | texts, "City": st.none() | texts, "Latitude": st.none() | st.floats()}
    ),
    "Site__c": st.fixed_dictionaries(
        {"Latitude": st.none() | st.floats(), "Longitude": st.none() | st.floats()}
    ),
    "Double": st.floats(),
    "Int": st.integers(-(2**31), 2**31 - 1),
    "Flag": st.booleans(),
    "Date": st.integers(-(2**40), 2**43),
    "Time": st.integers(0, 86_399_999),
    "Long": st.integers(-(2**63), 2**63 - 1),
    "Clob": texts,
    "Preferences": st.lists(texts, max_size=3),
    "LastModifiedDate": st.just(NOON_MS) | st.integers(-(2**46), 2**46),
    "Owner": st.just("005TW0000000001AAA") | texts,
}
VALUES["Address"] = VALUES["BillingAddress"]

ids = st.just("001TW0000000001AAA") | st.sampled_from(["001TW*", "000000000000000AAA", '001"W0000000001AAA'])
keys = st.just("2be2548c-428d-4713-aba8-bd4e1240b7e0") | st.sampled_from(["", "k", "é" * 18, '"' * 36])
origins = st.one_of(
    st.sampled_from(["", "com/salesforce/api/rest/62.0", "client=" + "x" * 90, 'client="%b"\\']),
    st.just("H2be2548c-428d-4713-aba8-bd4e1240b7e0"),
    texts,
)


@st.composite
def headers(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "entityName": draw(st.sampled_from(["Thing", "Thing__c", "T" * 80])),
        "recordIds": draw(st.lists(ids, min_size=1, max_size=2)),
        "changeType": draw(
            st.sampled_from(["CREATE", "UPDATE", "UPDATE", "UPDATE", "DELETE", *CHANGE_TYPES])
        ),
        "changeOrigin": draw(origins),
        "transactionKey": draw(keys),
        "sequenceNumber": draw(st.integers(1, 200_000)),
        "commitTimestamp": draw(st.just(NOON_MS) | st.integers(0, 2**63 - 1)),
        "commitNumber": draw(st.integers(0, 2**40) | st.integers(0, 2**63 - 1)),
        "commitUser": draw(st.just("005TW0000000001AAA") | st.sampled_from(["", "005", "\n" * 18])),
    }


def thing_event(header: dict[str, Any], values: dict[str, Any], told: list[str], diff: list[str]) -> Event:
    """An event of these values, of which an update tells the paths in `told`."""
    changed = told if header["changeType"] == "UPDATE" else []
    # A name is told as a text or by its parts.
    name = values.get("Name")
    changed = [p for p in changed if not (p.startswith("Name.") and isinstance(name, str))]
    if isinstance(name, dict) or any(p.startswith("Name.") for p in changed):
        changed = [p for p in changed if p != "Name"]
    nulled = [p for p in changed if at(values, p) is None]
    bitmaps = {
        "nulledFields": encode_bitmap(SCHEMA, nulled),
        "diffFields": encode_bitmap(SCHEMA, [p for p in diff if p in changed and at(values, p) is not None]),
        "changedFields": encode_bitmap(SCHEMA, changed),
    }
    payload = SCHEMA.encode({HEADER: header | bitmaps, **values})
    return Event(77, "ThingChangeEvent", Family.CHANGE, payload, NOON_MS, SCHEMA.schema_id, "uuid-1", 77)


def at(values: dict[str, Any], path: str) -> Any:
    name, _, part = path.partition(".")
    value = values.get(name)
    return value.get(part) if part and isinstance(value, dict) else value


@st.composite
def bodies(draw: st.DrawFn, held: set[str]) -> dict[str, Any]:
    """Values of these fields."""
    return {name: draw(VALUES[name]) for name in TYPES if name in held}
