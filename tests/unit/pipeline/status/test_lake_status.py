"""The status of a pipeline that has problems, and of one that has stopped reporting."""

from __future__ import annotations

import errno
import io
import json
import os
from pathlib import Path
from typing import IO, Any

import pytest

from tests.pipeline.apply_lake import apply_all
from tests.pipeline.histories import History, write_bronze
from tidewire.clock import ManualClock
from tidewire.errors import DiskFull, LogCorrupt, WriteConflict
from tidewire.pipeline.driver.queries import parse_failure
from tidewire.pipeline.driver.supervision import is_retryable
from tidewire.pipeline.lake.lease import check_lease, hold_lease, is_held
from tidewire.pipeline.lake.status_file import read_live_report
from tidewire.pipeline.lake.tables import Lake, append_files, open_table, try_open_table
from tidewire.pipeline.status.health import Health, StatusReporter
from tidewire.pipeline.status.lake_status import (
    PipelineStatus,
    StatusReader,
    read_status,
    write_status,
)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    (tmp_path / "lake").mkdir()
    return Lake(str(tmp_path / "lake"))


@pytest.fixture
def filled(lake: Lake) -> Lake:
    history = History()
    history.create("Account", {"Name": "a"})
    history.commit()
    write_bronze(lake, history.events, history.position)
    apply_all(lake)
    return lake


def told_at_ms(lake: Lake) -> int:
    return os.stat(Path(lake.path) / "status.json").st_mtime_ns // 1_000_000


def read_later(lake: Lake, seconds: int) -> PipelineStatus:
    return read_status(lake, ManualClock(told_at_ms(lake) + seconds * 1000))


def test_last_words_of_a_pipeline_that_has_failed_stay(lake: Lake) -> None:
    write_status(lake, PipelineStatus(health="failed", problem="pipeline: replay_id_invalid: other log"))
    found = read_later(lake, 86_400)
    assert (found.health, found.problem) == ("failed", "pipeline: replay_id_invalid: other log")


def test_silence_of_a_pipeline_that_was_killed_is_told_from_that_of_one_that_hangs(lake: Lake) -> None:
    write_status(lake, PipelineStatus(health="ok", unread=3))
    killed = read_later(lake, 60)
    assert (killed.health, killed.unread) == ("stopped", None)
    assert killed.problem.startswith("the pipeline was killed 60 s ago")
    with hold_lease(lake.path):
        assert is_held(lake.path)
        hanging = read_later(lake, 60)
    assert not is_held(lake.path)
    assert hanging.health == "failed"
    assert hanging.problem.startswith("the pipeline runs but has not reported for 60 s")


def test_driver_of_an_older_epoch_does_not_speak_over_a_newer_one(lake: Lake) -> None:
    write_status(lake, PipelineStatus(health="ok", epoch=4))
    write_status(lake, PipelineStatus(health="failed", epoch=3))
    assert read_later(lake, 1).health == "ok"
    write_status(lake, PipelineStatus(health="behind", epoch=4))
    assert read_later(lake, 1).health == "behind"


