"""The archive query: everything the bus says, into bronze, once.

Per batch: read bronze's committed position; tasks write files of the rows above it; new schemas are kept
first, so that no row in bronze lacks its schema; then one commit names the files and moves the position to
the end of the batch's span.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import write_deltalake
from deltalake.transaction import AddAction

from tidewire.faults import crash_point
from tidewire.pipeline.bronze import RECEIPT_DDL, BronzeTask
from tidewire.pipeline.bus import Bus
from tidewire.pipeline.spans import Span, check_continues, join_spans
from tidewire.pipeline.tables import (
    BRONZE,
    SCHEMAS,
    Lake,
    append_files,
    load_schemas,
    open_table,
)
from tidewire.telemetry import counters

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidewire.clock import Clock

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BronzeFile:
    """A Parquet file that a task has written into bronze's directory."""

    path: str
    size_bytes: int
    rows: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Receipts:
    """What the tasks of one batch have done."""

    files: tuple[BronzeFile, ...]
    span: Span | None
    schemas: Mapping[str, str]


def parse_receipts(rows: list[Mapping[str, Any]]) -> Receipts:
    """Sort the rows that tasks handed back. Raises LogCorrupt if their spans leave a hole."""
    files = [
        BronzeFile(row["path"], row["size_bytes"], row["rows"], row["first"], row["last"])
        for row in rows
        if row["path"] is not None
    ]
    spans = [Span(row["span_after"], row["span_through"]) for row in rows if row["span_through"] is not None]
    schemas: dict[str, str] = {}
    for row in rows:
        schemas.update(json.loads(row["schemas"] or "{}"))
    return Receipts(tuple(sorted(files, key=lambda file: file.first)), join_spans(spans), schemas)


def archive_batch(lake: Lake, bus: Bus, epoch: int, clock: Clock) -> Callable[[DataFrame, int], None]:
    """The function for `foreachBatch` of the archive query."""

    def archive(batch: DataFrame, batch_id: int) -> None:
        bronze = open_table(lake, "bronze", BRONZE)
        task = BronzeTask(lake.table("bronze"), bronze.floor, load_schemas(lake), bus.settings, bus.session())
        rows = batch.mapInArrow(task.writer(), RECEIPT_DDL).collect()
        receipts = parse_receipts([row.asDict() for row in rows])
        if receipts.span is None or receipts.span.through <= bronze.floor:
            return
        check_continues(receipts.span, bronze.committed, "bronze")
        append_schemas(lake, receipts.schemas)
        crash_point("pipeline.archive.after_write")
        actions = [add_action(file, clock.now_ms()) for file in receipts.files]
        append_files(bronze, actions, BRONZE, receipts.span.through, epoch)
        crash_point("pipeline.archive.after_commit")
        written = sum(file.rows for file in receipts.files)
        counters["pipeline.events_archived"] += written
        _log.info(
            "pipeline.batch_archived",
            extra={"batch_id": batch_id, "events": written, "position": receipts.span.through},
        )

    return archive


def append_schemas(lake: Lake, schemas: Mapping[str, str]) -> None:
    """Keep schemas that the lake does not have. A crash afterwards may keep one twice, which readers do not
    mind.
    """
    if not schemas:
        return
    table = open_table(lake, "schemas", SCHEMAS)
    rows = [{"schema_id": schema_id, "schema_json": text} for schema_id, text in sorted(schemas.items())]
    write_deltalake(table.delta, pa.Table.from_pylist(rows, schema=SCHEMAS), mode="append")


def add_action(file: BronzeFile, now_ms: int) -> AddAction:
    """The Delta action that brings a file into the table. Its statistics let planners skip it."""
    statistics = {
        "numRecords": file.rows,
        "minValues": {"replay_id": file.first},
        "maxValues": {"replay_id": file.last},
        "nullCount": {"replay_id": 0},
    }
    return AddAction(file.path, file.size_bytes, {}, now_ms, True, json.dumps(statistics))
