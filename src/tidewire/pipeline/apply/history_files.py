"""Write history files on executors: archived events in, one Parquet file per object and receipts out.

The source that reads the events calls this (bronze_source.py), so that they never cross into the JVM and
back. Receipts also carry what the driver must know: the span read, the schemas used, and notes about events
that are not plain changes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa

from tidewire.pipeline.apply.decode import Decoder, Note, Rows
from tidewire.pipeline.apply.plain_events import PlainEvents
from tidewire.pipeline.lake import manifest
from tidewire.pipeline.lake.files import DataFile, FileWriter
from tidewire.pipeline.lake.receipts import parse_receipts, render_receipts
from tidewire.pipeline.lake.schemas import load_schemas
from tidewire.pipeline.lake.spans import Span
from tidewire.pipeline.lake.tables import HISTORY, Lake, load_shared_table
from tidewire.pipeline.lake.watermarks import split_watermarks

WATERMARK_AFTER = "mark_after"
"""The column of the bronze source in which a watermark holds the start of its span."""
_FLUSH_ROWS = 50_000
# Columns with few distinct values; for others a dictionary only costs time.
_DICTIONARY = ["change_type", "user_id", "origin", "schema_id", "problem", "transaction_key", "changed"]


@dataclass(frozen=True, slots=True)
class BatchReceipts:
    """The merged receipts of all tasks of a batch."""

    files: tuple[DataFile, ...]
    span: Span | None
    schemas: Mapping[str, Mapping[str, int]]
    notes: tuple[Note, ...]


@dataclass(frozen=True, slots=True)
class HistoryTask:
    """What a task needs: the lake, the position that each table already holds, and schemas.

    `latest` is the schema that each object last had; `schemas_version` the version of the table of schemas
    that the events need.
    """

    lake: Lake
    floors: Mapping[str, int]
    latest: Mapping[str, str]
    schemas_version: int = -1

    def write(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write rows of the bronze source to history and yield one batch of receipts. Raises StoreClosed."""
        decoder = Decoder(load_schemas(self.lake, self.schemas_version), self.floors, self.latest)
        plain = PlainEvents(decoder)
        files: dict[str, FileWriter] = {}
        spans: list[Span] = []
        try:
            for batch in batches:
                events, read = split_watermarks(batch, WATERMARK_AFTER)
                spans += read
                plain.add(events)
                self._flush(decoder, files, _FLUSH_ROWS)
            self._flush(decoder, files, 1)
            written = [self._finish(entity, file) for entity, file in files.items()]
        except BaseException:
            for file in files.values():
                file.discard()
            raise
        notes = [asdict(note) for note in decoder.decoded.notes]
        yield render_receipts(written, spans, {"schemas": decoder.decoded.schemas, "notes": notes})

    def _flush(self, decoder: Decoder, files: dict[str, FileWriter], at_least: int) -> None:
        """Write the rows of objects that have at least `at_least` of them."""
        for entity, rows in decoder.decoded.rows.items():
            if len(rows) >= at_least:
                if entity not in files:
                    directory = self.lake.table(f"history/{entity}")
                    os.makedirs(directory, exist_ok=True)
                    files[entity] = FileWriter(directory, HISTORY, _DICTIONARY)
                files[entity].append(rows.render())
                decoder.decoded.rows[entity] = Rows()

    def _finish(self, entity: str, writer: FileWriter) -> DataFile | None:
        file = writer.finish()
        return file and replace(file, entity=entity, floor=self.floors.get(entity, -1))


def plan_task(lake: Lake) -> HistoryTask:
    """Return what the tasks of the next batch need."""
    floors: dict[str, int] = {}
    for name in lake.names("history"):
        table = load_shared_table(lake, name)
        if table is not None:
            floors[name.partition("/")[2]] = table.floor
    entities = manifest.entities(lake)
    latest = {entity: state.schemas[-1] for entity, state in entities.items() if state.schemas}
    # The archive commits a schema before the first event that needs it.
    schemas = load_shared_table(lake, "schemas")
    return HistoryTask(lake, floors, latest, schemas.delta.version() if schemas is not None else -1)


def parse_batch_receipts(rows: Iterable[Mapping[str, Any]]) -> BatchReceipts:
    """Merge the receipts of a batch. Raises LogCorrupt if their spans leave a hole."""
    receipts = parse_receipts(rows)
    schemas: dict[str, dict[str, int]] = {}
    notes: list[Note] = []
    for details in receipts.details:
        for entity, used in details["schemas"].items():
            merged = schemas.setdefault(entity, {})
            for schema_id, last in used.items():
                merged[schema_id] = max(last, merged.get(schema_id, -1))
        notes += [Note(**{**note, "columns": tuple(note["columns"])}) for note in details["notes"]]
    notes.sort(key=lambda note: note.replay_id)
    return BatchReceipts(receipts.files, receipts.span, schemas, tuple(notes))
