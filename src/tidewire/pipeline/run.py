"""Running the pipeline: one lease, one Spark session, the archive and apply queries, one worker.

A query that fails in a way that time can mend (a dead source, a full disk, a lost executor) is started again,
soon at first, then less and less often; meanwhile the status says why. One whose position has expired at the
server is healed first (healing.py). Anything else ends the pipeline with its error.
"""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tidewire.clock import Clock, SystemClock
from tidewire.errors import (
    InternalError,
    LoginFailed,
    PlatformError,
    ReplayIdExpired,
    SessionError,
    WriteConflict,
)
from tidewire.pipeline import healing, manifest, snapshot
from tidewire.pipeline.apply import apply_batch
from tidewire.pipeline.archive import archive_batch
from tidewire.pipeline.backoff import Backoff
from tidewire.pipeline.bus import Bus
from tidewire.pipeline.control import open_resyncs
from tidewire.pipeline.health import Health, Teller
from tidewire.pipeline.lease import hold_lease
from tidewire.pipeline.metrics import serve_metrics
from tidewire.pipeline.queries import (
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
    try_failure,
    try_head,
)
from tidewire.pipeline.reads import has_waiting_reads
from tidewire.pipeline.records_reading import RecordsReader
from tidewire.pipeline.spark import start_session
from tidewire.pipeline.status import PipelineStatus
from tidewire.pipeline.tables import Lake, try_open_table
from tidewire.pipeline.worker import Worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["PipelineConfig", "parse_failure", "run_pipeline"]

_log = logging.getLogger(__name__)
_LONGEST_S = 60.0
_WELL_S = 10.0
"""A query that has run for so long is well again."""
_MAX_ROUNDS = 50
_LEASE_LOST = "no longer holds the lease"

Report = Callable[[str], None]
"""Told in a line what a run that ends by itself is doing."""


def run_pipeline(
    config: PipelineConfig,
    stop: threading.Event,
    *,
    spark: SparkSession | None = None,
    clock: Clock | None = None,
    report: Report | None = None,
) -> PipelineStatus:
    """Run until `stop` is set, or until everything available is applied. Blocks; returns the final status.

    Raises StoreLocked if another driver runs on the lake, ConfigInvalid if Java is missing, and what a query
    failed with if trying again cannot help. Stopping and dying are alike to the next run: it goes on where
    the tables stand.
    """
    clock = clock or SystemClock()
    health = Health()
    with hold_lease(config.lake.path) as epoch:
        run = _Run(config, epoch, clock, health, stop, report or _quiet)
        teller = Teller(config.lake, clock, health, run.head)
        teller.start()
        try:
            with serve_metrics(config.metrics, lambda: teller.last), _session(config, spark) as session:
                run.run(session)
        except PlatformError as error:
            health.has_stopped(error)
            raise
        except Exception as error:
            # A JVM that is gone, above all: whatever its bridge raises then is no error of ours.
            failure = InternalError(f"the pipeline has failed: {type(error).__name__}: {error}")
            health.has_stopped(failure)
            raise failure from error
        else:
            health.has_stopped()
        finally:
            status = teller.stop()
    return status


def _quiet(line: str) -> None:
    """Nobody is there to be told."""


class _Run:
    """One run of the pipeline, from lease to lease."""

    def __init__(
        self,
        config: PipelineConfig,
        epoch: int,
        clock: Clock,
        health: Health,
        stop: threading.Event,
        report: Report,
    ) -> None:
        self._config = config
        self._epoch = epoch
        self._clock = clock
        self._health = health
        self._stop = stop
        self._report = report
        self._archive: _Supervised | None = None

    def head(self) -> int | None:
        """Where the server's log stands, as far as the archive query has seen."""
        query = self._archive.query if self._archive is not None else None
        return try_head(query) if query is not None else None

    def run(self, session: SparkSession) -> None:
        """Run to the end. Blocks."""
        config = self._config
        with _bus(config, self._clock) as bus, _reader(config) as reader:
            worker = Worker(config, self._epoch, self._clock, self._health, session, reader)
            archive = archive_batch(config.lake, self._epoch, self._clock)
            apply = apply_batch(config.lake, self._epoch, self._clock)
            if reader is not None and config.snapshot and _is_new(config):
                self._report("asking for a copy of all records")
                snapshot.start(config.lake, self._epoch, reader, self._clock)
            if config.available_now:
                self._run_once(session, worker, archive, apply)
            else:
                self._follow(session, worker, bus, archive, apply)

    def _run_once(
        self, session: SparkSession, worker: Worker, archive: BatchFunction, apply: BatchFunction
    ) -> None:
        self._health.is_running()
        for _ in range(_MAX_ROUNDS):
            self._report("archiving what the server has")
            drain(start_archive(session, self._config, archive), self._stop)
            # Starting a query takes seconds, so one that would find nothing is not started.
            if not self._stop.is_set() and _is_behind(self._config.lake):
                self._report("applying what is archived")
                drain(start_apply(session, self._config, apply), self._stop)
            if self._stop.is_set() or not self._read_records(worker):
                break
        if not self._stop.is_set():
            self._report("folding replicas")
            worker.fold_all()

    def _read_records(self, worker: Worker) -> bool:
        """Read what must be read; returns whether anything was that apply has to pass."""
        has_read = False
        worker.refresh()
        while not self._stop.is_set() and (worker.reconcile() or worker.resync()):
            if not has_read:
                self._report("reading records")
            has_read = True
        return has_read and (bool(open_resyncs(self._config.lake)) or has_waiting_reads(self._config.lake))

    def _follow(
        self,
        session: SparkSession,
        worker: Worker,
        bus: Bus,
        archive: BatchFunction,
        apply: BatchFunction,
    ) -> None:
        config = self._config

        def heal() -> None:
            self._heal(bus)

        queries = [
            _Supervised(
                ARCHIVE, lambda gate: start_archive(session, config, gate.guard(archive)), self._clock, heal
            ),
            _Supervised(APPLY, lambda gate: start_apply(session, config, gate.guard(apply)), self._clock),
        ]
        self._archive = queries[0]
        thread = threading.Thread(target=worker.run, args=(self._stop,), name="pipeline-worker")
        self._health.is_running()
        try:
            self._check(queries)
            thread.start()
            while not self._stop.wait(POLL_S):
                self._check(queries)
        finally:
            self._stop.set()
            for each in queries:
                each.stop()
            if thread.is_alive():
                thread.join()

    def _check(self, queries: Sequence[_Supervised]) -> None:
        """Look after each query. Starting one takes seconds, so a stop may come in between."""
        for each in queries:
            if self._stop.is_set():
                return
            each.check(self._health)

    def _heal(self, bus: Bus) -> None:
        """Go on although the server no longer has what comes next. Raises ReplayIdExpired if there is no way."""
        config = self._config
        # The worker reads records on its own thread meanwhile, and a reader serves one thread.
        with _reader(config) as reader:
            if reader is None:
                raise ReplayIdExpired(
                    "the server no longer has the events that come next, and without a login records cannot be "
                    "read instead"
                )
            healed = healing.heal_expired(
                config.lake, self._epoch, reader, bus, self._clock, config.heal_from
            )
        # The stream's own idea of where it was is what has expired; bronze says where to go on.
        shutil.rmtree(config.lake.checkpoint(ARCHIVE), ignore_errors=True)
        _log.warning("pipeline.healed", extra={"action": healed.action, "position": healed.position})


