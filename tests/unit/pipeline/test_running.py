"""The health and status of a running pipeline, and the retries of its parts."""

from __future__ import annotations

import errno
import io
import json
import os
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pytest

from tests.pipeline.apply_lake import apply_all
from tests.pipeline.histories import History, write_bronze
from tests.pipeline.maintain_lake import maintain_all
from tidewire.cli.pipeline_progress import Progress, render
from tidewire.clock import ManualClock
from tidewire.errors import (
    ConfigInvalid,
    DiskFull,
    InternalError,
    LoginFailed,
    ReplayIdExpired,
    ReplayIdInvalid,
    SessionInvalid,
    StoreClosed,
    WriteConflict,
)
from tidewire.pipeline.driver.queries import Gate, PipelineConfig, parse_failure
from tidewire.pipeline.driver.run import run_pipeline
from tidewire.pipeline.driver.supervision import is_retryable
from tidewire.pipeline.driver.worker import Job, Worker, as_platform_error
from tidewire.pipeline.lake.status_file import read_live_report
from tidewire.pipeline.lake.tables import Lake
from tidewire.pipeline.source.bus import BusSettings
from tidewire.pipeline.status.health import Health, StatusReporter
from tidewire.pipeline.status.lake_status import (
    PipelineStatus,
    StatusReader,
    read_status,
    write_status,
)
from tidewire.pipeline.status.metrics import render_metrics, serve_metrics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "lake"))


@pytest.fixture
def filled(lake: Lake) -> Lake:
    history = History()
    accounts = [history.create("Account", {"Name": f"a{i}"}) for i in range(6)]
    history.create("Contact", {"Name.LastName": "Lee"})
    history.commit()
    history.delete("Account", accounts[:2])
    history.commit()
    write_bronze(lake, history.events, history.position)
    apply_all(lake)
    return lake


def replica_numbers(status: PipelineStatus) -> dict[str, tuple[int, int, int]]:
    return {each.entity: (each.live, each.deleted, each.pending) for each in status.replicas}


def test_status_counts_rows_the_same_before_and_after_folding(filled: Lake) -> None:
    before = replica_numbers(read_status(filled))
    maintain_all(filled)
    after = replica_numbers(read_status(filled))
    assert before == {"Account": (4, 2, 8), "Contact": (1, 0, 1)}
    assert after == {"Account": (4, 2, 0), "Contact": (1, 0, 0)}


def test_status_of_a_lake_that_nobody_runs_says_stopped(filled: Lake) -> None:
    status = read_status(filled)
    assert (status.health, status.problem, status.waiting) == ("stopped", "", 0)
    assert {"bronze", "manifest", "history/Account"} <= set(status.table_versions)


def test_status_takes_over_the_words_of_a_running_pipeline_until_it_falls_silent(lake: Lake) -> None:
    os.makedirs(lake.path)
    write_status(lake, PipelineStatus(health="retrying", problem="archive: disk_full", unread=7))
    written_ms = os.stat(Path(lake.path) / "status.json").st_mtime_ns // 1_000_000
    running = read_status(lake, ManualClock(written_ms + 1_000))
    assert (running.health, running.problem, running.unread) == ("retrying", "archive: disk_full", 7)
    assert read_status(lake, ManualClock(written_ms + 60_000)).health == "stopped"


def test_broken_status_file_is_as_good_as_none(lake: Lake) -> None:
    os.makedirs(lake.path)
    (Path(lake.path) / "status.json").write_text('{"health": ')
    assert read_live_report(lake, 0) is None


def test_teller_writes_what_the_health_says(filled: Lake) -> None:
    health = Health()
    teller = StatusReporter(filled, ManualClock(), health, lambda: 10**6)
    teller.start()
    health.is_running()
    health.fails("archive", DiskFull("there is no room"))
    assert teller.stop().health == "retrying"
    told = json.loads((Path(filled.path) / "status.json").read_text())
    assert told["problem"] == "archive: disk_full: there is no room"
    assert told["unread"] == 10**6 - told["archived_through"]
    health.works("archive")
    assert health.describe(health.word, StatusReader(filled, ManualClock()).read()).health == "ok"


def test_tables_that_were_read_before_the_start_was_over_are_not_told_as_well(filled: Lake) -> None:
    health, told = Health(), list[str]()

    def head() -> None:
        told.append(teller.last.health)
        health.is_running()

    teller = StatusReporter(filled, ManualClock(), health, head)
    teller.start()
    assert teller.stop().health == "ok"
    assert set(told) == {"starting"}


def test_metrics_hold_every_number_and_escape_names() -> None:
    status = PipelineStatus(waiting=3, lag_ms=1500, health="ok", dead_letters={'odd "one"\n': 2})
    text = render_metrics(status, {"pipeline.events_archived": 9, "bayeux.other": 1})
    lines = text.splitlines()
    assert "tidewire_pipeline_waiting_events 3" in lines
    assert "tidewire_pipeline_lag_seconds 1.5" in lines
    assert 'tidewire_pipeline_health{state="ok"} 1' in lines
    assert 'tidewire_pipeline_health{state="failed"} 0' in lines
    assert 'tidewire_pipeline_dead_letters{reason="odd \\"one\\"\\n"} 2' in lines
    assert 'tidewire_pipeline_events_total{event="pipeline.events_archived"} 9' in lines
    assert "bayeux" not in text
    assert "unread" not in text