def test_words_about_a_full_disk_need_no_room(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    write_status(lake, PipelineStatus(health="ok", resyncing=("Account",) * 40))
    held = os.stat(Path(lake.path) / "status.json").st_blocks
    real = io.open

    def open_full(path: str, mode: str = "r", **others: Any) -> IO[Any]:
        if mode == "wb":
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(path, mode, **others)

    monkeypatch.setattr("builtins.open", open_full)
    write_status(lake, PipelineStatus(health="retrying", problem="archive: disk_full: no room"))
    monkeypatch.undo()
    assert read_later(lake, 1).problem == "archive: disk_full: no room"
    assert os.stat(Path(lake.path) / "status.json").st_blocks == held


def test_damaged_log_of_a_table_is_reported_by_status_and_by_a_running_pipeline(filled: Lake) -> None:
    newest = sorted(Path(filled.table("manifest"), "_delta_log").glob("*.json"))[-1]
    os.truncate(newest, newest.stat().st_size // 2)
    with pytest.raises(LogCorrupt, match="the log of table manifest"):
        try_open_table(filled, "manifest")
    found = read_status(filled)
    assert found.health == "failed"
    assert found.problem.startswith("log_corrupt: the log of table manifest in ")
    health = Health()
    health.is_running()
    teller = StatusReporter(filled, ManualClock(), health, lambda: None, epoch=1)
    teller.start()
    assert teller.stop().health == "retrying"
    told = read_live_report(filled, told_at_ms(filled))
    assert told is not None
    assert str(told["problem"]).startswith("status: log_corrupt: the log of table manifest")


def test_truncated_file_of_a_replica_leaves_the_rest_of_the_status_readable(filled: Lake) -> None:
    (file,) = Path(filled.table("history/Account")).glob("*.parquet")
    os.truncate(file, 50)
    found = read_status(filled)
    assert found.health == "failed"
    assert found.problem.startswith("the lake cannot be read: ")
    assert found.archived == 1


def test_lag_counts_what_the_archive_lacks_for_as_long_as_the_server_has_had_it(filled: Lake) -> None:
    clock, health = ManualClock(), Health()
    health.is_running()
    archived = read_status(filled).archived_through
    head = archived
    teller = StatusReporter(filled, clock, health, lambda: head)
    teller._report()  # noqa: SLF001
    assert (teller.last.unread, teller.last.lag_ms, teller.last.health) == (0, 0, "ok")
    head = archived + 5
    teller._report()  # noqa: SLF001
    clock.advance(45)
    head = archived + 9
    teller._report()  # noqa: SLF001
    assert (teller.last.unread, teller.last.lag_ms, teller.last.health) == (9, 45_000, "behind")


class _SlowCounting(ManualClock):
    """A clock by which whatever is timed takes a second."""

    def monotonic_s(self) -> float:
        self.advance(1)
        return super().monotonic_s()


def test_dirty_records_count_as_stale_before_their_replica_is_counted_again(lake: Lake) -> None:
    history = History()
    record_id = history.create("Account", {"Name": "a"})
    history.commit()
    write_bronze(lake, history.events, history.position)
    apply_all(lake)
    reader = StatusReader(lake, _SlowCounting())
    assert [(each.live, each.stale) for each in reader.read().replicas] == [(1, 0)]
    told = len(history.events)
    history.add("Account", "GAP_UPDATE", [record_id], {})
    history.create("Account", {"Name": "b"})
    history.commit()
    write_bronze(lake, history.events[told:], history.position)
    apply_all(lake)
    found = reader.read()
    assert found.dirty == 1
    # Counting is not due, so the new record is not among the live ones yet.
    assert [(each.live, each.stale) for each in found.replicas] == [(1, 1)]


def test_lost_lease_is_taken_up_above_every_epoch_that_a_table_names(lake: Lake) -> None:
    append_files(open_table(lake, "bronze"), [], 5, epoch=6)
    append_files(open_table(lake, "history/Account"), [], 5, epoch=7)
    with hold_lease(lake.path) as epoch:
        assert epoch == 8
    with hold_lease(lake.path) as epoch:
        assert epoch == 9


def test_lost_lease_is_taken_up_above_the_epoch_of_a_driver_that_committed_nothing(lake: Lake) -> None:
    write_status(lake, PipelineStatus(epoch=6))
    with hold_lease(lake.path) as epoch:
        assert epoch == 7


def test_driver_that_finds_another_lease_of_its_own_epoch_is_rejected(lake: Lake) -> None:
    with hold_lease(lake.path) as epoch:
        lease = Path(lake.path) / "_lease"
        text = lease.read_text()
        lease.unlink()
        lease.write_text(text)
        with pytest.raises(WriteConflict, match="no longer holds the lease") as caught:
            check_lease(lake.path, epoch)
        assert not is_retryable(caught.value)


def test_driver_whose_lease_was_taken_over_is_rejected(lake: Lake) -> None:
    with hold_lease(lake.path) as first:
        check_lease(lake.path, first)
        os.remove(Path(lake.path) / "_lease")
        check_lease(lake.path, first)
        append_files(open_table(lake, "bronze"), [], 5, first)
        with hold_lease(lake.path) as second:
            assert second > first
            check_lease(lake.path, second)
            with pytest.raises(WriteConflict, match="no longer holds the lease") as caught:
                check_lease(lake.path, first)
            assert not is_retryable(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "pyarrow.lib.ArrowInvalid: Could not open Parquet input source '<Buffer>': Parquet magic bytes not found",
        "OSError: Couldn't deserialize thrift: TProtocolException: Invalid data",
        "FileNotFoundError: [Errno 2] No such file or directory: '/lake/bronze/part-1.parquet'",
    ],
)
def test_query_that_meets_a_damaged_file_is_not_tried_without_end(text: str) -> None:
    failure = parse_failure("apply", f"Job aborted\n{text}\n at java")
    assert isinstance(failure, LogCorrupt)
    assert not is_retryable(failure)
    assert isinstance(parse_failure("apply", "IOException: Disk quota exceeded"), DiskFull)


def test_status_file_stays_json_for_others(lake: Lake) -> None:
    write_status(lake, PipelineStatus(health="ok", epoch=2))
    told = json.loads((Path(lake.path) / "status.json").read_text())
    assert (told["health"], told["epoch"]) == ("ok", 2)