class _Supervised:
    """A query that is started again when it fails."""

    def __init__(
        self,
        name: str,
        start: Callable[[Gate], StreamingQuery],
        clock: Clock,
        heal: Callable[[], None] | None = None,
    ) -> None:
        self.query: StreamingQuery | None = None
        self._name = name
        self._start = start
        self._clock = clock
        self._heal = heal
        self._gate = Gate()
        self._backoff = Backoff(clock, longest_s=_LONGEST_S)
        self._started_s = 0.0
        self._must_heal = False

    def check(self, health: Health) -> None:
        """Start the query if it is due; see whether it still runs. Raises what nothing can mend."""
        if self.query is None:
            if self._backoff.is_due(self._name):
                self._try_start(health)
            return
        if self.query.isActive:
            if self._clock.monotonic_s() - self._started_s >= _WELL_S:
                self._backoff.succeeded(self._name)
                health.works(self._name)
            return
        error = try_failure(self.query) or InternalError(f"the query {self._name} has ended by itself")
        self.query = None
        self._fail(error, health)

    def stop(self) -> None:
        """Stop the query between batches, if it runs."""
        if self.query is not None:
            self._gate.stop(self.query)

    def _try_start(self, health: Health) -> None:
        try:
            if self._must_heal and self._heal is not None:
                self._heal()
                self._must_heal = False
            self._gate = Gate()
            self._started_s = self._clock.monotonic_s()
            self.query = self._start(self._gate)
        except PlatformError as error:
            self._fail(error, health)

    def _fail(self, error: PlatformError, health: Health) -> None:
        if isinstance(error, ReplayIdExpired) and self._heal is not None and not self._must_heal:
            self._must_heal = True
        elif not can_mend(error):
            raise error
        health.fails(self._name, error)
        self._backoff.failed(self._name)


def can_mend(error: PlatformError) -> bool:
    """Whether time may mend what a query failed with."""
    if isinstance(error, WriteConflict):
        return _LEASE_LOST not in error.message
    if isinstance(error, LoginFailed):
        return False
    return error.retryable or isinstance(error, InternalError | SessionError)


def _is_new(config: PipelineConfig) -> bool:
    bronze = try_open_table(config.lake, "bronze")
    return bronze is None or bronze.committed is None


def _is_behind(lake: Lake) -> bool:
    """Whether bronze reaches further than the manifest."""
    bronze, applied = try_open_table(lake, "bronze"), try_open_table(lake, manifest.TABLE)
    if bronze is None or bronze.committed is None:
        return False
    return applied is None or applied.committed is None or bronze.committed > applied.committed


@contextmanager
def _session(config: PipelineConfig, spark: SparkSession | None) -> Iterator[SparkSession]:
    """The caller's session, or one of our own that ends with us."""
    if spark is not None:
        yield spark
        return
    session = start_session(config.master)
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def _bus(config: PipelineConfig, clock: Clock) -> Iterator[Bus]:
    bus = Bus(config.bus, clock)
    try:
        yield bus
    finally:
        bus.close()


@contextmanager
def _reader(config: PipelineConfig) -> Iterator[RecordsReader | None]:
    if not config.has_records:
        yield None
        return
    reader = RecordsReader(config.bus)
    try:
        yield reader
    finally:
        reader.close()
