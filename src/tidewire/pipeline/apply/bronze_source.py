"""The Spark data source `tidewire-bronze`: archived events in whole transactions, for the apply query.

Offsets are positions, as in the bus source, and each lies between transactions. A partition is a run of
bronze files and the batch's span; the last partition carries the watermark of the whole span. Tasks write
their events to history, and the source's rows are their receipts (history_files.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tidewire.clock import Clock, SystemClock
from tidewire.pipeline.apply.history_files import WATERMARK_AFTER, HistoryTask, plan_task
from tidewire.pipeline.apply.transactions import PlannedEvent, closed_through, closed_through_lasts
from tidewire.pipeline.lake.files import list_files, list_sized_files, read_file, rows_in
from tidewire.pipeline.lake.receipts import RECEIPT_DDL
from tidewire.pipeline.lake.spans import START, Span
from tidewire.pipeline.lake.status_file import read_live_report
from tidewire.pipeline.lake.tables import BRONZE, Lake, OpenTable, committed_position, load_shared_table
from tidewire.pipeline.lake.watermarks import render_watermark
from tidewire.pipeline.source.bus import parse_number
from tidewire.pipeline.source.offsets import parse_offset, render_offset

EVENTS = pa.schema(
    [
        *(BRONZE.field(name) for name in ("replay_id", "schema_id", "payload")),
        *list(BRONZE)[BRONZE.get_field_index("entity") : BRONZE.get_field_index("header_error")],
        (WATERMARK_AFTER, pa.int64()),
    ]
)
_PLAN_COLUMNS = pa.schema(
    [BRONZE.field(name) for name in ("replay_id", "transaction_last", "transaction_key", "change_type")]
)
BATCH_ROWS = 5_000
PARTITION_ROWS = 10_000
"""A task with fewer rows costs more to start than it saves."""
QUIET_S = 10.0
"""How long the log must be quiet before a transaction without a marked end is taken as closed.

Counts only while the archive is connected to the server.
"""


@dataclass(frozen=True)
class FilePartition(InputPartition):
    """The rows of some files that lie in a span; `has_watermark` if the span's watermark follows them."""

    paths: tuple[str, ...]
    span: Span
    has_watermark: bool


@dataclass(frozen=True)
class HistoryPartition(InputPartition):
    """A partition to write to history."""

    part: FilePartition
    task: HistoryTask


def plan_end(bronze: OpenTable, span: Span, max_rows: int | None, *, is_quiet: bool = False) -> int | None:
    """Return where a batch must end so that no transaction is divided; None if none is closed yet.

    `is_quiet` means that the newest transaction is complete. Reads only as many files as are needed.
    """
    files = list_files(bronze, span)
    rows = _PLAN_COLUMNS.empty_table()
    for place, path in enumerate(files):
        rows = pa.concat_tables([rows, rows_in(read_file(path, _PLAN_COLUMNS), span)])
        if max_rows is not None and rows.num_rows > max_rows and place < len(files) - 1:
            end = _closed_end(rows, pc.max(rows["replay_id"]).as_py(), max_rows)
            if end is not None:
                return end
    return _closed_end(rows, span.through, max_rows, is_quiet=is_quiet)


def _closed_end(rows: pa.Table, known: int, max_rows: int | None, *, is_quiet: bool = False) -> int | None:
    if rows["transaction_last"].null_count:
        return closed_through(_planned_events(rows), known, max_rows, is_quiet=is_quiet)
    in_order = rows.select(["replay_id", "transaction_last"]).sort_by("replay_id")
    positions, lasts = (in_order[name].to_numpy() for name in in_order.column_names)
    return closed_through_lasts(positions, lasts, known, max_rows)


def _planned_events(rows: pa.Table) -> list[PlannedEvent]:
    columns = (rows[name].to_pylist() for name in _PLAN_COLUMNS.names)
    events = [
        PlannedEvent(
            replay_id, last, key, (change_type or "").startswith("GAP_"), change_type == "GAP_OVERFLOW"
        )
        for replay_id, last, key, change_type in zip(*columns, strict=True)
    ]
    return sorted(events, key=lambda event: event.replay_id)


def plan_partitions(bronze: OpenTable, span: Span) -> list[FilePartition]:
    """Divide a span into partitions of at least `PARTITION_ROWS` rows; the last one has the watermark."""
    if span.through <= span.after:
        return []
    groups: list[list[str]] = [[]]
    rows = 0
    for path, count in list_sized_files(bronze, span):
        if rows >= PARTITION_ROWS:
            groups.append([])
            rows = 0
        groups[-1].append(path)
        rows += count
    return [FilePartition(tuple(paths), span, i + 1 == len(groups)) for i, paths in enumerate(groups)]


