"""Bronze files written by the source's tasks, and their receipts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.pipeline.apply_lake import apply_all
from tests.pipeline.histories import SCHEMAS, History, read_replicas
from tests.pipeline.history_bus import TOKEN, HistoryBus
from tidewire.clock import ManualClock
from tidewire.pipeline.apply.dead_letters import RetryReport, open_letters, retry
from tidewire.pipeline.lake.control import open_dirty
from tidewire.pipeline.lake.receipts import TaskReceipts, parse_receipts
from tidewire.pipeline.lake.schemas import LakeSchemas, append_schemas, load_schemas
from tidewire.pipeline.lake.spans import Span
from tidewire.pipeline.lake.tables import Lake, append_files, open_table
from tidewire.pipeline.source.archive import merge_schemas
from tidewire.pipeline.source.bronze_files import BronzeTask
from tidewire.pipeline.source.bus import BusSettings
from tidewire.pipeline.source.event_source import ROWS, BronzePartition, ReadSettings, write_partition
from tidewire.pipeline.source.plans import SpanPartition


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(str(tmp_path / "lake"))
    open_table(made, "bronze")
    return made


@pytest.fixture(scope="module")
def history() -> History:
    made = History()
    for i in range(60):
        made.create("Contact" if i % 2 else "Account", {})
        made.commit()
    return made


@pytest.fixture
def settings(history: History) -> Iterator[BusSettings]:
    with HistoryBus(history.events, history.position) as server:
        yield BusSettings(server.endpoint, "/data/ChangeEvents", org_id="00D", token=TOKEN, retry_s=60)


def write(lake: Lake, settings: BusSettings, history: History, floor: int = -1) -> TaskReceipts:
    last = history.events[-1].replay_id
    part = BronzePartition(SpanPartition(Span(0, history.position), last, None), floor)
    batches = write_partition(settings, ReadSettings(bronze=lake.path), part)
    return parse_receipts([row for batch in batches for row in batch.to_pylist()])


def test_task_writes_what_the_span_has_and_names_it(
    lake: Lake, settings: BusSettings, history: History
) -> None:
    receipts = write(lake, settings, history)
    assert receipts.span == Span(0, history.position)
    (file,) = receipts.files
    rows = pq.read_table(os.path.join(lake.table("bronze"), file.path))
    assert rows["replay_id"].to_pylist() == [event.replay_id for event in history.events]
    assert rows["payload"].to_pylist() == [event.payload for event in history.events]
    assert rows["entity"].to_pylist() == ["Account", "Contact"] * 30
    assert (file.rows, file.first, file.last) == (
        60,
        history.events[0].replay_id,
        history.events[-1].replay_id,
    )


def test_schemas_are_reported_until_the_lake_has_them(
    lake: Lake, settings: BusSettings, history: History
) -> None:
    expected = {
        SCHEMAS[entity][0].schema_id: (SCHEMAS[entity][0].json, history.events[place].replay_id)
        for place, entity in enumerate(("Account", "Contact"))
    }
    for _ in range(2):  # a process that fetched them for a batch that failed must report them again
        assert merge_schemas(write(lake, settings, history)) == expected
    append_schemas(lake, expected, 1)
    assert merge_schemas(write(lake, settings, history)) == {}
    assert load_schemas(lake) == {schema_id: text for schema_id, (text, _) in expected.items()}


@pytest.mark.parametrize("known", ["Account", ""])
def test_events_whose_schema_the_server_refuses_are_kept_with_their_headers(
    lake: Lake, history: History, known: str
) -> None:
    with HistoryBus(history.events, history.position) as server:
        server.schemas = {s.schema_id: s.json for s in SCHEMAS.get(known, ())}
        settings = BusSettings(server.endpoint, "/data/ChangeEvents", org_id="00D", token=TOKEN, retry_s=60)
        receipts = write(lake, settings, history)
    assert set(merge_schemas(receipts)) == set(server.schemas)
    rows = pq.read_table(os.path.join(lake.table("bronze"), receipts.files[0].path))
    assert rows["payload"].to_pylist() == [event.payload for event in history.events]
    assert rows["entity"].to_pylist() == ["Account", "Contact"] * 30
    assert rows["header_error"].null_count == 60
    assert rows["record_ids"].to_pylist() == [event.header["recordIds"] for event in history.events]


def test_events_without_schema_make_records_dirty_and_are_applied_once_it_exists(
    lake: Lake, history: History
) -> None:
    with HistoryBus(history.events, history.position) as server:
        server.schemas = {s.schema_id: s.json for s in SCHEMAS["Account"]}
        settings = BusSettings(server.endpoint, "/data/ChangeEvents", org_id="00D", token=TOKEN, retry_s=60)
        receipts = write(lake, settings, history)
    append_schemas(lake, merge_schemas(receipts), 1)
    actions = [file.add_action(0) for file in receipts.files]
    append_files(open_table(lake, "bronze"), actions, history.position, 1)
    apply_all(lake, 7)
    contacts = {record_id for entity, record_id in history.truth.live if entity == "Contact"}
    assert {letter.record_id for letter in open_letters(lake)} == contacts
    assert {entity: set(found) for entity, found in open_dirty(lake).items()} == {"Contact": contacts}
    append_schemas(lake, {s.schema_id: (s.json, 0) for s in SCHEMAS["Contact"]}, 1)
    assert retry(lake, 1, ManualClock()) == RetryReport(len(contacts), 0, 0)
    assert read_replicas(lake) == history.truth


def test_span_that_bronze_has_already_leaves_no_file(
    lake: Lake, settings: BusSettings, history: History
) -> None:
    receipts = write(lake, settings, history, floor=history.position)
    assert receipts.files == ()
    assert receipts.span == Span(0, history.position)
    assert os.listdir(lake.table("bronze")) == ["_delta_log"]


def test_source_that_dies_half_way_leaves_no_file(lake: Lake, history: History) -> None:
    schemas = {s.schema_id: s.json for versions in SCHEMAS.values() for s in versions}

    def dying() -> Iterator[pa.RecordBatch]:
        rows: list[dict[str, Any]] = [
            {"replay_id": e.replay_id, "schema_id": e.schema_id, "payload": e.payload} for e in history.events
        ]
        for _ in range(400):
            yield pa.RecordBatch.from_pylist(rows, schema=ROWS)
        raise ConnectionError("the source died")

    task = BronzeTask(lake.table("bronze"), -1, schemas, BusSettings("x:1", "/t"), None)
    with pytest.raises(ConnectionError):
        list(task.write(dying()))
    assert os.listdir(lake.table("bronze")) == ["_delta_log"]


def test_schemas_of_a_lake_are_read_once_they_are_asked_for(lake: Lake) -> None:
    schemas = LakeSchemas(lake)
    assert "unknown" not in schemas
    append_schemas(lake, {"s1": ("{}", 5)}, 1)
    assert "s1" not in schemas  # one look a task
    assert LakeSchemas(lake)["s1"] == "{}"
