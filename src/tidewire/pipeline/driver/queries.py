"""The two streaming queries: how they are started, stopped between batches, and what their failures mean."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidewire.errors import DiskFull, InternalError, LogCorrupt, PlatformError, StoreClosed, leaf_errors
from tidewire.pipeline.driver.checkpoints import check_checkpoint
from tidewire.pipeline.lake.spans import START
from tidewire.pipeline.lake.tables import Lake, try_committed
from tidewire.pipeline.source.bus import BusSettings, render_options
from tidewire.pipeline.source.offsets import parse_offset
from tidewire.pipeline.upkeep.compaction import CompactionRules
from tidewire.pipeline.upkeep.maintain import FoldRules

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ARCHIVE, APPLY = "archive", "apply"
POLL_S = 0.2
BatchFunction = Callable[["DataFrame", int], None]
_OWN_ERROR = re.compile(r"^tidewire\.errors\.(?P<leaf>\w+): (?P<message>.+)$", re.MULTILINE)
_NO_SPACE = re.compile(r"No space left on device|Disk quota exceeded|os error (28|122)\b")
_DAMAGED = re.compile(
    r"ArrowInvalid: .*Parquet.*|OSError: .*(Parquet|deserialize thrift|Unexpected end of stream).*"
    r"|FileNotFoundError: .*\.parquet.*|Incomplete log file.*"
)


@dataclass(frozen=True, slots=True)
class PipelineConfig:
    """What to read, where to store it, and how.

    With `available_now` the pipeline takes what the bus holds, applies it, reads what must be read, folds and
    ends; otherwise it runs until it is stopped. `starting` is where a new lake begins: 0 for the oldest event
    that the server keeps, or a replay id to start after. With `snapshot` a new lake begins with a copy of the
    records instead. Records can be read only if `bus` has a login. `metrics` is the Prometheus listener's
    HOST:PORT; `spark_settings` are added to our own; `heal_from` is a lake with an older archive.
    """

    lake: Lake
    bus: BusSettings
    master: str = "local[2]"
    spark_settings: Mapping[str, str] = field(default_factory=dict)
    available_now: bool = False
    starting: int = START
    max_rows: int = 20_000
    trigger_ms: int = 200
    settle_s: float = 2.0
    snapshot: bool = False
    metrics: str = ""
    heal_from: Lake | None = None
    folding: FoldRules = field(default_factory=FoldRules)
    compaction: CompactionRules = field(default_factory=CompactionRules)

    @property
    def has_records(self) -> bool:
        """Return whether records can be read: a token alone does not say from where."""
        return bool(self.bus.login_url)


class Gate:
    """Makes a stop wait for the current batch.

    Stopping a query inside its batch function ends in noise and unclear errors.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_closed = False
        self._is_idle = threading.Event()
        self._is_idle.set()

    def guard(self, function: BatchFunction) -> BatchFunction:
        """Wrap a batch function to fail once the gate is closed: the batch is not done and will be repeated."""

        def guarded(batch: DataFrame, batch_id: int) -> None:
            with self._lock:
                if self._is_closed:
                    raise StoreClosed("the pipeline is stopping")
                self._is_idle.clear()
            try:
                function(batch, batch_id)
            finally:
                self._is_idle.set()

        return guarded

    def stop(self, query: StreamingQuery) -> None:
        """Stop a query between batches."""
        with self._lock:
            self._is_closed = True
        self._is_idle.wait()
        # Without the lock: Spark waits here for its stream thread, which may be about to enter the guard.
        query.stop()


def start_archive(session: SparkSession, config: PipelineConfig, function: BatchFunction) -> StreamingQuery:
    """Start the query from the bus to bronze."""
    committed = try_committed(config.lake, "bronze")
    check_checkpoint(config.lake, ARCHIVE, committed)
    # Only for a new or deleted checkpoint: continue where bronze ends.
    starting = config.starting if committed is None else committed
    options = render_options(config.bus) | {
        "starting": "earliest" if starting == START else str(starting),
        "max_rows": str(config.max_rows),
        "settle_s": str(config.settle_s),
        "bronze": config.lake.path,
        "archive_pipeline": config.lake.pipeline,
    }
    rows = session.readStream.format("tidewire").options(**options).load()
    return _start(session, config, ARCHIVE, rows, function)


def start_apply(session: SparkSession, config: PipelineConfig, function: BatchFunction) -> StreamingQuery:
    """Start the query from bronze to history."""
    committed = try_committed(config.lake, "manifest")
    check_checkpoint(config.lake, APPLY, committed)
    options = {
        "lake": config.lake.path,
        "pipeline": config.lake.pipeline,
        "starting": str(committed or START),
        "max_rows": str(config.max_rows),
    }
    rows = session.readStream.format("tidewire-bronze").options(**options).load()
    return _start(session, config, APPLY, rows, function)


def _start(
    session: SparkSession, config: PipelineConfig, name: str, rows: DataFrame, function: BatchFunction
) -> StreamingQuery:
    # A separate scheduler pool, so that a large apply batch does not delay the archive.
    session.sparkContext.setLocalProperty("spark.scheduler.pool", name)
    writer = (
        rows.writeStream.queryName(f"{config.lake.pipeline}-{name}")
        .option("checkpointLocation", config.lake.checkpoint(name))
        .foreachBatch(function)
    )
    if config.available_now:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{config.trigger_ms} milliseconds").start()


def drain(query: StreamingQuery, stop: threading.Event, show: Callable[[], None] | None = None) -> None:
    """Wait until a bounded query ends, or `stop`; `show` is called repeatedly. Raises the query's error."""
    while query.isActive and not stop.is_set():
        if show is not None:
            show()
        stop.wait(POLL_S)
    if query.isActive:
        query.stop()
    failure = try_failure(query)
    if failure is not None:
        raise failure


def try_failure(query: StreamingQuery) -> PlatformError | None:
    """Return why a query ended; None if it did not fail."""
    error = query.exception()
    return None if error is None else parse_failure(str(query.name), str(error))


def try_head(query: StreamingQuery) -> int | None:
    """Return the end of the server's log when a query last asked; None if unknown."""
    try:
        progress = query.lastProgress
        sources = progress["sources"] if progress is not None else []
        text = sources[0]["latestOffset"] if sources else None
        return parse_offset(text if isinstance(text, dict) else json.loads(str(text))).position
    except Exception:  # noqa: BLE001 - a query that is ending says anything here, and nothing depends on it
        return None


def parse_failure(name: str, text: str) -> PlatformError:
    """Return the error behind a failed query.

    One of ours if the stack that Spark passes on ends in one, DiskFull if the disk is full, LogCorrupt if a
    file of the lake cannot be read, otherwise InternalError.
    """
    leaves = {leaf.__name__: leaf for leaf in leaf_errors()}
    ours = [found for found in _OWN_ERROR.finditer(text) if found["leaf"] in leaves]
    if ours:
        return leaves[ours[-1]["leaf"]](f"the query {name} failed: {ours[-1]['message']}", query=name)
    if _NO_SPACE.search(text):
        return DiskFull(f"the query {name} failed: there is no room left on the disk of the lake", query=name)
    damage = _DAMAGED.search(text)
    if damage:
        return LogCorrupt(
            f"the query {name} failed: a file of the lake is damaged or missing ({damage[0][:300]}); restore it "
            "from a backup, or start a new lake",
            query=name,
        )
    first_line = next((line for line in text.splitlines() if line.strip()), "no reason given")
    return InternalError(f"the query {name} failed: {first_line}", query=name)
