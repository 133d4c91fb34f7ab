"""Batches cut from bronze: whole transactions, found without reading all that waits."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.pipeline.histories import History, write_bronze
from tidewire.clock import ManualClock
from tidewire.pipeline.apply.bronze_source import (
    QUIET_S,
    BronzeStreamReader,
    HistoryPartition,
    plan_end,
    plan_partitions,
    read_partition,
)
from tidewire.pipeline.apply.history_files import parse_batch_receipts, plan_task
from tidewire.pipeline.apply.transactions import PlannedEvent, closed_through
from tidewire.pipeline.lake.spans import Span
from tidewire.pipeline.lake.tables import Lake, try_open_table
from tidewire.pipeline.source.offsets import parse_offset, render_offset
from tidewire.pipeline.status.lake_status import PipelineStatus, write_status


@pytest.mark.parametrize("has_last", [True, False])
@pytest.mark.parametrize("max_rows", [1, 2, 5, 13, 1000, None])
def test_batches_planned_file_by_file_end_where_a_look_at_everything_would(
    tmp_path: Path, has_last: bool, max_rows: int | None
) -> None:
    lake, history = Lake(str(tmp_path)), History()
    for i in range(12):
        ids = [history.create("Contact", {"Name.LastName": f"n{i}-{j}"}) for j in range(1 + i % 4)]
        history.update("Contact", ids[:1], {"Name.LastName": "x"})
        history.commit(hidden=i % 2, has_last=has_last)
        if i % 3 == 2:
            floor = history.truths[i - 3][0] if i > 2 else 0
            write_bronze(lake, [e for e in history.events if e.replay_id > floor], history.position)
    bronze = try_open_table(lake, "bronze")
    assert bronze is not None
    after, known = 0, history.position
    ends = {position for position, _ in history.truths}
    while after < known:
        span = Span(after, known)
        end = plan_end(bronze, span, max_rows)
        if end is None:
            assert not has_last
            break
        assert after < end <= known
        if has_last:
            assert end in ends
            events = [
                PlannedEvent(e.replay_id, e.transaction_last, e.header["transactionKey"], False, False)
                for e in history.events
                if e.replay_id > after
            ]
            assert end == closed_through(events, known, max_rows)
        after = end


@pytest.fixture
def endless(tmp_path: Path) -> tuple[Lake, History]:
    """Two transactions of a server that does not tell where they end, archived in the beginning of time."""
    lake, history = Lake(str(tmp_path)), History()
    for name in ("first", "second"):
        history.create("Contact", {"Name.LastName": name})
        history.update("Contact", [history.create("Contact", {"Name.LastName": name})], {"Email": None})
        history.commit(has_last=False)
    write_bronze(lake, history.events, history.position)
    return lake, history


def test_unmarked_last_transaction_is_applied_once_the_archive_is_quiet(
    endless: tuple[Lake, History],
) -> None:
    lake, history = endless
    clock = ManualClock()
    reader = BronzeStreamReader(lake, 0, 1000, clock)
    write_status(lake, PipelineStatus(unread=0))
    first = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    assert parse_offset(first).position == history.truths[0][0]
    for waited_s in (0, QUIET_S - 1):
        clock.advance(waited_s)
        assert reader.latestOffset(first, reader.getDefaultReadLimit()) == first
    clock.advance(1)
    assert reader.latestOffset(first, reader.getDefaultReadLimit()) == render_offset(history.position)


@pytest.mark.parametrize("unread", [None, 5])
def test_unmarked_last_transaction_waits_while_the_archive_is_offline_or_behind(
    endless: tuple[Lake, History], unread: int | None
) -> None:
    lake, history = endless
    clock = ManualClock()
    reader = BronzeStreamReader(lake, 0, 1000, clock)
    first = render_offset(history.truths[0][0])
    for told in (0, unread, 0):
        write_status(lake, PipelineStatus(unread=told))
        for _ in range(2):
            assert reader.latestOffset(first, reader.getDefaultReadLimit()) == first
            clock.advance(QUIET_S / 2)
    assert reader.latestOffset(first, reader.getDefaultReadLimit()) == render_offset(history.position)


def test_last_transaction_is_taken_at_once_by_a_query_that_ends_by_itself(
    endless: tuple[Lake, History],
) -> None:
    lake, history = endless
    reader = BronzeStreamReader(lake, 0, 1000, ManualClock(0))
    reader.prepareForTriggerAvailableNow()
    first = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    assert parse_offset(first).position == history.truths[0][0]
    assert reader.latestOffset(first, reader.getDefaultReadLimit()) == render_offset(history.position)


def test_small_files_of_bronze_become_one_partition_and_one_file_of_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, history = Lake(str(tmp_path)), History()
    for i in range(6):
        floor = history.position
        history.create("Contact", {"Name.LastName": f"n{i}"})
        history.commit()
        write_bronze(lake, [e for e in history.events if e.replay_id > floor], history.position)
    reader = BronzeStreamReader(lake, 0, 1000)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    (part,) = reader.partitions(start, end)
    receipts = parse_batch_receipts(row for batch in reader.read(part) for row in batch.to_pylist())
    assert [(file.entity, file.rows, file.floor) for file in receipts.files] == [("Contact", 6, -1)]
    assert receipts.span == Span(0, history.position)

    monkeypatch.setattr("tidewire.pipeline.apply.bronze_source.PARTITION_ROWS", 4)
    bronze = try_open_table(lake, "bronze")
    assert bronze is not None
    assert [len(each.paths) for each in plan_partitions(bronze, Span(0, history.position))] == [4, 2]


def test_task_that_fails_takes_the_history_files_it_began_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, history = Lake(str(tmp_path)), History()
    history.create("Contact", {"Name.LastName": "Lee"})
    history.create("Account", {"Name": "a"})
    history.commit()
    write_bronze(lake, history.events, history.position)
    bronze = try_open_table(lake, "bronze")
    assert bronze is not None
    (part,) = plan_partitions(bronze, Span(0, history.position))

    def rows_until_the_disk_is_full() -> Iterator[pa.RecordBatch]:
        yield from read_partition(part)
        raise OSError(errno.ENOSPC, "No space left on device")

    def fail_to_sync(path: str) -> None:
        raise OSError(errno.EIO, "Input/output error", path)

    monkeypatch.setattr("tidewire.pipeline.apply.history_files._FLUSH_ROWS", 1)
    with pytest.raises(OSError, match="No space"):
        list(plan_task(lake).write(rows_until_the_disk_is_full()))
    assert [path for path in tmp_path.glob("history/*/*") if path.is_file()] == []
    monkeypatch.setattr("tidewire.pipeline.lake.files.sync_file", fail_to_sync)
    with pytest.raises(OSError, match="Input/output"):
        list(plan_task(lake).write(read_partition(part)))
    assert [path for path in tmp_path.glob("history/*/*") if path.is_file()] == []
    assert len([*tmp_path.glob("history/*")]) == 2


def test_span_without_events_is_one_partition_with_its_mark(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    write_bronze(lake, [], 50)
    reader = BronzeStreamReader(lake, 0, 1000)
    (part,) = reader.partitions(render_offset(10), render_offset(50))
    assert isinstance(part, HistoryPartition)
    receipts = parse_batch_receipts(row for batch in reader.read(part) for row in batch.to_pylist())
    assert (receipts.files, receipts.span) == ((), Span(10, 50))
