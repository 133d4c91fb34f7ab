"""Apply without Spark: the same steps in one process. `python -m tests.pipeline.apply_lake LAKE MAX_ROWS` runs them."""

from __future__ import annotations

import sys

from tidewire.clock import ManualClock
from tidewire.pipeline.apply.batch import Applier
from tidewire.pipeline.apply.bronze_source import plan_end, plan_partitions, read_partition
from tidewire.pipeline.apply.history_files import BatchReceipts, parse_batch_receipts, plan_task
from tidewire.pipeline.lake.spans import Span
from tidewire.pipeline.lake.tables import Lake, try_open_table


def run_tasks(lake: Lake, span: Span) -> BatchReceipts:
    """What the executors do for a span, and hand to the driver."""
    bronze = try_open_table(lake, "bronze")
    assert bronze is not None
    task = plan_task(lake)
    rows = [
        row
        for part in plan_partitions(bronze, span)
        for batch in task.write(read_partition(part))
        for row in batch.to_pylist()
    ]
    return parse_batch_receipts(rows)


def apply_span(lake: Lake, span: Span, applier: Applier | None = None) -> Span | None:
    """Apply one batch; returns what was applied."""
    applier = applier or Applier(lake, 1, ManualClock())
    return applier.commit(run_tasks(lake, span))


def apply_all(lake: Lake, max_rows: int | None = None, epoch: int = 1) -> list[int]:
    """Apply what bronze has in batches, as the query would; returns their ends."""
    applier = Applier(lake, epoch, ManualClock())
    ends: list[int] = []
    while True:
        bronze, manifest = try_open_table(lake, "bronze"), try_open_table(lake, "manifest")
        assert bronze is not None
        assert bronze.committed is not None
        after = max(manifest.floor, 0) if manifest is not None else 0
        known = bronze.committed
        end = plan_end(bronze, Span(after, known), max_rows) if after < known else None
        if end is None:
            return ends
        apply_span(lake, Span(after, end), applier)
        ends.append(end)


if __name__ == "__main__":
    apply_all(Lake(sys.argv[1]), int(sys.argv[2]))
