"""The archive query: append every event of the channel to bronze exactly once.

Per batch: read the position that bronze has committed; tasks write files of the rows above it; append new
schemas; then one commit adds the files and moves the position to the end of the batch's span. Schemas are
committed first, so that no row in bronze ever lacks its schema.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidewire.errors import WriteConflict
from tidewire.faults import crash_point
from tidewire.pipeline.lake.receipts import TaskReceipts, parse_receipts
from tidewire.pipeline.lake.schemas import append_schemas
from tidewire.pipeline.lake.spans import check_continues
from tidewire.pipeline.lake.tables import Lake, append_files, open_table
from tidewire.telemetry import counters

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidewire.clock import Clock

_log = logging.getLogger(__name__)


def merge_schemas(receipts: TaskReceipts) -> dict[str, tuple[str, int]]:
    """Return the schemas that tasks fetched: by id, the text and the first replay id that needs it."""
    schemas: dict[str, tuple[str, int]] = {}
    for details in receipts.details:
        for schema_id, (text, replay_id) in details["schemas"].items():
            known = schemas.get(schema_id)
            schemas[schema_id] = (text, replay_id if known is None else min(replay_id, known[1]))
    return schemas


def archive_batch(lake: Lake, epoch: int, clock: Clock) -> Callable[[DataFrame, int], None]:
    """Return the `foreachBatch` function of the archive query.

    The query's source has the option `bronze` (event_source.py), so the rows of its batches are receipts.
    """

    def archive(batch: DataFrame, batch_id: int) -> None:
        bronze = open_table(lake, "bronze")
        receipts = parse_receipts(row.asDict() for row in batch.collect())
        if receipts.span is None or receipts.span.through <= bronze.floor:
            return
        check_continues(receipts.span, bronze.committed, "bronze")
        if receipts.files and receipts.files[0].first <= bronze.floor:
            raise WriteConflict("bronze has changed since this batch was planned; the batch will be retried")
        append_schemas(lake, merge_schemas(receipts), epoch)
        crash_point("pipeline.archive.after_write")
        now_ms = clock.now_ms()
        actions = [file.add_action(now_ms) for file in receipts.files]
        append_files(bronze, actions, receipts.span.through, epoch)
        crash_point("pipeline.archive.after_commit")
        written = sum(file.rows for file in receipts.files)
        counters["pipeline.events_archived"] += written
        _log.info(
            "pipeline.batch_archived",
            extra={"batch_id": batch_id, "events": written, "position": receipts.span.through},
        )

    return archive
