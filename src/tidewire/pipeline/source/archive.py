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

from tidewire.errors import WriteConflict
from tidewire.faults import crash_point
from tidewire.names import entity_of_change_event
from tidewire.pipeline.lake.spans import Span, check_continues, join_spans
from tidewire.pipeline.lake.tables import (
    BRONZE,
    SCHEMAS,
    Lake,
    append_files,
    append_rows,
    file_action,
    open_table,
)
from tidewire.telemetry import counters

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidewire.clock import Clock

_log = logging.getLogger(__name__)
_SCHEMA_ATTEMPTS = 5


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
    schemas: Mapping[str, tuple[str, int]]
    """By id: the text, and the first replay id that needs it."""


def parse_receipts(rows: list[Mapping[str, Any]]) -> Receipts:
    """Sort the rows that tasks handed back. Raises LogCorrupt if their spans leave a hole."""
    files = [
        BronzeFile(row["path"], row["size_bytes"], row["rows"], row["first"], row["last"])
        for row in rows
        if row["path"] is not None
    ]
    spans = [Span(row["span_after"], row["span_through"]) for row in rows if row["span_through"] is not None]
    schemas: dict[str, tuple[str, int]] = {}
    for row in rows:
        for schema_id, (text, replay_id) in json.loads(row["schemas"] or "{}").items():
            known = schemas.get(schema_id)
            schemas[schema_id] = (text, replay_id if known is None else min(replay_id, known[1]))
    return Receipts(tuple(sorted(files, key=lambda file: file.first)), join_spans(spans), schemas)


def archive_batch(lake: Lake, epoch: int, clock: Clock) -> Callable[[DataFrame, int], None]:
    """The function for `foreachBatch` of the archive query, whose source has the option `bronze` (see
    source.py): the rows of its batches are receipts.
    """

    def archive(batch: DataFrame, batch_id: int) -> None:
        bronze = open_table(lake, "bronze", BRONZE)
        rows = batch.collect()
        receipts = parse_receipts([row.asDict() for row in rows])
        if receipts.span is None or receipts.span.through <= bronze.floor:
            return
        check_continues(receipts.span, bronze.committed, "bronze")
        if receipts.files and receipts.files[0].first <= bronze.floor:
            raise WriteConflict("bronze has moved on while this batch was planned; it will be tried again")
        append_schemas(lake, receipts.schemas, epoch)
        crash_point("pipeline.archive.after_write")
        now_ms = clock.now_ms()
        actions = [
            file_action(file.path, file.size_bytes, file.rows, file.first, file.last, now_ms)
            for file in receipts.files
        ]
        append_files(bronze, actions, BRONZE, receipts.span.through, epoch)
        crash_point("pipeline.archive.after_commit")
        written = sum(file.rows for file in receipts.files)
        counters["pipeline.events_archived"] += written
        _log.info(
            "pipeline.batch_archived",
            extra={"batch_id": batch_id, "events": written, "position": receipts.span.through},
        )

    return archive


def append_schemas(lake: Lake, schemas: Mapping[str, tuple[str, int]], epoch: int) -> None:
    """Keep schemas that the lake does not have. A crash afterwards may keep one twice, which readers do not
    mind. Raises WriteConflict.
    """
    if not schemas:
        return
    rows = [
        {
            "schema_id": schema_id,
            "schema_json": text,
            "entity": entity_of_change_event(str(json.loads(text).get("name", ""))),
            "first_replay_id": replay_id,
        }
        for schema_id, (text, replay_id) in sorted(schemas.items())
    ]
    # Whoever reads records keeps schemas too, and the archive waits for nobody's lock.
    for attempt in range(_SCHEMA_ATTEMPTS):
        try:
            table = open_table(lake, "schemas", SCHEMAS)
            append_rows(table, pa.Table.from_pylist(rows, schema=SCHEMAS), None, epoch, writer="archive")
        except WriteConflict:
            if attempt == _SCHEMA_ATTEMPTS - 1:
                raise
        else:
            return
