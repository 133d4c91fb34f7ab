"""The Spark data source `tidewire-bronze`: archived events in whole transactions, as the apply query takes
them.

Offsets are positions, as in the bus source, and each one lies between transactions. A partition is some
neighbouring bronze files and the part of the batch's span that they are asked for; the last partition carries
the mark of the whole span. Tasks write their events into history, and the source's rows are their receipts (see
history_files.py).
"""

from __future__ import annotations

import os
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
from tidewire.pipeline.apply.transactions import TransactionMark, closed_through, closed_through_lasts
from tidewire.pipeline.lake.files import list_files, list_sized_files, read_file
from tidewire.pipeline.lake.receipts import RECEIPT_DDL
from tidewire.pipeline.lake.spans import START, Span
from tidewire.pipeline.lake.status_file import read_live_report
from tidewire.pipeline.lake.tables import BRONZE, Lake, OpenTable, peek_table
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
"""A task of fewer rows costs more to start than it saves."""
QUIET_S = 10.0
"""After so long without an event, though the archive hears the server, the last transaction of one that does not
tell its end is taken as closed.
"""


@dataclass(frozen=True)
class FilePartition(InputPartition):
    """The rows of some files (none for a mark alone) that lie in a span; `has_mark` if the span's mark
    follows them.
    """

    paths: tuple[str, ...]
    span: Span
    has_mark: bool


@dataclass(frozen=True)
class HistoryPartition(InputPartition):
    """A partition to write into history."""

    part: FilePartition
    task: HistoryTask


def read_marks(lake: Lake, bronze: OpenTable, span: Span) -> list[TransactionMark]:
    """What the planner must know of the events in a span, in log order."""
    files = [_read_plan_columns(lake, path, span) for path in list_files(bronze, span)]
    return _marks_of(pa.concat_tables([_PLAN_COLUMNS.empty_table(), *files]))


def plan_end(
    lake: Lake, bronze: OpenTable, span: Span, max_rows: int | None, *, is_quiet: bool = False
) -> int | None:
    """Where a batch after the span's start ends so that no transaction is divided, None if none is closed
    yet. `is_quiet` says that nothing more comes of the newest transaction.

    Reads files until one such place is known, not all that wait.
    """
    files = list_files(bronze, span)
    rows = _PLAN_COLUMNS.empty_table()
    for place, path in enumerate(files):
        rows = pa.concat_tables([rows, _read_plan_columns(lake, path, span)])
        if max_rows is not None and rows.num_rows > max_rows and place < len(files) - 1:
            end = _closed_end(rows, pc.max(rows["replay_id"]).as_py(), max_rows)
            if end is not None:
                return end
    return _closed_end(rows, span.through, max_rows, is_quiet=is_quiet)


def _closed_end(rows: pa.Table, known: int, max_rows: int | None, *, is_quiet: bool = False) -> int | None:
    if rows["transaction_last"].null_count:
        return closed_through(_marks_of(rows), known, max_rows, is_quiet=is_quiet)
    in_order = rows.select(["replay_id", "transaction_last"]).sort_by("replay_id")
    positions, lasts = (in_order[name].to_numpy() for name in in_order.column_names)
    return closed_through_lasts(positions, lasts, known, max_rows)


def _read_plan_columns(lake: Lake, path: str, span: Span) -> pa.Table:
    return _rows_in(read_file(os.path.join(lake.table("bronze"), path), _PLAN_COLUMNS), span)


def _marks_of(rows: pa.Table) -> list[TransactionMark]:
    columns = (
        rows[name].to_pylist() for name in ("replay_id", "transaction_last", "transaction_key", "change_type")
    )
    marks = [
        TransactionMark(
            replay_id, last, key, (change_type or "").startswith("GAP_"), change_type == "GAP_OVERFLOW"
        )
        for replay_id, last, key, change_type in zip(*columns, strict=True)
    ]
    return sorted(marks, key=lambda mark: mark.replay_id)


def plan_partitions(bronze: OpenTable, span: Span) -> list[FilePartition]:
    """Partitions of at least `PARTITION_ROWS` rows where there are as many; the last one has the mark."""
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


