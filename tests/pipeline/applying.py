"""Apply without Spark: the same steps in one process. `python -m tests.pipeline.applying LAKE MAX_ROWS` runs them."""

from __future__ import annotations

import sys

import pyarrow as pa

from tidewire.clock import ManualClock
from tidewire.pipeline.apply import Applier
from tidewire.pipeline.bronze_source import plan_partitions, read_marks, read_partition
from tidewire.pipeline.decode import CHANGES, decode_batches
from tidewire.pipeline.spans import Span
from tidewire.pipeline.tables import Lake, load_schemas, try_open_table
from tidewire.pipeline.transactions import closed_through


def decode_span(lake: Lake, span: Span) -> pa.Table:
    """What the executors hand to the driver for a span."""
    bronze = try_open_table(lake, "bronze")
    assert bronze is not None
    decode = decode_batches(load_schemas(lake))
    batches = [
        decoded for part in plan_partitions(bronze, span) for decoded in decode(read_partition(lake, part))
    ]
    return pa.Table.from_batches(batches, schema=CHANGES)


def apply_all(lake: Lake, max_rows: int | None = None) -> list[int]:
    """Apply what bronze has in batches, as the query would; returns their ends."""
    applier = Applier(lake, 1, ManualClock())
    ends: list[int] = []
    while True:
        bronze, manifest = try_open_table(lake, "bronze"), try_open_table(lake, "manifest")
        assert bronze is not None
        assert bronze.committed is not None
        after = max(manifest.floor, 0) if manifest is not None else 0
        known = bronze.committed
        end = closed_through(read_marks(lake, bronze, Span(after, known)), known, max_rows)
        if after == known or end is None:
            return ends
        applier.apply(decode_span(lake, Span(after, end)), load_schemas(lake))
        ends.append(end)


if __name__ == "__main__":
    apply_all(Lake(sys.argv[1]), int(sys.argv[2]))
