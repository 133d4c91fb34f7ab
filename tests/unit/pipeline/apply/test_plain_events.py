"""Plain events decoded by columns equal those of the decoder, whatever their bytes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tests.pipeline.histories import SCHEMAS, BusEvent, History, histories
from tests.unit.pipeline.oracle import ENTITIES
from tidewire.pipeline.apply.decode import Decoded, Decoder
from tidewire.pipeline.apply.plain_events import PlainEvents
from tidewire.pipeline.source.bronze_files import HeaderCache, render_bronze
from tidewire.pipeline.source.bus import BusSettings
from tidewire.pipeline.source.event_source import ROWS

BILL = ENTITIES[-1]
TEXTS = {schema.schema_id: schema.json for versions in SCHEMAS.values() for schema in versions}


def archived(events: list[BusEvent]) -> pa.RecordBatch:
    """The events as bronze has them."""
    rows = [{name: getattr(event, name, None) for name in ROWS.names} for event in events]
    headers = HeaderCache(TEXTS, BusSettings("localhost:1", "/data/ChangeEvents"), None)
    return render_bronze(pa.RecordBatch.from_pylist(rows, schema=ROWS), -1, headers)


def by_columns(batch: pa.RecordBatch, floors: dict[str, int], size: int) -> Decoded:
    decoder = Decoder(TEXTS, floors)
    plain = PlainEvents(decoder)
    for begin in range(0, batch.num_rows, size):
        plain.add(batch.slice(begin, size))
    return decoder.decoded


def one_by_one(batch: pa.RecordBatch, floors: dict[str, int]) -> Decoded:
    decoder = Decoder(TEXTS, floors)
    decoder.add(batch)
    return decoder.decoded


def told(decoded: Decoded) -> tuple[Any, ...]:
    rows = {
        entity: sorted(each.render().to_pylist(), key=lambda row: (row["replay_id"], row["record_id"]))
        for entity, each in decoded.rows.items()
    }
    ends = {entity: (each.first, each.last, len(each)) for entity, each in decoded.rows.items() if len(each)}
    return rows, ends, decoded.schemas, sorted(decoded.notes, key=lambda n: (n.replay_id, n.record_id))


def count_by_columns(decoded: Decoded) -> int:
    return sum(table.num_rows for rows in decoded.rows.values() for table in rows.tables)


@given(history=histories(), size=st.integers(2, 40), floor=st.integers(-1, 10))
def test_events_decoded_by_columns_equal_those_decoded_one_by_one(
    history: History, size: int, floor: int
) -> None:
    if not history.events:
        return
    floors = {"Account": history.events[0].replay_id + floor} if floor >= 0 else {}
    batch = archived(history.events)
    assert told(by_columns(batch, floors, size)) == told(one_by_one(batch, floors))


@given(history=histories(), data=st.data())
def test_damaged_events_decoded_by_columns_equal_those_decoded_one_by_one(
    history: History, data: st.DataObject
) -> None:
    damaged: list[BusEvent] = []
    for event in history.events:
        payload = bytearray(event.payload)
        place = data.draw(st.integers(0, len(payload) - 1))
        match data.draw(st.sampled_from(["keep", "change", "cut", "lengthen", "lose"])):
            case "change":
                payload[place] = data.draw(st.integers(0, 255))
            case "cut":
                del payload[place:]
            case "lengthen":
                payload.insert(place, data.draw(st.integers(0, 255)))
            case "lose":
                del payload[place]
            case _:
                pass
        damaged.append(replace(event, payload=bytes(payload)))
    if damaged:
        batch = archived(damaged)
        assert told(by_columns(batch, {}, 100)) == told(one_by_one(batch, {}))


def test_creates_updates_and_deletes_of_one_record_are_plain() -> None:
    history = History()
    first = history.create("Account", {"Name": "a", "BillingAddress.City": "Bonn", "Phone": None})
    history.update("Account", [first], {"Phone": "1", "BillingAddress.City": None})
    history.commit()
    history.delete("Account", [first])
    history.undelete("Account", first, {"Name": "b"})
    history.commit()
    second = history.create("Account", {"Name": "c"})
    history.update("Account", [first, second], {"Phone": "2"})
    history.create("Account", {"Name": "last"})
    history.commit()
    batch = archived(history.events)
    decoded = by_columns(batch, {}, 100)
    # All but the merged update and the last event of the batch, whose neighbour is not known.
    assert count_by_columns(decoded) == 5
    assert told(decoded) == told(one_by_one(batch, {}))


def test_events_that_share_a_position_are_applied_once_per_record_across_batches() -> None:
    history = History()
    first = history.create("Account", {"Name": "a"})
    history.create("Account", {"Name": "b"})
    history.commit()
    original, other = history.events
    events = [original, original, replace(other, replay_id=original.replay_id), original]
    batch = archived(events)
    for size in (1, 2, 3, 4):
        rows, *_ = told(by_columns(batch, {}, size))
        assert len(rows["Account"]) == 2
        assert rows["Account"][0]["record_id"] == first


def test_wildcard_event_finds_the_schema_of_plain_events_before_it() -> None:
    history = History()
    for number in range(3):
        history.add(BILL, "CREATE", [f"a01TW000000000{number}AAA"], {"Name": "a"}, version=0)
    history.add(BILL, "UPDATE", ["a01*"], {}, version=1)
    history.commit()
    for size in (3, 4):
        decoded = by_columns(archived(history.events), {}, size)
        assert [note.columns for note in decoded.notes] == [("Amount__c",)]