def read_partition(lake: Lake, part: FilePartition) -> Iterator[pa.RecordBatch]:
    """The rows of a partition, then perhaps the mark. Runs on an executor."""
    for path in part.paths:
        rows = read_file(os.path.join(lake.table("bronze"), path), EVENTS)
        yield from _rows_in(rows, part.span).to_batches(BATCH_ROWS)
    if part.has_mark:
        yield render_watermark(part.span, EVENTS, WATERMARK_AFTER)


def _rows_in(rows: pa.Table, span: Span) -> pa.Table:
    position = rows["replay_id"]
    return rows.filter(pc.and_(pc.greater(position, span.after), pc.less_equal(position, span.through)))


class BronzeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches of whole transactions from bronze. Planning reads the table's log, so the query needs a
    trigger interval.
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
        """Where a query without checkpoint starts."""
        return render_offset(self._starting)

    def getDefaultReadLimit(self) -> ReadLimit:
        """About `max_rows` events a batch; more only if one transaction is larger."""
        return ReadMaxRows(self._max_rows)

    def prepareForTriggerAvailableNow(self) -> None:
        """Called once at the start of such a query."""
        bronze = peek_table(self._lake, "bronze")
        self._target = START if bronze is None or bronze.committed is None else bronze.committed

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Called at each trigger."""
        after = parse_offset(start).position
        bronze = peek_table(self._lake, "bronze")
        if bronze is None or bronze.committed is None:
            return start
        known = bronze.committed if self._target is None else min(bronze.committed, self._target)
        max_rows = None if isinstance(limit, ReadAllAvailable) else self._max_rows
        end = self._plan(bronze, after, known, max_rows)
        # Spark compares offsets as texts: one that has not moved must not change its form either.
        return start if end <= after else render_offset(end)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[HistoryPartition]:
        """Called for each batch."""
        bronze = peek_table(self._lake, "bronze")
        span = Span(parse_offset(start).position, parse_offset(end).position)
        if bronze is None:
            return []
        task = plan_task(self._lake)
        return [HistoryPartition(part, task) for part in plan_partitions(bronze, span)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Called on an executor."""
        if not isinstance(partition, HistoryPartition):
            raise TypeError(f"not a partition of this source: {partition!r}")
        return partition.task.write(read_partition(self._lake, partition.part))

    def _plan(self, bronze: OpenTable, after: int, known: int, max_rows: int | None) -> int:
        if known <= after:
            return after
        question = (after, known, max_rows)
        if self._planned is None or self._planned[0] != question:
            end = plan_end(self._lake, bronze, Span(after, known), max_rows)
            self._planned = (question, after if end is None else end)
        if self._planned[1] <= after and self._is_quiet(known):
            end = plan_end(self._lake, bronze, Span(after, known), max_rows, is_quiet=True)
            self._planned = (question, after if end is None else end)
        return self._planned[1]

    def _is_quiet(self, known: int) -> bool:
        """Whether nothing more comes of the newest transaction. An archive that stood still, or stands still now,
        says nothing of that: only while it hears the server and has all that it heard, time counts. A bounded
        query comes after an archive that has taken all there was.
        """
        if self._target is not None:
            return True
        told = read_live_report(self._lake, self._clock.now_ms())
        now_s = self._clock.monotonic_s()
        if told is None or told.get("unread") != 0:
            self._quiet_since = None
        elif self._quiet_since is None or self._quiet_since[0] != known:
            self._quiet_since = (known, now_s)
        return self._quiet_since is not None and now_s - self._quiet_since[1] >= QUIET_S


class BronzeSource(DataSource):
    """What Spark knows under the name `tidewire-bronze`. Options: lake, pipeline, starting, max_rows."""

    @classmethod
    def name(cls) -> str:
        """The format name."""
        return "tidewire-bronze"

    def schema(self) -> str:
        """The columns of the DataFrame."""
        return RECEIPT_DDL

    def streamReader(self, schema: StructType) -> BronzeStreamReader:
        """Called for `spark.readStream`, by keyword."""
        lake = Lake(self.options["lake"], self.options.get("pipeline", "main"))
        starting = int(self.options.get("starting", str(START)))
        return BronzeStreamReader(lake, starting, max(1, int(parse_number(self.options, "max_rows", 20_000))))
