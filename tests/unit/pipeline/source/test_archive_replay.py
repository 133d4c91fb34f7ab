"""Replay from the archive and then from the bus: the same rows as from a bus that had kept everything."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.pipeline.histories import History, write_bronze
from tests.pipeline.history_bus import TOKEN, HistoryBus
from tidewire.clock import SystemClock
from tidewire.errors import ConfigInvalid, ReplayIdInvalid
from tidewire.pipeline.lake.files import read_rows
from tidewire.pipeline.lake.spans import START, Span, join_spans
from tidewire.pipeline.lake.tables import BRONZE, Lake, open_table
from tidewire.pipeline.source.archive_replay import HOLES, HybridPlanner, try_open_archive
from tidewire.pipeline.source.bus import Bus, BusSettings
from tidewire.pipeline.source.event_source import ROWS, ReadSettings, read_partition
from tidewire.pipeline.source.plans import ArchivePartition, BusPlanner, Partition, SpanPartition

TRANSACTIONS = 60
ARCHIVED = 40


@pytest.fixture(scope="module")
def history() -> History:
    made = History()
    for i in range(TRANSACTIONS):
        record_id = made.create("Contact", {"Name.LastName": f"n{i}"})
        made.update("Contact", [record_id], {"Name.LastName": f"m{i}"})
        made.commit(hidden=i % 3)
    return made


@pytest.fixture
def lake(history: History, tmp_path: Path) -> Lake:
    """An archive of the first transactions, in four commits."""
    made = Lake(str(tmp_path / "lake"))
    ends = [history.truths[i][0] for i in (9, 19, 29, ARCHIVED - 1)]
    for after, through in zip([0, *ends], ends, strict=False):
        write_bronze(made, [e for e in history.events if after < e.replay_id <= through], through)
    return made


@pytest.fixture
def bus(history: History) -> Iterator[Bus]:
    """A server that has dropped the first half of it."""
    kept = history.truths[TRANSACTIONS // 2][0]
    events = [event for event in history.events if event.replay_id > kept]
    with HistoryBus(events, history.position, first_kept=kept) as server:
        settings = BusSettings(server.endpoint, "/data/ChangeEvents", org_id="00D", token=TOKEN, retry_s=60)
        opened = Bus(settings, SystemClock())
        yield opened
        opened.close()


@pytest.fixture
def planner(lake: Lake, bus: Bus) -> Iterator[HybridPlanner]:
    made = HybridPlanner(lake, BusPlanner(bus, SystemClock(), 60.0))
    yield made
    made.close()


def read_all(bus: Bus, lake: Lake, parts: list[Partition]) -> pa.Table:
    settings = ReadSettings(archive=lake.path)
    batches = [batch for part in parts for batch in read_partition(bus.settings, settings, part)]
    return pa.Table.from_batches(batches, schema=ROWS)


def test_stream_over_archive_and_bus_has_every_event_once_with_its_own_bytes(
    planner: HybridPlanner, lake: Lake, bus: Bus, history: History
) -> None:
    planner.bound()
    position = planner.starting("earliest")
    parts: list[Partition] = []
    while (end := planner.cut(position, 7)) > position:
        some = planner.divide(Span(position, end), 3)
        assert join_spans(part.span for part in some) == Span(position, end)
        parts += some
        position = end
    rows = read_all(bus, lake, parts)
    assert rows["replay_id"].to_pylist() == [event.replay_id for event in history.events]
    assert rows["payload"].to_pylist() == [event.payload for event in history.events]
    assert rows["transaction_last"].to_pylist() == [event.transaction_last for event in history.events]
    archived = [part for part in parts if isinstance(part, ArchivePartition)]
    assert max(part.span.through for part in archived) == history.truths[ARCHIVED - 1][0]
    assert any(isinstance(part, SpanPartition) for part in parts)


def test_span_across_the_archives_end_is_read_from_both(
    planner: HybridPlanner, lake: Lake, bus: Bus, history: History
) -> None:
    span = Span(history.truths[ARCHIVED - 5][0], history.position)
    rows = read_all(bus, lake, planner.divide(span, 100))
    assert rows["replay_id"].to_pylist() == [e.replay_id for e in history.events if e.replay_id > span.after]


def test_start_at_a_time_finds_the_first_archived_change_from_then_on(
    planner: HybridPlanner, lake: Lake
) -> None:
    archive = try_open_archive(lake)
    assert archive is not None
    times = read_rows(archive.bronze, ["replay_id", "commit_ms"]).sort_by("replay_id")
    middle = times.num_rows // 2
    at_ms = times["commit_ms"][middle].as_py()
    first = times["commit_ms"].to_pylist().index(at_ms)
    assert planner.starting(f"@{at_ms}") == times["replay_id"][first].as_py() - 1
    # Later than everything in the archive, and this server cannot look for times.
    assert planner.starting("@99999999999999") == archive.through


def test_position_before_the_archive_is_the_servers_to_refuse(
    planner: HybridPlanner, lake: Lake, history: History
) -> None:
    archive = try_open_archive(lake)
    assert archive is not None
    before = archive.floor - 1
    assert not archive.covers(before)
    with pytest.raises(ReplayIdInvalid):
        planner.divide(Span(before, history.position), 10)


def test_hole_of_the_archive_is_requested_from_the_server_and_the_rest_is_read(
    tmp_path: Path, bus: Bus, history: History
) -> None:
    lake = Lake(str(tmp_path / "lake"))
    hole, end = Span(history.truths[9][0], history.truths[19][0]), history.truths[ARCHIVED - 1][0]
    write_bronze(lake, [e for e in history.events if e.replay_id <= hole.after], hole.after)
    write_bronze(lake, [], hole.through)
    write_bronze(lake, [e for e in history.events if hole.through < e.replay_id <= end], end)
    open_table(lake, "bronze", BRONZE).delta.alter.set_table_properties(
        {HOLES: json.dumps([[hole.after, hole.through]])}, raise_if_not_exists=False
    )
    archive = try_open_archive(lake)
    assert archive is not None
    assert (archive.end_after(START), archive.end_after(hole.through)) == (hole.after, archive.through)
    assert not any(archive.covers(position) for position in (hole.after, hole.through - 1))
    assert archive.covers(hole.through)
    planner = HybridPlanner(lake, BusPlanner(bus, SystemClock(), 60.0))
    planner.bound()
    assert planner.cut(archive.floor, None) == hole.after
    rows = read_all(bus, lake, planner.divide(Span(archive.floor, hole.after), 100))
    assert rows["replay_id"].to_pylist() == [e.replay_id for e in history.events if e.replay_id <= hole.after]
    with pytest.raises(ReplayIdInvalid):
        planner.divide(Span(hole.after, history.position), 10)
    with pytest.raises(ReplayIdInvalid):
        planner.divide(Span(archive.floor, history.position), 10)
    behind = [e for e in history.events if e.replay_id > hole.through]
    first_ms, next_ms = sorted({e.header["commitTimestamp"] for e in behind})[:2]
    assert planner.starting(f"@{first_ms}") == hole.after  # a lost change may be of that time
    assert planner.starting(f"@{next_ms}") > hole.through
    planner.close()


def test_empty_archive_leaves_all_to_the_bus(tmp_path: Path, bus: Bus, history: History) -> None:
    planner = HybridPlanner(Lake(str(tmp_path / "none")), BusPlanner(bus, SystemClock(), 60.0))
    planner.bound()
    assert planner.starting("earliest") == 0
    assert planner.cut(0, None) == history.position
    with pytest.raises(ConfigInvalid, match="can be a time only"):
        planner.starting("@1700000000000")
    planner.close()
