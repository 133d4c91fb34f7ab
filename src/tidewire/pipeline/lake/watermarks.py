"""Watermarks: rows without payload that say how far a partition of a source has been read.

A micro-batch passes rows to its function but not its offsets, and rows alone do not show how far the log was read:
positions of other channels have no row. So a partition ends with a watermark. Its `replay_id` is the end of the
partition's span; another column of the source, `after_column`, holds the start.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tidewire.pipeline.lake.spans import Span


def render_watermark(span: Span, schema: pa.Schema, after_column: str, **others: object) -> pa.RecordBatch:
    """Return the one row that reports a span as read."""
    row = {"replay_id": span.through, after_column: span.after, **others}
    return pa.RecordBatch.from_pylist([row], schema=schema)


def split_watermarks(batch: pa.RecordBatch, after_column: str) -> tuple[pa.RecordBatch, list[Span]]:
    """Return the events of a batch, and the spans of its watermarks."""
    is_watermark = pc.is_null(batch["payload"])
    if not pc.any(is_watermark).as_py():
        return batch, []
    found = batch.filter(is_watermark)
    ends = zip(found[after_column].to_pylist(), found["replay_id"].to_pylist(), strict=True)
    return batch.filter(pc.invert(is_watermark)), [Span(*each) for each in ends]
