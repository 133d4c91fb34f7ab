"""Change events written from their bytes, against a plain telling of the same from their decoded fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest
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
from tidewire.events import Event
from tidewire.frontends.bayeux.change_forms import ChangeWriter, is_hidden
from tidewire.schema.bitmap import decode_bitmap
from tidewire.schema.values import render_date, render_datetime, render_time

CHANNEL = '/data/Thing"ChangeEvent%b'
OFTEN = 130  # more than enough for a writer to know the shape of a body
CONVERSIONS: dict[str, Callable[[int], str]] = {
    "Date": render_date,
    "Time": render_time,
    "LastModifiedDate": lambda ms: render_datetime(ms, "Z"),
}


def expected(event: Event, hidden: frozenset[str], *, names_changed: bool) -> Any:
    """The same message by the rules alone."""
    stored = SCHEMA.decode(event.payload)
    header = stored.pop(HEADER)
    bitmaps = {name: decode_bitmap(SCHEMA, header.pop(name)) for name in ("changedFields", "diffFields")}
    del header["nulledFields"]
    changed = [path for path in bitmaps["changedFields"] if not is_hidden(path, hidden)]
    if names_changed:
        header["changedFields"] = changed
    payload: dict[str, Any] = {HEADER: header}
    if (
        header["changeType"] in ("CREATE", "UPDATE", "DELETE", "UNDELETE")
        and header["recordIds"][0][-1:] != "*"
    ):
        for name, value in stored.items():
            if value is not None and name not in hidden:
                shown = seen_parts(name, value, hidden) if isinstance(value, dict) else value
                if shown != {}:
                    payload[name] = CONVERSIONS[name](value) if name in CONVERSIONS else shown
    if header["changeType"] == "UPDATE" and header["recordIds"][0][-1:] != "*":
        for path in changed:
            name, dot, part = path.partition(".")
            if not dot:
                payload.setdefault(name, None)
            else:
                payload.setdefault(name, {}).setdefault(part, None)
            if name in bitmaps["diffFields"]:
                payload[name] = {"diff": payload[name]}
    data = {"schema": event.schema_id, "payload": payload, "event": {"replayId": event.position}}
    return orjson.loads(orjson.dumps({"data": data, "channel": CHANNEL}))


def seen_parts(compound: str, value: dict[str, Any], hidden: frozenset[str]) -> dict[str, Any]:
    return {
        part: held
        for part, held in value.items()
        if held is not None and not is_hidden(f"{compound}.{part}", hidden)
    }


@given(
    header=headers(),
    held=st.sets(st.sampled_from(list(TYPES)), max_size=6),
    told=st.lists(st.sampled_from(PATHS), unique=True, max_size=4),
    hidden=st.frozensets(st.sampled_from(HIDEABLE), max_size=3),
    names_changed=st.booleans(),
    data=st.data(),
)
def test_message_equals_what_the_decoded_event_tells(
    header: dict[str, Any],
    held: set[str],
    told: list[str],
    hidden: frozenset[str],
    names_changed: bool,
    data: st.DataObject,
) -> None:
    writer = ChangeWriter(SCHEMA, CHANNEL, hidden, names_changed=names_changed)
    usual, other = data.draw(bodies(held)), data.draw(bodies(held))
    diff = ["Clob"] if data.draw(st.booleans()) else []
    event = thing_event(header, usual, told, diff)
    wanted = expected(event, hidden, names_changed=names_changed)
    assert orjson.loads(writer.write(event)) == wanted
    # From some time on the writer knows what such events look like; others may then look alike and not be.
    for _ in range(OFTEN):
        writer.write(event)
    assert orjson.loads(writer.write(event)) == wanted
    unlike = thing_event(header, other, told, diff)
    assert orjson.loads(writer.write(unlike)) == expected(unlike, hidden, names_changed=names_changed)


@pytest.mark.parametrize(
    "text",
    ["", "x", "x" * 63, "x" * 64, "x" * 5000, 'a "b"', "a\\b", "\0", "\0\0\2", "a\0\0\0\2b", "é", "a\n"],
)
def test_text_of_any_kind_in_a_body_of_a_known_shape_is_told_as_it_is(text: str) -> None:
    writer = ChangeWriter(SCHEMA, CHANNEL, frozenset(), names_changed=True)
    for _ in range(OFTEN):
        writer.write(thing_event(USUAL_HEADER, {"Text": "usual", "Owner": "o"}, ["Text", "Owner"], []))
    event = thing_event(USUAL_HEADER, {"Text": text, "Owner": "o"}, ["Text", "Owner"], [])
    payload = orjson.loads(writer.write(event))["data"]["payload"]
    assert (payload["Text"], payload["Owner"]) == (text, "o")


def test_events_of_two_known_shapes_in_turn_are_told_as_they_are() -> None:
    channel = "/data/100%b%d%"
    writer = ChangeWriter(SCHEMA, channel, frozenset(), names_changed=True)
    update = USUAL_HEADER | {"changeOrigin": "com/%s;client=%d"}
    create = USUAL_HEADER | {"changeType": "CREATE"}
    for number in range(OFTEN):
        told = f"{number}%b"
        one = thing_event(update, {"Text": told, "Owner": "o"}, ["Text", "Owner"], [])
        two = thing_event(create, {"Text": told, "Double": number / 8}, [], [])
        for event in (one, two):
            wanted = expected(event, frozenset(), names_changed=True)
            assert orjson.loads(writer.write(event)) == {**wanted, "channel": channel}


def test_text_that_looks_like_a_known_shape_is_told_as_it_is() -> None:
    writer = ChangeWriter(SCHEMA, CHANNEL, frozenset(), names_changed=True)
    header = USUAL_HEADER | {"changeType": "CREATE"}
    for _ in range(OFTEN):
        writer.write(thing_event(header, {"Text": "a", "Double": 1.5}, [], []))
    # One null, a double that begins inside the text, and as many nulls behind it as there would be.
    event = thing_event(header, {"Text": "a\0\2xxxxxx"}, [], [])
    payload = orjson.loads(writer.write(event))["data"]["payload"]
    assert {name: value for name, value in payload.items() if name != HEADER} == {"Text": "a\0\2xxxxxx"}


def test_origin_that_looks_like_what_follows_it_is_told_as_it_is() -> None:
    writer = ChangeWriter(SCHEMA, CHANNEL, frozenset(), names_changed=True)
    origin = "H" + "0" * 36 + "\x7f"
    event = thing_event(USUAL_HEADER | {"changeOrigin": origin}, {"Text": "x"}, ["Text"], [])
    assert orjson.loads(writer.write(event)) == expected(event, frozenset(), names_changed=True)