def read_partition(part: FilePartition) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition, then its watermark if it has one. Runs on an executor."""
    for path in part.paths:
        yield from rows_in(read_file(path, EVENTS), part.span).to_batches(BATCH_ROWS)
    if part.has_watermark:
        yield render_watermark(part.span, EVENTS, WATERMARK_AFTER)


class BronzeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches of whole transactions from bronze.

    Planning reads the table's log, so the query needs a trigger interval.
    """

    def __init__(self, lake: Lake, starting: int, max_rows: int, clock: Clock | None = None) -> None:
        self._lake = lake
        self._clock = clock or SystemClock()
        self._starting = starting
        self._max_rows = max_rows
        # in the driver only
        self._target: int | None = None
        self._planned: tuple[tuple[int, int, int | None], int] | None = None
        self._quiet_since: tuple[int, float] | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Return where a query without checkpoint starts."""
        return render_offset(self._starting)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Limit a batch to about `max_rows` events; a single larger transaction exceeds it."""
        return ReadMaxRows(self._max_rows)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of the query. Called once at its start."""
        self._target = committed_position(load_shared_table(self._lake, "bronze"))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next batch. Called at each trigger."""
        after = parse_offset(start).position
        bronze = load_shared_table(self._lake, "bronze")
        if bronze is None or bronze.committed is None:
            return start
        known = bronze.committed if self._target is None else min(bronze.committed, self._target)
        max_rows = None if isinstance(limit, ReadAllAvailable) else self._max_rows
        end = self._plan(bronze, after, known, max_rows)
        # Spark compares offsets as text: an unmoved one must be returned unchanged, byte for byte.
        return start if end <= after else render_offset(end)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[HistoryPartition]:
        """Divide a batch. Called for each batch."""
        bronze = load_shared_table(self._lake, "bronze")
        span = Span(parse_offset(start).position, parse_offset(end).position)
        if bronze is None:
            return []
        task = plan_task(self._lake)
        return [HistoryPartition(part, task) for part in plan_partitions(bronze, span)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Write one partition to history and yield its receipts. Called on an executor."""
        if not isinstance(partition, HistoryPartition):
            raise TypeError(f"not a partition of this source: {partition!r}")
        return partition.task.write(read_partition(partition.part))

    def _plan(self, bronze: OpenTable, after: int, known: int, max_rows: int | None) -> int:
        if known <= after:
            return after
        question = (after, known, max_rows)
        if self._planned is None or self._planned[0] != question:
            end = plan_end(bronze, Span(after, known), max_rows)
            self._planned = (question, after if end is None else end)
        if self._planned[1] <= after and self._is_quiet(known):
            end = plan_end(bronze, Span(after, known), max_rows, is_quiet=True)
            self._planned = (question, after if end is None else end)
        return self._planned[1]

    def _is_quiet(self, known: int) -> bool:
        """Return whether the newest transaction can be taken as complete.

        Time counts only while the archive is connected and holds all that the server has sent: a stalled
        archive proves nothing. A bounded query runs after the archive has taken everything.
        """
        if self._target is not None:
            return True
        report = read_live_report(self._lake, self._clock.now_ms())
        now_s = self._clock.monotonic_s()
        if report is None or report.get("unread") != 0:
            self._quiet_since = None
        elif self._quiet_since is None or self._quiet_since[0] != known:
            self._quiet_since = (known, now_s)
        return self._quiet_since is not None and now_s - self._quiet_since[1] >= QUIET_S


class BronzeSource(DataSource):
    """The data source `tidewire-bronze`. Options: lake, pipeline, starting, max_rows."""

    @classmethod
    def name(cls) -> str:
        """Return the format name."""
        return "tidewire-bronze"

    def schema(self) -> str:
        """Return the columns of the DataFrame."""
        return RECEIPT_DDL

    def streamReader(self, schema: StructType) -> BronzeStreamReader:
        """Return the reader for `spark.readStream`. Spark passes `schema` by keyword."""
        lake = Lake(self.options["lake"], self.options.get("pipeline", "main"))
        starting = int(self.options.get("starting", str(START)))
        return BronzeStreamReader(lake, starting, max(1, int(parse_number(self.options, "max_rows", 20_000))))
