"""The Spark data source `tidewire`: a channel of the Pub/Sub API as a streaming or batch DataFrame.

    spark.dataSource.register(TidewireSource)
    spark.readStream.format("tidewire").option("endpoint", "localhost:7011").option("topic", ...)

Options: endpoint, topic; token and org_id, or username, password, login_url and optionally client_id and
client_secret; tls_ca (path) or tls; export (log_export.py); archive (a lake, archive_replay.py); starting
(`earliest`, `latest`, a replay id to read after, or a time), max_rows per batch, rows_per_partition, settle_s,
retry_s, marks, skip_origins (change_origin_filter.py). With bronze (a lake), which the archive query uses, tasks
write the events to that lake's table `bronze` and the rows are their receipts (receipts.py), so that events never
cross into the JVM.

Offsets are positions (offsets.py). A partition is a span of positions, and reading it is a pure function of the
span. With `marks`, each partition ends with a watermark: a row without payload whose replay_id is the end of the
span and whose transaction_last is its start (watermarks.py).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tidewire.client.pubsub_messages import Received
from tidewire.clock import SystemClock
from tidewire.errors import ConfigInvalid, PlatformError
from tidewire.pipeline.lake.receipts import RECEIPT_DDL
from tidewire.pipeline.lake.schemas import LakeSchemas
from tidewire.pipeline.lake.spans import Span
from tidewire.pipeline.lake.tables import Lake, load_shared_table, parse_ddl
from tidewire.pipeline.lake.watermarks import render_watermark
from tidewire.pipeline.source.archive_replay import HybridPlanner, read_archive
from tidewire.pipeline.source.bronze_files import BronzeTask
from tidewire.pipeline.source.bus import (
    SERVER_OPTIONS,
    TRANSACTION_LAST,
    Bus,
    BusSettings,
    check_names,
    parse_flag,
    parse_number,
    parse_settings,
    position_after,
)
from tidewire.pipeline.source.change_origin_filter import OriginFilter, parse_origins
from tidewire.pipeline.source.log_export import LogExport
from tidewire.pipeline.source.log_origin import check_archive
from tidewire.pipeline.source.offsets import Offset, parse_offset, render_offset
from tidewire.pipeline.source.plans import (
    ArchivePartition,
    ExportPartition,
    Partition,
    SourcePlanner,
    SpanPartition,
    open_planner,
)

ROWS_DDL = (
    "replay_id LONG, event_id STRING, schema_id STRING, payload BINARY, transaction_last LONG, topic STRING"
)
ROWS = parse_ddl(ROWS_DDL)
BATCH_ROWS = 2_000
EARLIEST = "earliest"
_WORDS = (EARLIEST, "latest")
_MAX_POSITION = (1 << 63) - 1
OPTIONS = SERVER_OPTIONS | {
    "starting",
    "max_rows",
    "rows_per_partition",
    "marks",
    "archive",
    "archive_pipeline",
    "bronze",
    "skip_origins",
}


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """How a channel is read.

    `starting` is `earliest`, `latest`, a position, or `@` and a time in milliseconds. `rows_per_partition` 0
    lets the source choose. `archive` is a lake to read from first and `bronze` one to write to; empty for
    none. Changes of `skip_origins` are omitted from the rows, but never from bronze.
    """

    starting: int | str = EARLIEST
    max_rows: int = 20_000
    rows_per_partition: int = 0
    settle_s: float = 2.0
    with_watermarks: bool = False
    archive: str = ""
    archive_pipeline: str = "main"
    bronze: str = ""
    skip_origins: frozenset[str] = frozenset()


def parse_read_settings(options: Mapping[str, str]) -> ReadSettings:
    """Parse reader options. Raises ConfigInvalid."""
    defaults = ReadSettings()
    return ReadSettings(
        starting=_parse_starting(options.get("starting", "") or EARLIEST),
        max_rows=max(1, int(parse_number(options, "max_rows", defaults.max_rows))),
        rows_per_partition=int(parse_number(options, "rows_per_partition", 0)),
        settle_s=parse_number(options, "settle_s", defaults.settle_s),
        with_watermarks=parse_flag(options, "marks"),
        archive=options.get("archive", ""),
        archive_pipeline=options.get("archive_pipeline", "") or defaults.archive_pipeline,
        bronze=options.get("bronze", ""),
        skip_origins=parse_origins(options.get("skip_origins", "")),
    )


def _parse_starting(text: str) -> int | str:
    if text in _WORDS:
        return text
    if text.isascii() and text.isdecimal() and len(text) < 20 and int(text) <= _MAX_POSITION:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigInvalid(
            f"the option 'starting' must be 'earliest', 'latest', a replay id or a time, not {text!r}",
            setting="starting",
        ) from error
    return f"@{round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)}"


def read_partition(
    settings: BusSettings, read_settings: ReadSettings, part: Partition
) -> Iterator[pa.RecordBatch]:
    """Yield the events of a partition, then its watermark if asked for. Runs on an executor; blocks."""
    rows = _read_rows(settings, read_settings, part)
    if read_settings.skip_origins and not read_settings.bronze:
        yield from OriginFilter(
            read_settings.skip_origins, _schema_loader(settings, read_settings, part)
        ).filter_batches(rows)
    else:
        yield from rows
    if read_settings.with_watermarks:
        yield render_watermark(part.span, ROWS, "transaction_last", topic=settings.topic)


def _read_rows(
    settings: BusSettings, read_settings: ReadSettings, part: Partition
) -> Iterator[pa.RecordBatch]:
    match part:
        case SpanPartition():
            return read_span(settings, part)
        case ExportPartition():
            return _read_export(settings, part)
        case ArchivePartition():
            lake = Lake(read_settings.archive, read_settings.archive_pipeline)
            return read_archive(lake, part, ROWS, BATCH_ROWS)


def _schema_loader(
    settings: BusSettings, read_settings: ReadSettings, part: Partition
) -> Callable[[str], str]:
    """Return a function that loads a partition's schemas.

    Archived ones come from the lake, since the server may have dropped them.
    """
    session = None if isinstance(part, ArchivePartition) else part.session
    bus = Bus(settings, SystemClock(), session)
    archived = LakeSchemas(Lake(read_settings.archive)) if isinstance(part, ArchivePartition) else {}
    return lambda schema_id: archived.get(schema_id) or bus.schema_json(schema_id)


def _read_export(settings: BusSettings, part: ExportPartition) -> Iterator[pa.RecordBatch]:
    with closing(LogExport(Bus(settings, SystemClock(), part.session), part.url)) as export:
        for batch in export.read(part.span):
            yield pa.RecordBatch.from_arrays(batch.columns, schema=ROWS)


def read_span(settings: BusSettings, part: SpanPartition) -> Iterator[pa.RecordBatch]:
    """Yield the events of a span from a subscription."""
    if part.last_row is None:
        return
    bus = Bus(settings, SystemClock(), part.session)
    waiting: list[Received] = []
    reached = part.span.after
    for fetched in bus.stream(part.span.after, threading.Event()):
        waiting += [event for event in fetched.events if event.replay_id <= part.span.through]
        reached = position_after(fetched, reached)
        if len(waiting) >= BATCH_ROWS or reached >= part.last_row:
            yield _render_rows(waiting, settings.topic)
            waiting = []
        if reached >= part.last_row:
            return


def _render_rows(events: Sequence[Received], topic: str) -> pa.RecordBatch:
    lasts = [event.headers.get(TRANSACTION_LAST) for event in events]
    columns = [
        [event.replay_id for event in events],
        [event.event_id for event in events],
        [event.schema_id for event in events],
        [event.payload for event in events],
        [int(last) if last else None for last in lasts],
        [topic] * len(events),
    ]
    arrays = [pa.array(values, kind) for values, kind in zip(columns, ROWS.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ROWS)


def _open_planner(bus: Bus, read_settings: ReadSettings) -> SourcePlanner:
    planner = open_planner(bus, SystemClock(), read_settings.settle_s)
    if not read_settings.archive:
        return planner
    lake = Lake(read_settings.archive, read_settings.archive_pipeline)
    try:
        if not os.path.isdir(lake.path):
            raise ConfigInvalid(f"there is no lake at {lake.path}", setting="archive")
        check_archive(lake, bus)
    except PlatformError:
        planner.close()
        raise
    return HybridPlanner(lake, planner)


@dataclass(frozen=True)
class BronzePartition(InputPartition):
    """A partition to write to bronze, which already holds everything up to `floor`."""

    part: Partition
    floor: int


def write_partition(
    settings: BusSettings, read_settings: ReadSettings, part: BronzePartition
) -> Iterator[pa.RecordBatch]:
    """Write the events of a partition to bronze and yield the receipts. Runs on an executor; blocks."""
    lake = Lake(read_settings.bronze, read_settings.archive_pipeline)
    session = None if isinstance(part.part, ArchivePartition) else part.part.session
    task = BronzeTask(lake.table("bronze"), part.floor, LakeSchemas(lake), settings, session)
    return task.write(read_partition(settings, replace(read_settings, with_watermarks=True), part.part))


class TidewireStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches in the driver; `read` runs on executors.

    Spark pickles this object for executors, so state of the driver is created on first use.
    """

    def __init__(self, bus_settings: BusSettings, read_settings: ReadSettings) -> None:
        self._bus_settings = bus_settings
        self._read_settings = read_settings
        # in the driver only
        self._planner: SourcePlanner | None = None
        self._is_checked = False

    def initialOffset(self) -> dict[str, Any]:
        """Return where a query without checkpoint starts."""
        planner = self._planning()
        position = planner.starting(self._read_settings.starting)
        return render_offset(position, planner.incarnation_of(position))

    def getDefaultReadLimit(self) -> ReadLimit:
        """Limit a batch to `max_rows` rows."""
        return ReadMaxRows(self._read_settings.max_rows)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of the query: new events no longer move it. Called once at its start."""
        self._planning().bound()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next batch. Called often; waits only for a bounded query's next rows."""
        offset = parse_offset(start)
        planner = self._planning_from(offset)
        max_rows = None if isinstance(limit, ReadAllAvailable) else self._max_rows(limit)
        end = planner.cut(offset.position, max_rows)
        # Spark compares offsets as text: an unmoved one must be returned unchanged, byte for byte.
        return start if end <= offset.position else render_offset(end, planner.incarnation_of(end))

    def reportLatestOffset(self) -> dict[str, Any]:
        """Return the end of the log for progress reports; empty if unknown.

        For None Spark would repeat the last one.
        """
        newest = None if self._planner is None else self._planner.newest()
        return {} if newest is None else render_offset(newest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Divide a batch. Called for each batch, also when a restart repeats one."""
        begin = parse_offset(start)
        span = Span(begin.position, parse_offset(end).position)
        if span.through <= span.after:
            return []
        parts = self._planning_from(begin).divide(span, self._read_settings.rows_per_partition)
        if not self._read_settings.bronze:
            return parts
        bronze = load_shared_table(
            Lake(self._read_settings.bronze, self._read_settings.archive_pipeline), "bronze"
        )
        return [BronzePartition(part, -1 if bronze is None else bronze.floor) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Read one partition. Called on an executor."""
        if isinstance(partition, BronzePartition):
            return write_partition(self._bus_settings, self._read_settings, partition)
        if not isinstance(partition, Partition):
            raise TypeError(f"not a partition of this source: {partition!r}")
        return read_partition(self._bus_settings, self._read_settings, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Release what the planner holds for a batch. Called when the batch is committed."""
        if self._planner is not None:
            self._planner.forget(parse_offset(end).position)

    def stop(self) -> None:
        """Close the planner. Called when the query ends."""
        if self._planner is not None:
            self._planner.close()

    def _max_rows(self, limit: ReadLimit) -> int:
        return limit.max_rows if isinstance(limit, ReadMaxRows) else self._read_settings.max_rows

    def _planning_from(self, offset: Offset) -> SourcePlanner:
        """Return the planner; before its first plan it checks that the offset is of this log."""
        planner = self._planning()
        if not self._is_checked:
            planner.check(offset)
            self._is_checked = True
        return planner

    def _planning(self) -> SourcePlanner:
        if self._planner is None:
            self._planner = _open_planner(Bus(self._bus_settings, SystemClock()), self._read_settings)
        return self._planner


class TidewireBatchReader(DataSourceReader):
    """Reads what the channel holds at the time of the query, once."""

    def __init__(self, bus_settings: BusSettings, read_settings: ReadSettings) -> None:
        self._bus_settings = bus_settings
        self._read_settings = read_settings

    def partitions(self) -> Sequence[Partition]:
        """Divide what the channel holds. Blocks in the driver until the end of the log is known."""
        with (
            closing(Bus(self._bus_settings, SystemClock())) as bus,
            closing(_open_planner(bus, self._read_settings)) as planner,
        ):
            start = planner.starting(self._read_settings.starting)
            planner.bound()
            parts: list[Partition] = []
            while (end := planner.cut(start, None)) > start:
                parts += planner.divide(Span(start, end), self._read_settings.rows_per_partition)
                planner.forget(end)
                start = end
            return parts

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        """Read one partition. Called on an executor."""
        if not isinstance(partition, Partition):
            return iter(())
        return read_partition(self._bus_settings, self._read_settings, partition)


class TidewireSource(DataSource):
    """The data source `tidewire`."""

    @classmethod
    def name(cls) -> str:
        """Return the format name."""
        return "tidewire"

    def schema(self) -> str:
        """Return the columns of the DataFrame."""
        return RECEIPT_DDL if self.options.get("bronze") else ROWS_DDL

    def reader(self, schema: StructType) -> TidewireBatchReader:
        """Return the reader for `spark.read`."""
        return TidewireBatchReader(*self._parse())

    def streamReader(self, schema: StructType) -> TidewireStreamReader:
        """Return the reader for `spark.readStream`. Spark passes `schema` by keyword: its name matters."""
        return TidewireStreamReader(*self._parse())

    def _parse(self) -> tuple[BusSettings, ReadSettings]:
        check_names(self.options, OPTIONS)
        return parse_settings(self.options), parse_read_settings(self.options)
