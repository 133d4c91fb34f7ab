"""Run the pipeline: one lease, one Spark session, the archive and apply queries, one worker.

A query that fails with a retryable error (an unreachable server, a full disk, a lost executor) is restarted
with backoff; meanwhile the status has the reason. A run that ends by itself retries a few times. If the
position has expired at the server, the gap is recovered first (gap_recovery.py). Any other error ends the
pipeline.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidewire.clock import Clock, SystemClock
from tidewire.errors import InternalError, PlatformError, ReplayIdExpired, SessionError
from tidewire.pipeline.apply.batch import apply_batch
from tidewire.pipeline.driver.checkpoints import drop_checkpoint
from tidewire.pipeline.driver.queries import (
    APPLY,
    ARCHIVE,
    POLL_S,
    BatchFunction,
    Gate,
    PipelineConfig,
    drain,
    parse_failure,
    start_apply,
    start_archive,
    try_head,
)
from tidewire.pipeline.driver.supervision import SupervisedQuery, is_retryable
from tidewire.pipeline.driver.worker import Worker
from tidewire.pipeline.lake import manifest
from tidewire.pipeline.lake.control import open_resyncs
from tidewire.pipeline.lake.lease import check_lease, hold_lease
from tidewire.pipeline.lake.tables import Lake, try_committed
from tidewire.pipeline.source.archive import archive_batch
from tidewire.pipeline.source.bus import Bus
from tidewire.pipeline.source.log_origin import check_origin
from tidewire.pipeline.source.records_reader import RecordsReader
from tidewire.pipeline.spark import open_session
from tidewire.pipeline.status.health import Health, StatusReporter
from tidewire.pipeline.status.lake_status import PipelineStatus
from tidewire.pipeline.status.metrics import serve_metrics
from tidewire.pipeline.upkeep import gap_recovery, snapshot
from tidewire.pipeline.upkeep.backoff import Backoff
from tidewire.pipeline.upkeep.fenced_reads import has_unapplied_reads

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["PipelineConfig", "parse_failure", "run_pipeline"]

_log = logging.getLogger(__name__)
_LONGEST_S = 60.0
_MAX_ROUNDS = 50
_MAX_TRIES = 4
"""How often a run that ends by itself tries after retryable errors."""
_MAX_STARTS = 12
"""How often it tries after Spark's own failures: on a busy machine its workers often start too late."""
_PATIENCE_S = 10.0

Report = Callable[[str], None]
"""Called with a line about what a run that ends by itself is doing."""
Show = Callable[[str, int, int | None], None]
"""Called with progress: what, how many, and of how many if known."""


def run_pipeline(
    config: PipelineConfig,
    stop: threading.Event,
    *,
    spark: SparkSession | None = None,
    clock: Clock | None = None,
    report: Report | None = None,
    show: Show | None = None,
) -> PipelineStatus:
    """Run until `stop` is set, or until everything available is applied. Blocks; returns the final status.

    Raises StoreLocked if another driver runs on the lake, ConfigInvalid if Java is missing, and any error of
    a query that no retry can fix. Stopping and dying are the same to the next run: it continues where the
    tables end.
    """
    clock = clock or SystemClock()
    health = Health()
    with hold_lease(config.lake.path) as epoch:
        run = _Run(config, epoch, clock, health, stop, report or _quiet, show or _quiet)
        reporter = run.reporter
        reporter.start()
        try:
            with (
                serve_metrics(config.metrics, lambda: reporter.last),
                open_session(config.master, config.spark_settings, spark, stop) as session,
            ):
                if session is not None:
                    run.run(session)
        except PlatformError as error:
            health.has_stopped(error)
            raise
        except Exception as error:
            failure = _describe_crash(error)
            health.has_stopped(failure)
            raise failure from error
        else:
            health.has_stopped()
        finally:
            status = reporter.stop()
    return status