def test_metrics_listener_answers_its_path_and_no_other() -> None:
    with serve_metrics("127.0.0.1:0", lambda: PipelineStatus(dirty=4)) as address:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
            assert b"tidewire_pipeline_dirty_records 4\n" in answer.read()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://{address}/else", timeout=30)


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:x", "127.0.0.1:99999"])
def test_metrics_address_that_is_invalid_is_rejected(address: str) -> None:
    with pytest.raises(ConfigInvalid, match="cannot listen"), serve_metrics(address, PipelineStatus):
        pass


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_progress_is_a_bar_on_a_terminal_and_rare_lines_elsewhere() -> None:
    clock = ManualClock()
    screen, file = Terminal(), io.StringIO()
    bar, lines = Progress(screen, clock), Progress(file, clock)
    for done in range(101):
        for progress in (bar, lines):
            progress.show("reading Account", done, 100)
        clock.advance(0.25)
    bar.done()
    assert "\r\x1b[K[" + "#" * 30 + "] reading Account: 100 of 100 (100%)\n" in screen.getvalue()
    assert file.getvalue() == ""
    assert render("reading", 1234, None) == "reading: 1,234"


def test_job_that_fails_is_put_off_and_does_not_hold_up_others(lake: Lake) -> None:
    clock, health, stop = ManualClock(), Health(), threading.Event()
    health.is_running()
    config = PipelineConfig(lake, BusSettings("localhost:1", "/data/ChangeEvents"))
    worker = Worker(config, 1, clock, health)
    calls: list[str] = []

    def fail() -> bool:
        calls.append("fail")
        raise OSError(errno.ENOSPC, "No space left on device")

    def work() -> bool:
        calls.append("work")
        if len(calls) >= 40:
            stop.set()
        clock.advance(1)
        return True

    worker._jobs = [Job("fail", 0, fail), Job("work", 0, work)]  # noqa: SLF001
    worker.run(stop)
    assert calls.count("work") >= 30
    assert 3 <= calls.count("fail") <= 7
    told = health.describe(health.word, PipelineStatus())
    assert told.health == "retrying"
    assert told.problem.startswith("fail: disk_full: ")


@pytest.mark.parametrize("error", [pa.ArrowInvalid("odd file"), RuntimeError("odd file")])
def test_job_that_fails_with_an_error_of_a_library_does_not_end_the_worker(
    lake: Lake, error: Exception
) -> None:
    health, stop = Health(), threading.Event()
    health.is_running()
    config = PipelineConfig(lake, BusSettings("localhost:1", "/data/ChangeEvents"))
    worker = Worker(config, 1, ManualClock(), health)

    def fail() -> bool:
        raise error

    def end() -> bool:
        stop.set()
        return False

    worker._jobs = [Job("fail", 0, fail), Job("end", 0, end)]  # noqa: SLF001
    worker.run(stop)
    told = health.describe(health.word, PipelineStatus())
    assert (told.health, told.problem) == ("retrying", "fail: internal: fail failed: odd file")


class LateQuery:
    """A query whose thread comes to its next batch while it is being stopped, and is waited for, as by Spark."""

    def __init__(self, batch: Callable[[], None]) -> None:
        self._thread = threading.Thread(target=batch, daemon=True)
        self.has_ended = False

    def stop(self) -> None:
        self._thread.start()
        self._thread.join(60)
        self.has_ended = not self._thread.is_alive()


def test_batch_that_begins_during_a_stop_fails_and_does_not_delay_the_stop() -> None:
    gate = Gate()
    done: list[str] = []

    def batch() -> None:
        with pytest.raises(StoreClosed):
            gate.guard(lambda _batch, _id: done.append("batch"))(cast("DataFrame", None), 1)
        done.append("refused")

    query = LateQuery(batch)
    gate.stop(cast("StreamingQuery", query))
    assert query.has_ended
    assert done == ["refused"]


def test_query_is_stopped_once_its_batch_has_ended() -> None:
    gate, has_begun, may_end = Gate(), threading.Event(), threading.Event()
    done: list[str] = []

    def work(_batch: DataFrame, _id: int) -> None:
        has_begun.set()
        may_end.wait(120)
        done.append("batch")

    def nothing() -> None:
        done.append("stop")

    batch = threading.Thread(target=gate.guard(work), args=(None, 1))
    batch.start()
    assert has_begun.wait(120)
    stopping = threading.Thread(target=gate.stop, args=(LateQuery(nothing),))
    stopping.start()
    may_end.set()
    stopping.join(120)
    batch.join(120)
    assert done == ["batch", "stop"]


