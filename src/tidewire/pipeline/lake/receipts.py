"""Receipts: what a task reports to the driver about its part of a batch.

Tasks of both streaming sources write files and return receipts as their only rows, so that events never cross into
the JVM. The driver commits exactly the files whose receipts arrive; `details` is what else it must know, as JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import orjson
import pyarrow as pa

from tidewire.pipeline.lake.files import DataFile
from tidewire.pipeline.lake.spans import Span, join_spans
from tidewire.pipeline.lake.tables import parse_ddl

RECEIPT_DDL = (
    "entity STRING, path STRING, size_bytes LONG, rows LONG, first LONG, last LONG, floor LONG, "
    "span_after LONG, span_through LONG, details STRING"
)
"""One row per file (`path`), per span (`span_after`, `span_through`) or per set of details; the rest is null."""
RECEIPT = parse_ddl(RECEIPT_DDL)


@dataclass(frozen=True, slots=True)
class TaskReceipts:
    """The files and details of all tasks of a batch, and the span that they cover together."""

    files: tuple[DataFile, ...]
    span: Span | None
    details: tuple[Mapping[str, Any], ...]


def render_receipts(
    files: Iterable[DataFile | None], spans: Iterable[Span], details: Mapping[str, Any]
) -> pa.RecordBatch:
    """Return the receipts of one task."""
    rows: list[dict[str, Any]] = [asdict(file) for file in files if file is not None]
    rows += [{"span_after": span.after, "span_through": span.through} for span in spans]
    if any(details.values()):
        rows.append({"details": orjson.dumps(details).decode()})
    return pa.RecordBatch.from_pylist(rows, schema=RECEIPT)


def parse_receipts(rows: Iterable[Mapping[str, Any]]) -> TaskReceipts:
    """Sort the receipts of a batch. Raises LogCorrupt if their spans leave a hole."""
    files: list[DataFile] = []
    spans: list[Span] = []
    details: list[Mapping[str, Any]] = []
    for row in rows:
        if row["path"] is not None:
            files.append(DataFile(**{name: row[name] for name in DataFile.__dataclass_fields__}))
        if row["span_through"] is not None:
            spans.append(Span(row["span_after"], row["span_through"]))
        if row["details"] is not None:
            details.append(orjson.loads(row["details"]))
    return TaskReceipts(tuple(sorted(files, key=lambda file: file.first)), join_spans(spans), tuple(details))