def _describe_crash(error: Exception) -> InternalError:
    """Return the error for an unexpected exception, above all of a JVM that has died."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, ConnectionError | EOFError) or type(error).__name__.startswith("Py4J"):
        return InternalError(f"Spark's Java process is gone ({text}); start the pipeline again to continue")
    return InternalError(f"the pipeline has failed: {text}")


def _quiet(*_: object) -> None:
    """No-op: the default for `report` and `show`."""


@dataclass
class _Run:
    """One run of the pipeline, while the lease is held."""

    _config: PipelineConfig
    _epoch: int
    _clock: Clock
    _health: Health
    _stop: threading.Event
    _report: Report
    _show: Show
    _archive: SupervisedQuery | None = None

    def __post_init__(self) -> None:
        lake = self._config.lake
        self.reporter = StatusReporter(lake, self._clock, self._health, self.head, self._epoch)

    def head(self) -> int | None:
        """Return the end of the server's log, as far as the archive query knows."""
        query = self._archive.query if self._archive is not None else None
        return try_head(query) if query is not None else None

    def run(self, session: SparkSession) -> None:
        """Run to the end. Blocks."""
        config = self._config
        with closing(Bus(config.bus, self._clock)) as bus, _reader(config) as reader:
            worker = Worker(config, self._epoch, self._clock, self._health, session, reader)
            archive = archive_batch(config.lake, self._epoch, self._clock)
            apply = apply_batch(config.lake, self._epoch, self._clock)
            if _is_new(config) or config.available_now:
                self._attempt("start", lambda: self._begin(bus, reader))
            if self._stop.is_set():
                return
            if config.available_now:
                self._run_once(session, worker, bus, archive, apply)
            else:
                self._follow(session, worker, bus, archive, apply)

    def _begin(self, bus: Bus, reader: RecordsReader | None) -> None:
        config = self._config
        check_origin(config.lake, bus)
        if reader is not None and config.snapshot and _is_new(config):
            self._report("requesting a snapshot of all records")
            snapshot.start(config.lake, self._epoch, reader, self._clock)

    def _attempt(self, part: str, work: Callable[[], None]) -> None:
        """Call a function, with retries after retryable errors.

        A continuous run retries forever, a run that ends by itself a few times.
        """
        is_short = self._config.available_now
        backoff = Backoff(self._clock, longest_s=_PATIENCE_S if is_short else _LONGEST_S)
        while not self._stop.is_set():
            if not backoff.is_due(part):
                self._stop.wait(POLL_S)
                continue
            check_lease(self._config.lake.path, self._epoch)
            try:
                work()
            except PlatformError as error:
                tries = backoff.failed(part)
                most = _MAX_STARTS if isinstance(error, InternalError) else _MAX_TRIES
                if not self._is_retryable(error) or (is_short and tries >= most):
                    raise
                if tries > 1 and isinstance(error, InternalError):
                    drop_checkpoint(self._config.lake, part, "the query keeps failing")
                self._health.fails(part, error)
                self._report(f"retrying: {error.message}")
            else:
                self._health.works(part)
                return

    def _is_retryable(self, error: PlatformError) -> bool:
        """Return whether an error is retryable. An expired session cannot be renewed without a password."""
        return is_retryable(error) and not (isinstance(error, SessionError) and not self._config.bus.username)

    def _run_once(
        self, session: SparkSession, worker: Worker, bus: Bus, archive: BatchFunction, apply: BatchFunction
    ) -> None:
        config = self._config
        self._health.is_running()
        for _ in range(_MAX_ROUNDS):
            self._report("archiving what the server has")
            self._attempt(ARCHIVE, lambda: self._archive_once(session, bus, archive))
            # Starting a query takes seconds, so one that would find nothing is not started.
            if not self._stop.is_set() and _is_behind(config.lake):
                self._report("applying what is archived")
                self._attempt(
                    APPLY, lambda: drain(start_apply(session, config, apply), self._stop, self._show_applied)
                )
            if self._stop.is_set() or not self._read_records(worker):
                break
        if not self._stop.is_set():
            self._report("folding replicas")
            worker.fold_all(self._show)

    def _archive_once(self, session: SparkSession, bus: Bus, archive: BatchFunction) -> None:
        try:
            drain(start_archive(session, self._config, archive), self._stop, self._show_archived)
        except ReplayIdExpired as error:
            self._health.fails(ARCHIVE, error)
            self._report("the server has dropped the next events; recovering")
            self._recover(bus)
            drain(start_archive(session, self._config, archive), self._stop, self._show_archived)

    def _show_archived(self) -> None:
        self._show("archived events", self.reporter.last.archived, None)

    def _show_applied(self) -> None:
        status = self.reporter.last
        self._show("applied events", status.archived - status.waiting, status.archived)

    def _read_records(self, worker: Worker) -> bool:
        """Read what must be read; return whether apply must advance."""
        has_read = False
        worker.refresh()
        while not self._stop.is_set() and (worker.reconcile() or worker.resync(self._show)):
            if not has_read:
                self._report("reading records")
            has_read = True
        return has_read and (bool(open_resyncs(self._config.lake)) or has_unapplied_reads(self._config.lake))

    def _follow(
        self, session: SparkSession, worker: Worker, bus: Bus, archive: BatchFunction, apply: BatchFunction
    ) -> None:
        config = self._config

        def start(gate: Gate) -> StreamingQuery:
            check_origin(config.lake, bus)
            return start_archive(session, config, gate.guard(archive))

        queries = [
            SupervisedQuery(
                config.lake, ARCHIVE, start, self._clock, self._is_retryable, lambda: self._recover(bus)
            ),
            SupervisedQuery(
                config.lake,
                APPLY,
                lambda gate: start_apply(session, config, gate.guard(apply)),
                self._clock,
                self._is_retryable,
            ),
        ]
        self._archive = queries[0]
        # Not the event of a signal: setting that would start the grace period of a requested stop.
        halt = threading.Event()
        thread = threading.Thread(target=worker.run, args=(halt,), name="pipeline-worker")
        self._health.is_running()
        try:
            self._check(queries)
            thread.start()
            while not self._stop.wait(POLL_S):
                check_lease(config.lake.path, self._epoch)
                self._check(queries)
        finally:
            halt.set()
            for each in queries:
                each.stop()
            if thread.is_alive():
                thread.join()

    def _check(self, queries: Sequence[SupervisedQuery]) -> None:
        """Check each query. Starting one takes seconds, so a stop may come in between."""
        for each in queries:
            if self._stop.is_set():
                return
            each.check(self._health)

    def _recover(self, bus: Bus) -> None:
        """Continue although the server has dropped the next events.

        Raises ReplayIdExpired if that is impossible.
        """
        config = self._config
        # A separate reader: the worker uses its own on another thread, and a reader is for one thread.
        with _reader(config) as reader:
            if reader is None:
                raise ReplayIdExpired(
                    "the server no longer has the events that come next, and without a login records cannot be "
                    "read instead"
                )
            recovery = gap_recovery.recover_expired(
                config.lake, self._epoch, reader, bus, self._clock, config.heal_from
            )
        _log.warning("pipeline.healed", extra={"action": recovery.action, "position": recovery.position})


def _is_new(config: PipelineConfig) -> bool:
    return try_committed(config.lake, "bronze") is None


def _is_behind(lake: Lake) -> bool:
    """Return whether bronze reaches further than the manifest."""
    archived, applied = try_committed(lake, "bronze"), try_committed(lake, manifest.TABLE)
    return archived is not None and (applied is None or archived > applied)


def _reader(config: PipelineConfig) -> AbstractContextManager[RecordsReader | None]:
    return closing(RecordsReader(config.bus)) if config.has_records else nullcontext()