def test_pipeline_asked_to_stop_while_a_query_starts_begins_no_other(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = threading.Event()
    begun: list[str] = []

    def start(name: str) -> LateQuery:
        begun.append(name)
        stop.set()
        return LateQuery(lambda: begun.append("stopped"))

    monkeypatch.setattr("tidewire.pipeline.driver.run.start_archive", lambda *_: start("archive"))
    monkeypatch.setattr("tidewire.pipeline.driver.run.start_apply", lambda *_: start("apply"))
    os.makedirs(lake.path)
    bus = BusSettings("localhost:1", "/data/ChangeEvents", org_id="00D000000000001", token="given")
    config = PipelineConfig(lake, bus)
    status = run_pipeline(config, stop, spark=cast("SparkSession", object()), clock=ManualClock())
    assert begun == ["archive", "stopped"]
    assert status.health == "stopped"


class ActiveQuery:
    """A query that runs until it is stopped."""

    isActive = True

    def stop(self) -> None:
        self.isActive = False


class EndedQuery:
    """A query that has ended, with an error or without."""

    name = "archive"
    isActive = False

    def __init__(self, failure: str = "") -> None:
        self._failure = failure

    def exception(self) -> Exception | None:
        return Exception(self._failure) if self._failure else None


class PassingClock(ManualClock):
    """Time goes on whenever it is asked for."""

    def monotonic_s(self) -> float:
        self.advance(1)
        return super().monotonic_s()


def run_once(lake: Lake, monkeypatch: pytest.MonkeyPatch, failures: list[str]) -> tuple[PipelineStatus, int]:
    """A run that ends by itself, whose archive query fails with these one after the other; the status, and how often
    it was started.
    """
    starts: list[int] = []

    def start(*_: object) -> EndedQuery:
        starts.append(1)
        return EndedQuery(failures.pop(0) if failures else "")

    monkeypatch.setattr("tidewire.pipeline.driver.run.start_archive", start)
    bus = BusSettings("localhost:1", "/data/ChangeEvents", org_id="00D000000000001", token="given")
    config = PipelineConfig(lake, bus, available_now=True)
    spark = cast("SparkSession", object())
    try:
        return run_pipeline(config, threading.Event(), spark=spark, clock=PassingClock()), len(starts)
    except InternalError:
        return read_status(lake), len(starts)


def test_pipeline_that_fails_for_good_is_not_taken_for_one_that_was_asked_to_stop(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = "trace\ntidewire.errors.ReplayIdInvalid: of another log\n"
    monkeypatch.setattr("tidewire.pipeline.driver.run.start_archive", lambda *_: EndedQuery(failure))
    monkeypatch.setattr("tidewire.pipeline.driver.run.start_apply", lambda *_: ActiveQuery())
    bus = BusSettings("localhost:1", "/data/ChangeEvents", org_id="00D000000000001", token="given")
    stop = threading.Event()
    with pytest.raises(ReplayIdInvalid):
        run_pipeline(
            PipelineConfig(lake, bus), stop, spark=cast("SparkSession", object()), clock=ManualClock()
        )
    assert not stop.is_set()
    assert not any(thread.name == "pipeline-worker" for thread in threading.enumerate())
    assert read_status(lake).health == "failed"


def test_run_that_ends_by_itself_tries_again_what_time_may_mend(
    filled: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = "org.apache.spark.SparkException: Python worker failed to connect back."
    status, starts = run_once(
        filled, monkeypatch, [late, "java.io.IOException: No space left on device", late]
    )
    assert (status.health, status.problem, starts) == ("stopped", "", 4)


def test_run_that_ends_by_itself_gives_up_in_the_end_and_says_why(
    filled: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, starts = run_once(filled, monkeypatch, ["Python worker failed to connect back."] * 100)
    assert status.health == "failed"
    assert "Python worker failed to connect back" in status.problem
    assert 1 < starts < 20


def test_failures_are_distinguished_by_whether_they_are_retryable() -> None:
    full = parse_failure("archive", "Caused by: java.io.IOException: No space left on device")
    assert isinstance(full, DiskFull)
    assert is_retryable(full)
    assert is_retryable(InternalError("a worker died"))
    assert is_retryable(SessionInvalid("expired"))
    assert is_retryable(WriteConflict("another writer has changed bronze"))
    assert not is_retryable(
        WriteConflict("this one, of epoch 1, no longer holds the lease and writes nothing")
    )
    assert not is_retryable(LoginFailed("wrong password"))
    assert not is_retryable(ReplayIdInvalid("of another log"))
    expired = parse_failure("archive", "trace\ntidewire.errors.ReplayIdExpired: gone\n")
    assert isinstance(expired, ReplayIdExpired)


def test_system_errors_become_ours_with_the_part_that_met_them() -> None:
    assert isinstance(as_platform_error("compact", OSError(errno.ENOSPC, "full")), DiskFull)
    error = as_platform_error("compact", OSError(errno.EACCES, "denied"))
    assert isinstance(error, InternalError)
    assert error.message.startswith("compact failed: ")
