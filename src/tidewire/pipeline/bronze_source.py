"""The Spark data source `tidewire-bronze`: archived events in whole transactions, as the apply query reads
them.

Offsets are positions, as in the bus source, and each one lies between transactions. A partition is one
bronze file and the part of the batch's span that this file is asked for; the last partition carries the
mark of the whole span.
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

from tidewire.pipeline.bus import parse_number
from tidewire.pipeline.offsets import parse_offset, render_offset
from tidewire.pipeline.spans import START, Span
from tidewire.pipeline.tables import BRONZE, Lake, OpenTable, list_files, read_file, try_open_table
from tidewire.pipeline.transactions import TransactionMark, closed_through, closed_through_lasts

EVENTS = pa.schema(
    [
        ("replay_id", pa.int64()),
        ("schema_id", pa.string()),
        ("payload", pa.binary()),
        ("entity", pa.string()),
        ("change_type", pa.string()),
        ("record_ids", pa.list_(pa.string())),
        ("mark_after", pa.int64()),
    ]
)
EVENTS_DDL = (
    "replay_id LONG, schema_id STRING, payload BINARY, entity STRING, change_type STRING, "
    "record_ids ARRAY<STRING>, mark_after LONG"
)
_PLAN_COLUMNS = pa.schema(
    [BRONZE.field(name) for name in ("replay_id", "transaction_last", "transaction_key", "change_type")]
)
BATCH_ROWS = 2_000


@dataclass(frozen=True)
class FilePartition(InputPartition):
    """The rows of one file (None for a mark alone) that lie in a span; `has_mark` if the span's mark
    follows them.
    """

    path: str | None
    span: Span
    has_mark: bool


def read_marks(lake: Lake, bronze: OpenTable, span: Span) -> list[TransactionMark]:
    """What the planner must know of the events in a span, in log order."""
    files = [_read_plan_columns(lake, path, span) for path in list_files(bronze, span)]
    return _marks_of(pa.concat_tables([_PLAN_COLUMNS.empty_table(), *files]))


def plan_end(lake: Lake, bronze: OpenTable, span: Span, max_rows: int | None) -> int | None:
    """Where a batch after the span's start ends so that no transaction is divided, None if none is closed
    yet.

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
    return _closed_end(rows, span.through, max_rows)


def _closed_end(rows: pa.Table, known: int, max_rows: int | None) -> int | None:
    if rows["transaction_last"].null_count:
        return closed_through(_marks_of(rows), known, max_rows)
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
        TransactionMark(replay_id, last, key, (change_type or "").startswith("GAP_"))
        for replay_id, last, key, change_type in zip(*columns, strict=True)
    ]
    return sorted(marks, key=lambda mark: mark.replay_id)


def plan_partitions(bronze: OpenTable, span: Span) -> list[FilePartition]:
    """One partition per file; the last one has the mark."""
    if span.through <= span.after:
        return []
    paths: list[str | None] = [*list_files(bronze, span)] or [None]
    return [FilePartition(path, span, i + 1 == len(paths)) for i, path in enumerate(paths)]


def read_partition(lake: Lake, part: FilePartition) -> Iterator[pa.RecordBatch]:
    """The rows of a partition, then perhaps the mark. Runs on an executor."""
    if part.path is not None:
        rows = read_file(os.path.join(lake.table("bronze"), part.path), EVENTS)
        yield from _rows_in(rows, part.span).to_batches(BATCH_ROWS)
    if part.has_mark:
        mark = {"replay_id": part.span.through, "mark_after": part.span.after}
        yield pa.RecordBatch.from_pylist([mark], schema=EVENTS)


def _rows_in(rows: pa.Table, span: Span) -> pa.Table:
    position = rows["replay_id"]
    return rows.filter(pc.and_(pc.greater(position, span.after), pc.less_equal(position, span.through)))


class BronzeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches of whole transactions from bronze. Planning reads the table's log, so the query needs a
    trigger interval.
    """

    def __init__(self, lake: Lake, starting: int, max_rows: int) -> None:
        self._lake = lake
        self._starting = starting
        self._max_rows = max_rows
        # in the driver only
        self._target: int | None = None
        self._planned: tuple[tuple[int, int, int | None], int] | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without checkpoint starts."""
        return render_offset(self._starting)

    def getDefaultReadLimit(self) -> ReadLimit:
        """About `max_rows` events a batch; more only if one transaction is larger."""
        return ReadMaxRows(self._max_rows)

    def prepareForTriggerAvailableNow(self) -> None:
        """Called once at the start of such a query."""
        bronze = try_open_table(self._lake, "bronze")
        self._target = START if bronze is None or bronze.committed is None else bronze.committed

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Called at each trigger."""
        after = parse_offset(start).position
        bronze = try_open_table(self._lake, "bronze")
        if bronze is None or bronze.committed is None:
            return start
        known = bronze.committed if self._target is None else min(bronze.committed, self._target)
        max_rows = None if isinstance(limit, ReadAllAvailable) else self._max_rows
        end = self._plan(bronze, after, known, max_rows)
        # Spark compares offsets as texts: one that has not moved must not change its form either.
        return start if end <= after else render_offset(end)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[FilePartition]:
        """Called for each batch."""
        bronze = try_open_table(self._lake, "bronze")
        span = Span(parse_offset(start).position, parse_offset(end).position)
        return [] if bronze is None else plan_partitions(bronze, span)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Called on an executor."""
        if not isinstance(partition, FilePartition):
            raise TypeError(f"not a partition of this source: {partition!r}")
        return read_partition(self._lake, partition)

    def _plan(self, bronze: OpenTable, after: int, known: int, max_rows: int | None) -> int:
        if known <= after:
            return after
        question = (after, known, max_rows)
        if self._planned is None or self._planned[0] != question:
            end = plan_end(self._lake, bronze, Span(after, known), max_rows)
            self._planned = (question, after if end is None else end)
        return self._planned[1]


class BronzeSource(DataSource):
    """What Spark knows under the name `tidewire-bronze`. Options: lake, pipeline, starting, max_rows."""

    @classmethod
    def name(cls) -> str:
        """The format name."""
        return "tidewire-bronze"

    def schema(self) -> str:
        """The columns of the DataFrame."""
        return EVENTS_DDL

    def streamReader(self, schema: StructType) -> BronzeStreamReader:
        """Called for `spark.readStream`, by keyword."""
        lake = Lake(self.options["lake"], self.options.get("pipeline", "main"))
        starting = int(self.options.get("starting", str(START)))
        return BronzeStreamReader(lake, starting, max(1, int(parse_number(self.options, "max_rows", 20_000))))
