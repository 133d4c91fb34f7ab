"""Fields taken out of stored bytes, against the same done to the decoded event."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.thing_events import (
    HEADER,
    HIDEABLE,
    PATHS,
    SCHEMA,
    TYPES,
    USUAL_HEADER,
    bodies,
    headers,
    thing_event,
)
from tidewire.schema.bitmap import decode_bitmap, encode_bitmap
from tidewire.schema.redaction import redact_fields


def is_cut(name: str, part: str, hidden: frozenset[str]) -> bool:
    prefix = name.removesuffix("Address") if name.endswith("Address") else ""
    field = f"Site__{part}__s" if name == "Site__c" else prefix + part
    return name in hidden or (part != "" and field in hidden)


def expected(payload: bytes, hidden: frozenset[str]) -> bytes:
    """The event without the fields, decoded and encoded again."""
    value = SCHEMA.decode(payload)
    for name in TYPES:
        held = value[name]
        if name in hidden:
            value[name] = None
        elif isinstance(held, dict) and any(is_cut(name, part, hidden) for part in held):
            kept = {part: None if is_cut(name, part, hidden) else item for part, item in held.items()}
            value[name] = kept if any(item is not None for item in kept.values()) else None
    for bitmap in ("nulledFields", "diffFields", "changedFields"):
        paths = decode_bitmap(SCHEMA, value[HEADER][bitmap])
        seen = [path for path in paths if not is_cut(*path.partition(".")[::2], hidden)]
        value[HEADER][bitmap] = encode_bitmap(SCHEMA, seen)
    return SCHEMA.encode(value)


@given(
    header=headers(),
    held=st.sets(st.sampled_from(list(TYPES)), max_size=6),
    told=st.lists(st.sampled_from(PATHS), unique=True, max_size=4),
    hidden=st.frozensets(st.sampled_from(HIDEABLE), max_size=3),
    data=st.data(),
)
def test_cut_event_equals_the_decoded_one_without_its_fields(
    header: dict[str, Any], held: set[str], told: list[str], hidden: frozenset[str], data: st.DataObject
) -> None:
    for values in data.draw(bodies(held)), data.draw(bodies(held)):
        payload = thing_event(header, values, told, ["Clob"]).payload
        assert redact_fields(SCHEMA, payload, hidden) == expected(payload, hidden)


def test_hidden_half_of_a_place_is_taken_out() -> None:
    place = {"Latitude": 50.7, "Longitude": 7.1}
    payload = thing_event(
        USUAL_HEADER, {"Site__c": place}, ["Site__c.Latitude", "Site__c.Longitude"], []
    ).payload
    value = SCHEMA.decode(redact_fields(SCHEMA, payload, frozenset({"Site__Latitude__s"})))
    assert value["Site__c"] == {"Latitude": None, "Longitude": 7.1}
    assert decode_bitmap(SCHEMA, value[HEADER]["changedFields"]) == ["Site__c.Longitude"]
