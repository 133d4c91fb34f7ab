"""Snapshot, resync and reconcile against a live server: what is in the lake at the end is what the server has."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.pipeline.apply_lake import apply_all
from tests.pipeline.archive_lake import archive_all, settings_for
from tests.pipeline.histories import native_rows
from tests.running import Rest
from tidewire.cli.main import cli
from tidewire.clock import ManualClock, SystemClock
from tidewire.pipeline.lake import manifest
from tidewire.pipeline.lake.control import FAILED, OPEN, Dirty, open_resyncs
from tidewire.pipeline.lake.dirty import append_dirty, failed_records, open_records
from tidewire.pipeline.lake.tables import Lake, append_files, open_table
from tidewire.pipeline.replicas.replica import read_replica
from tidewire.pipeline.source.bus import BusSettings
from tidewire.pipeline.source.records_reader import RecordsReader
from tidewire.pipeline.status.usage import roll_up
from tidewire.pipeline.upkeep import snapshot
from tidewire.pipeline.upkeep.audit import audit
from tidewire.pipeline.upkeep.reconcile import Reconciler
from tidewire.pipeline.upkeep.resync import Resyncer
from tidewire.testing import ServerProcess

EPOCH = 1
CRATE = "ControlCrate__c"
PALLET = "ControlPallet__c"


@pytest.fixture
def settings(server: ServerProcess, rest: Rest) -> BusSettings:
    objects = {
        name: {
            "label": name[:-3],
            "plural": name[:-3],
            "capture": True,
            "fields": {"Weight__c": {"type": "Number", "precision": 9, "scale": 2}},
        }
        for name in (CRATE, PALLET)
    }
    rest.call("POST", "/services/tidewire/v1/apply", {"objects": objects})
    return settings_for(server)


@pytest.fixture
def reader(settings: BusSettings) -> Iterator[RecordsReader]:
    made = RecordsReader(settings)
    yield made
    made.close()


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "lake"))


def take_in(lake: Lake, settings: BusSettings) -> None:
    archive_all(lake, settings)
    apply_all(lake)


def lake_rows(lake: Lake, entity: str) -> dict[str, dict[str, Any]]:
    rows = read_replica(lake, entity)
    assert not any(rows["_stale"].to_pylist())
    return {record_id: values for record_id, _, values in native_rows(rows)}


def server_rows(reader: RecordsReader, entity: str) -> dict[str, dict[str, Any]]:
    page = reader.read_range(entity, "", "", 2000)
    return {
        str(row["Id"]): {name: v for name, v in row.items() if v is not None and name != "Id"}
        for row in page.rows
    }


def finish(resyncer: Resyncer, lake: Lake, settings: BusSettings) -> None:
    for _ in range(200):
        if not open_resyncs(lake):
            return
        resyncer.advance(1)
        take_in(lake, settings)
    pytest.fail(f"still open: {open_resyncs(lake)}")


def test_snapshot_of_an_empty_lake_taken_while_writes_go_on_equals_the_server(
    rest: Rest, settings: BusSettings, reader: RecordsReader, lake: Lake
) -> None:
    kept = [rest.create(CRATE, {"Name": f"c{i}", "Weight__c": i}) for i in range(23)]
    snapshot.start(lake, EPOCH, reader, SystemClock(), [CRATE, PALLET])
    resyncer = Resyncer(lake, EPOCH, reader, SystemClock(), rows_per_page=5)
    states = set()
    for i in range(6):
        rest.update(CRATE, kept[i], {"Weight__c": 100 + i})
        rest.delete(CRATE, kept[20 - i])
        rest.create(CRATE, {"Name": f"late {i}"})
        rest.create(PALLET, {"Name": f"p{i}"})
        states |= {each.state for each in resyncer.advance(1)}
        row = manifest.newest(lake)
        assert row is not None
        if CRATE in open_resyncs(lake):
            assert row.entities[CRATE].state == "snapshot"
    assert "reading" in states
    finish(resyncer, lake, settings)
    for entity in (CRATE, PALLET):
        assert lake_rows(lake, entity) == server_rows(reader, entity)
    row = manifest.newest(lake)
    assert row is not None
    assert row.entities[CRATE].state == "ready"


def test_snapshot_on_a_quiet_server_shows_without_event(
    rest: Rest, reader: RecordsReader, settings: BusSettings, lake: Lake
) -> None:
    rest.create(CRATE, {"Name": "quiet"})
    snapshot.start(lake, EPOCH, reader, SystemClock(), [CRATE])
    resyncer = Resyncer(lake, EPOCH, reader, SystemClock())
    resyncer.advance()
    resyncer.advance()
    assert open_resyncs(lake) == {}
    assert lake_rows(lake, CRATE) == server_rows(reader, CRATE)


def test_resync_finds_records_that_went_without_an_event(
    rest: Rest, settings: BusSettings, reader: RecordsReader, lake: Lake
) -> None:
    ids = [rest.create(CRATE, {"Name": f"g{i}"}) for i in range(4)]
    snapshot.start(lake, EPOCH, reader, SystemClock(), [CRATE])
    resyncer = Resyncer(lake, EPOCH, reader, SystemClock(), rows_per_page=2)
    finish(resyncer, lake, settings)
    rest.delete(CRATE, ids[1])
    rest.update(CRATE, ids[2], {"Name": "changed unseen"})
    # The log goes on behind these two: as after an expired replay id.
    position = snapshot.read_position(reader, CRATE)
    skip_to(lake, position)
    assert lake_rows(lake, CRATE) != server_rows(reader, CRATE)
    snapshot.start(lake, EPOCH, reader, SystemClock(), [CRATE])
    finish(resyncer, lake, settings)
    assert lake_rows(lake, CRATE) == server_rows(reader, CRATE)


def skip_to(lake: Lake, position: int) -> None:
    append_files(open_table(lake, "bronze"), [], position, EPOCH)
    apply_all(lake)


def test_reconcile_reads_open_records_and_reports_those_that_are_gone(
    rest: Rest, settings: BusSettings, reader: RecordsReader, lake: Lake
) -> None:
    kept, gone = (rest.create(CRATE, {"Name": f"r{i}", "Weight__c": 1}) for i in range(2))
    snapshot.start(lake, EPOCH, reader, SystemClock(), [CRATE])
    finish(Resyncer(lake, EPOCH, reader, SystemClock()), lake, settings)
    rest.update(CRATE, kept, {"Weight__c": 7})
    rest.delete(CRATE, gone)
    position = snapshot.read_position(reader, CRATE)
    skip_to(lake, position)
    dirty = [Dirty(CRATE, record_id, position, "gap") for record_id in (kept, gone)]
    append_dirty(lake, EPOCH, 0, dirty, OPEN)
    row = manifest.newest(lake)
    assert row is not None
    assert row.entities[CRATE].dirty == 2
    reconciler = Reconciler(lake, EPOCH, reader, SystemClock())
    assert reconciler.once() == 2
    assert reconciler.once() == 0
    assert open_records(lake) == failed_records(lake) == {}
    assert lake_rows(lake, CRATE) == server_rows(reader, CRATE)


def test_record_of_an_object_that_is_none_ends_as_failed(
    reader: RecordsReader, settings: BusSettings, lake: Lake
) -> None:
    append_dirty(lake, EPOCH, 0, [Dirty("NoSuch__c", "a09000000000001AAA", 5, "gap")], OPEN)
    clock = ManualClock()
    reconciler = Reconciler(lake, EPOCH, reader, clock)
    attempts = 0
    while open_records(lake):
        assert reconciler.once() == 0
        clock.advance(400)
        attempts += 1
        assert attempts < 10
    assert attempts == 3
    assert failed_records(lake) == {"NoSuch__c": {"a09000000000001AAA": 5}}
    row = manifest.newest(lake)
    assert row is not None
    assert row.entities["NoSuch__c"].dirty == 0
    assert reconciler.retry_failed() == 0


def test_command_asks_again_for_records_that_had_failed(
    rest: Rest, server: ServerProcess, settings: BusSettings, reader: RecordsReader, lake: Lake
) -> None:
    # It begins here: what other tests have left in the log may be dirty too.
    snapshot.begin(lake, EPOCH, snapshot.read_position(reader, CRATE), SystemClock())
    record_id = rest.create(CRATE, {"Name": "given up", "Weight__c": 3})
    take_in(lake, settings)
    position = snapshot.read_position(reader, CRATE)
    lost = Dirty("NoSuch__c", "a09000000000001AAA", 1, "gap")
    append_dirty(lake, EPOCH, 0, [lost, Dirty(CRATE, record_id, position, "gap")], FAILED)
    given = ["pipeline", "reconcile", "--lake", lake.path, "--url", server.http, "--endpoint", server.grpc]
    done = CliRunner().invoke(cli, [*given, "--json"], catch_exceptions=False)
    assert json.loads(done.stdout) == {"read": 1, "left": 0, "given_up": 1}


def test_audit_finds_what_the_log_did_not_report_and_corrects_it(
    rest: Rest, settings: BusSettings, reader: RecordsReader, lake: Lake
) -> None:
    ids = [rest.create(CRATE, {"Name": f"a{i}", "Weight__c": i}) for i in range(5)]
    snapshot.start(lake, EPOCH, reader, SystemClock(), [CRATE])
    finish(Resyncer(lake, EPOCH, reader, SystemClock()), lake, settings)
    assert audit(lake, EPOCH, reader, CRATE, SystemClock()).drifted == 0
    rest.update(CRATE, ids[0], {"Weight__c": 50})
    rest.delete(CRATE, ids[1])
    new_id = rest.create(CRATE, {"Name": "untold"})
    skip_to(lake, snapshot.read_position(reader, CRATE))
    report = audit(lake, EPOCH, reader, CRATE, SystemClock())
    assert (report.different, report.extra, report.missing) == ((ids[0],), (ids[1],), (new_id,))
    assert report.healed == 3
    assert lake_rows(lake, CRATE) == server_rows(reader, CRATE)


def test_usage_of_the_live_server_is_rolled_up_without_refusal(reader: RecordsReader, lake: Lake) -> None:
    status = reader.try_ask("/services/tidewire/v1/status")
    assert isinstance(status["usage"], list)
    # As of an hour ago: the hour that has just ended may still be counted, and none ends between the two.
    clock = ManualClock(SystemClock().now_ms() - 3_600_000)
    roll_up(lake, EPOCH, reader, clock)
    assert roll_up(lake, EPOCH, reader, clock) == 0
