"""Running the pipeline: one Spark session, the archive and apply queries, one lease."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidewire.clock import Clock, SystemClock
from tidewire.errors import InternalError, PlatformError, StoreClosed, leaf_errors
from tidewire.pipeline.apply import apply_batch
from tidewire.pipeline.archive import archive_batch
from tidewire.pipeline.bus import Bus, BusSettings, render_options
from tidewire.pipeline.lease import hold_lease
from tidewire.pipeline.spans import START
from tidewire.pipeline.spark import start_session
from tidewire.pipeline.status import PipelineStatus, read_status
from tidewire.pipeline.tables import Lake, try_open_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_log = logging.getLogger(__name__)

BatchFunction = Callable[["DataFrame", int], None]
POLL_S = 0.2
_OWN_ERROR = re.compile(r"^tidewire\.errors\.(?P<leaf>\w+): (?P<message>.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PipelineConfig:
    """What to read, where to keep it, and how.

    With `available_now` the pipeline takes what the bus holds, applies it and ends; otherwise it runs until
    told to stop. `starting` is where a new lake begins: 0 for the oldest event the server keeps, or a
    replay id to start after.
    """

    lake: Lake
    bus: BusSettings
    master: str = "local[2]"
    available_now: bool = False
    starting: int = START
    max_rows: int = 20_000
    trigger_ms: int = 200
    settle_s: float = 2.0


class _Gate:
    """Lets a stop wait for the batch at work. Stopping a query inside its batch function ends in noise and
    unclear errors.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_closed = False

    def guard(self, function: BatchFunction) -> BatchFunction:
        """The same function, refusing to start once the gate is closed: the batch stays undone and comes
        again.
        """

        def guarded(batch: DataFrame, batch_id: int) -> None:
            with self._lock:
                if self._is_closed:
                    raise StoreClosed("the pipeline is stopping")
                function(batch, batch_id)

        return guarded

    def stop(self, query: StreamingQuery) -> None:
        """Stop a query between batches."""
        with self._lock:
            self._is_closed = True
            query.stop()


def run_pipeline(
    config: PipelineConfig,
    stop: threading.Event,
    *,
    spark: SparkSession | None = None,
    clock: Clock | None = None,
) -> PipelineStatus:
    """Run both queries until `stop` is set, or until everything available is applied. Blocks; returns the
    final status.

    Raises StoreLocked if another driver runs on the lake, ConfigInvalid if Java is missing, and
    InternalError with Spark's message if a query fails. Stopping and dying are alike to the next run: it
    goes on where the tables stand.
    """
    clock = clock or SystemClock()
    with (
        hold_lease(config.lake.path) as epoch,
        _bus(config, clock) as bus,
        _session(config, spark) as session,
    ):
        archive = archive_batch(config.lake, bus, epoch, clock)
        apply = apply_batch(config.lake, epoch, clock)
        if config.available_now:
            _drain(_start_archive(session, config, archive), stop)
            if not stop.is_set():
                _drain(_start_apply(session, config, apply), stop)
        else:
            gates = (_Gate(), _Gate())
            queries = [
                _start_archive(session, config, gates[0].guard(archive)),
                _start_apply(session, config, gates[1].guard(apply)),
            ]
            try:
                _watch(queries, stop)
            finally:
                for gate, query in zip(gates, queries, strict=True):
                    gate.stop(query)
    return read_status(config.lake)


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


def _start_archive(session: SparkSession, config: PipelineConfig, function: BatchFunction) -> StreamingQuery:
    bronze = try_open_table(config.lake, "bronze")
    # Only for a new or deleted checkpoint: go on where bronze ends.
    starting = config.starting if bronze is None or bronze.committed is None else bronze.committed
    options = render_options(config.bus) | {
        "starting": "earliest" if starting == START else str(starting),
        "max_rows": str(config.max_rows),
        "settle_s": str(config.settle_s),
        "marks": "true",
    }
    rows = session.readStream.format("tidewire").options(**options).load()
    return _start(session, config, "archive", rows, function)


def _start_apply(session: SparkSession, config: PipelineConfig, function: BatchFunction) -> StreamingQuery:
    manifest = try_open_table(config.lake, "manifest")
    starting = START if manifest is None or manifest.committed is None else manifest.committed
    options = {
        "lake": config.lake.path,
        "pipeline": config.lake.pipeline,
        "starting": str(starting),
        "max_rows": str(config.max_rows),
    }
    rows = session.readStream.format("tidewire-bronze").options(**options).load()
    return _start(session, config, "apply", rows, function)


def _start(
    session: SparkSession, config: PipelineConfig, name: str, rows: DataFrame, function: BatchFunction
) -> StreamingQuery:
    # A pool of its own, so that a large apply batch does not hold up the archive.
    session.sparkContext.setLocalProperty("spark.scheduler.pool", name)
    writer = (
        rows.writeStream.queryName(f"{config.lake.pipeline}-{name}")
        .option("checkpointLocation", config.lake.checkpoint(name))
        .foreachBatch(function)
    )
    if config.available_now:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{config.trigger_ms} milliseconds").start()


def _drain(query: StreamingQuery, stop: threading.Event) -> None:
    while query.isActive and not stop.is_set():
        stop.wait(POLL_S)
    if query.isActive:
        query.stop()
    _check(query)


def _watch(queries: list[StreamingQuery], stop: threading.Event) -> None:
    while not stop.wait(POLL_S):
        for query in queries:
            if not query.isActive:
                _check(query)
                raise InternalError(f"the query {query.name} has ended by itself")


def _check(query: StreamingQuery) -> None:
    error = query.exception()
    if error is not None:
        _log.error("pipeline.query_failed", extra={"query": query.name, "reason": str(error)})
        raise parse_failure(query.name, str(error)) from error


def parse_failure(name: str, text: str) -> PlatformError:
    """The error behind a failed query: ours if the stack that Spark passes on ends in one, otherwise
    InternalError.
    """
    leaves = {leaf.__name__: leaf for leaf in leaf_errors()}
    ours = [found for found in _OWN_ERROR.finditer(text) if found["leaf"] in leaves]
    if ours:
        return leaves[ours[-1]["leaf"]](f"the query {name} failed: {ours[-1]['message']}", query=name)
    first_line = next((line for line in text.splitlines() if line.strip()), "no reason given")
    return InternalError(f"the query {name} failed: {first_line}", query=name)
