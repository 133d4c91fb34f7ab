"""The commit rule, the lease, bronze files and columns."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pipeline.histories import SCHEMAS, History, write_bronze
from tidewire.clock import ManualClock
from tidewire.errors import ConfigInvalid, StoreClosed, StoreLocked, WriteConflict
from tidewire.pipeline.lake.columns import Kind, parse_column, parse_kinds, render_column, try_convert
from tidewire.pipeline.lake.files import read_rows
from tidewire.pipeline.lake.lease import hold_lease
from tidewire.pipeline.lake.receipts import parse_receipts
from tidewire.pipeline.lake.schemas import load_schemas
from tidewire.pipeline.lake.spans import Span
from tidewire.pipeline.lake.tables import (
    CHECKPOINT_COMMITS,
    Lake,
    append_files,
    append_rows,
    load_shared_table,
    open_table,
)
from tidewire.pipeline.lake.tables import SCHEMAS as SCHEMA_ROWS
from tidewire.pipeline.source.bronze_files import BronzeTask
from tidewire.pipeline.source.bus import BusSettings
from tidewire.pipeline.source.event_source import ROWS
from tidewire.pipeline.spark import check_java
from tidewire.pipeline.status.lake_status import read_status

ROW = pa.Table.from_pylist([{"schema_id": "a", "schema_json": "{}"}], schema=SCHEMA_ROWS)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "lake"))


def test_second_writer_of_the_same_state_is_rejected(lake: Lake) -> None:
    first, second = open_table(lake, "t", SCHEMA_ROWS), open_table(lake, "t", SCHEMA_ROWS)
    append_rows(first, ROW, 10, epoch=1)
    with pytest.raises(WriteConflict):
        append_rows(second, ROW, 10, epoch=2)
    table = open_table(lake, "t", SCHEMA_ROWS)
    assert (table.committed, table.delta.to_pyarrow_table().num_rows) == (10, 1)


def test_commit_without_rows_moves_the_position(lake: Lake) -> None:
    append_rows(open_table(lake, "t", SCHEMA_ROWS), SCHEMA_ROWS.empty_table(), 7, epoch=1)
    assert open_table(lake, "t", SCHEMA_ROWS).committed == 7


def test_table_that_files_were_appended_to_is_at_the_version_of_that_commit(lake: Lake) -> None:
    table = open_table(lake, "t", SCHEMA_ROWS)
    append_files(table, [], 7, epoch=1)
    assert table.delta.version() == open_table(lake, "t", SCHEMA_ROWS).delta.version() == 1


def test_peeked_table_is_shared_until_the_next_commit(lake: Lake) -> None:
    assert load_shared_table(lake, "t") is None
    append_rows(open_table(lake, "t", SCHEMA_ROWS), ROW, 10, epoch=1)
    first = load_shared_table(lake, "t")
    assert first is not None
    assert (first.committed, load_shared_table(lake, "t")) == (10, first)
    append_rows(open_table(lake, "t", SCHEMA_ROWS), ROW, 11, epoch=2)
    second = load_shared_table(lake, "t")
    assert second is not None
    assert (first.committed, first.delta.version()) == (10, 1)
    assert (second.committed, second.epoch, second.delta.version()) == (11, 2, 2)


def test_peeked_table_that_was_made_anew_in_its_place_is_opened_again(lake: Lake) -> None:
    append_rows(open_table(lake, "t", SCHEMA_ROWS), ROW, 10, epoch=1)
    assert load_shared_table(lake, "t") is not None
    shutil.rmtree(lake.table("t"))
    assert load_shared_table(lake, "t") is None
    append_rows(open_table(lake, "t", SCHEMA_ROWS), ROW, 7, epoch=1)
    found = load_shared_table(lake, "t")
    assert found is not None
    assert (found.committed, found.delta.version()) == (7, 1)


def test_table_has_a_checkpoint_after_a_few_commits(lake: Lake) -> None:
    for position in range(1, CHECKPOINT_COMMITS + 1):
        append_rows(open_table(lake, "t", SCHEMA_ROWS), ROW, position, epoch=1)
    assert [*Path(lake.table("t"), "_delta_log").glob("*.checkpoint.parquet")] != []
    assert open_table(lake, "t", SCHEMA_ROWS).committed == CHECKPOINT_COMMITS


def test_schemas_of_a_version_that_does_not_show_yet_are_rejected(lake: Lake) -> None:
    with pytest.raises(StoreClosed, match="version 1 "):
        load_schemas(lake, 1)
    append_rows(open_table(lake, "schemas", SCHEMA_ROWS), ROW, None, epoch=1, writer="archive")
    assert load_schemas(lake, 1) == load_schemas(lake) == {"a": "{}"}


def test_lease_is_rejected_while_held_and_its_epoch_rises(lake: Lake) -> None:
    with hold_lease(lake.path) as first, pytest.raises(StoreLocked), hold_lease(lake.path):
        pass
    with hold_lease(lake.path) as second:
        assert second == first + 1


def source_batch(history: History, span: Span) -> pa.RecordBatch:
    rows: list[dict[str, object]] = [
        {
            "replay_id": event.replay_id,
            "event_id": "e",
            "schema_id": event.schema_id,
            "payload": event.payload,
            "transaction_last": event.transaction_last,
            "topic": "/t",
        }
        for event in history.events
    ]
    rows.append({"replay_id": span.through, "transaction_last": span.after, "topic": "/t"})
    return pa.RecordBatch.from_pylist(rows, schema=ROWS)


def test_bronze_task_writes_headers_and_only_rows_above_the_floor(tmp_path: Path) -> None:
    history = History()
    record_id = history.create("Account", {"Name": "a"})
    history.commit()
    history.update("Account", [record_id], {"Name": "b"})
    history.commit()
    history.delete("Account", [record_id])
    history.commit()
    history.events[2].payload = b"\xff"
    schemas = {s.schema_id: s.json for s in SCHEMAS["Account"]}
    task = BronzeTask(str(tmp_path), history.events[0].replay_id, schemas, BusSettings("x:1", "/t"), None)
    span = Span(0, history.position)
    receipts = [row for batch in task.write([source_batch(history, span)]) for row in batch.to_pylist()]
    parsed = parse_receipts(receipts)
    assert parsed.span == span
    (file,) = parsed.files
    assert (file.rows, file.first, file.last) == (2, history.events[1].replay_id, history.events[2].replay_id)
    rows = pq.read_table(tmp_path / file.path).to_pylist()
    assert (rows[0]["change_type"], rows[0]["record_ids"], rows[0]["entity"]) == (
        "UPDATE",
        [record_id],
        "Account",
    )
    assert rows[1]["entity"] is None
    assert "does not decode" in rows[1]["header_error"]
    assert rows[1]["payload"] == b"\xff"


def test_status_of_an_empty_lake_is_all_zero(lake: Lake) -> None:
    status = read_status(lake)
    assert (status.archived_through, status.applied_through, status.archived, status.waiting) == (0, 0, 0, 0)


def test_status_counts_what_waits_to_be_applied(lake: Lake) -> None:
    history = History()
    for _ in range(3):
        history.create("Contact", {"Name.LastName": "Lee"})
        history.commit()
    write_bronze(lake, history.events, history.position)
    bronze = open_table(lake, "bronze")
    first_ms = min(read_rows(bronze, ["commit_ms"])["commit_ms"].to_pylist())
    status = read_status(lake, ManualClock(first_ms + 5_000))
    assert (status.archived, status.waiting, status.archived_through) == (3, 3, history.position)
    assert (status.lag_ms, status.open_transaction_ms) == (5_000, 0)


def test_columns_of_compound_fields_are_flat_and_dates_are_typed() -> None:
    kinds = parse_kinds(SCHEMAS["Account"][0].json)
    assert kinds["BillingAddress_City"] is Kind.TEXT
    assert kinds["ShippingAddress_Latitude"] is Kind.DOUBLE
    assert kinds["LastModifiedDate"] is Kind.TIMESTAMP
    assert kinds["NumberOfEmployees"] is Kind.WHOLE
    assert "ChangeEventHeader" not in kinds
    assert parse_kinds(SCHEMAS["Invoice__c"][1].json)["Due__c"] is Kind.DATE
    assert parse_kinds(SCHEMAS["Contact"][0].json)["Name_LastName"] is Kind.TEXT


def test_name_that_may_be_text_or_a_record_has_columns_for_both() -> None:
    name = {"name": "N", "type": "record", "fields": [{"name": "LastName", "type": ["null", "string"]}]}
    schema = {"type": "record", "name": "E", "fields": [{"name": "Name", "type": ["null", "string", name]}]}
    assert list(parse_kinds(json.dumps(schema))) == ["Name", "Name_LastName"]


@given(st.lists(st.one_of(st.none(), st.integers(-(10**13), 10**13))))
def test_timestamps_round_trip_through_their_column(values: list[int | None]) -> None:
    column = pa.chunked_array([render_column(values, Kind.TIMESTAMP)])
    assert parse_column(column, Kind.TIMESTAMP) == values


@pytest.mark.parametrize(
    "value,kind,expected",
    [
        ("12.5", Kind.DOUBLE, 12.5),
        ("heavy", Kind.DOUBLE, None),
        ("nan", Kind.DOUBLE, None),
        (3.0, Kind.WHOLE, 3),
        (3.5, Kind.WHOLE, None),
        (3.0, Kind.TEXT, "3"),
        (True, Kind.TEXT, "true"),
        ("True", Kind.TRUTH, True),
        (1, Kind.TRUTH, None),
        (True, Kind.DOUBLE, None),
    ],
)
def test_value_converts_only_to_an_equal_one(
    value: str | float | bool, kind: Kind, expected: str | float | bool | None
) -> None:
    assert try_convert(value, kind) == expected


def test_missing_java_is_named_with_the_way_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigInvalid, match="needs Java 17 or newer"):
        check_java()
