"""Writing history files on executors: archived events in, one Parquet file per object and a receipt out.

The source that reads the events calls it (bronze_source.py), so that they never cross into the JVM and back.
A file that no commit names is invisible, so a task may die, run twice or race its own copy: exactly the
receipts that reach the driver count. A receipt carries what the driver must know besides: the span read, the
schemas met, and notes about events that are not plain changes.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidewire.pipeline.apply.decode import Decoder, Note, Rows
from tidewire.pipeline.apply.plain_events import PlainEvents
from tidewire.pipeline.lake import manifest
from tidewire.pipeline.lake.spans import Span, join_spans
from tidewire.pipeline.lake.tables import HISTORY, Lake, load_schemas, peek_table, sync_file

RECEIPT = pa.schema(
    [
        ("entity", pa.string()),
        ("path", pa.string()),
        ("size_bytes", pa.int64()),
        ("rows", pa.int64()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("floor", pa.int64()),
        ("schemas", pa.string()),
        ("notes", pa.string()),
        ("span_after", pa.int64()),
        ("span_through", pa.int64()),
    ]
)
"""What a task hands back, one row per file, mark or set of schemas and notes (both JSON). `floor` is what the
table held when the task was planned.
"""
RECEIPT_DDL = (
    "entity STRING, path STRING, size_bytes LONG, rows LONG, first LONG, last LONG, "
    "floor LONG, schemas STRING, notes STRING, span_after LONG, span_through LONG"
)
_FLUSH_ROWS = 50_000
# Columns of few values; for the others a dictionary is only work.
_DICTIONARY = ["change_type", "user_id", "origin", "schema_id", "problem", "transaction_key", "changed"]


@dataclass(frozen=True, slots=True)
class HistoryFile:
    """A Parquet file that a task has written into a history table's directory."""

    entity: str
    path: str
    size_bytes: int
    rows: int
    first: int
    last: int
    floor: int


@dataclass(frozen=True, slots=True)
class Receipts:
    """What the tasks of one batch have done."""

    files: tuple[HistoryFile, ...]
    span: Span | None
    schemas: Mapping[str, Mapping[str, int]]
    notes: tuple[Note, ...]


@dataclass(frozen=True, slots=True)
class HistoryTask:
    """What a task needs: where to write, what is there already, the schema that each object was last met with,
    and which version of the table of schemas has all that the events need.
    """

    lake: Lake
    floors: Mapping[str, int]
    latest: Mapping[str, str]
    schemas_version: int = -1

    def write(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows of the bronze source, and give one batch of receipts. Raises StoreClosed."""
        decoder = Decoder(load_schemas(self.lake, self.schemas_version), self.floors, self.latest)
        plain = PlainEvents(decoder)
        files: dict[str, _File] = {}
        receipts: list[dict[str, Any]] = []
        try:
            for batch in batches:
                events, spans = split_marks(batch)
                receipts += [{"span_after": span.after, "span_through": span.through} for span in spans]
                plain.add(events)
                self._flush(decoder, files, _FLUSH_ROWS)
            self._flush(decoder, files, 1)
            receipts += [file.finish() for file in files.values()]
        except BaseException:
            for file in files.values():
                file.discard()
            raise
        decoded = decoder.decoded
        if decoded.schemas or decoded.notes:
            notes = orjson.dumps([asdict(note) for note in decoded.notes]).decode()
            receipts.append({"schemas": orjson.dumps(decoded.schemas).decode(), "notes": notes})
        yield pa.RecordBatch.from_pylist(receipts, schema=RECEIPT)

    def _flush(self, decoder: Decoder, files: dict[str, _File], at_least: int) -> None:
        """Write the rows of objects that have many waiting."""
        for entity, rows in decoder.decoded.rows.items():
            if len(rows) >= at_least:
                if entity not in files:
                    files[entity] = _File(self.lake, entity, self.floors.get(entity, -1))
                files[entity].write(rows)
                decoder.decoded.rows[entity] = Rows()


def plan_task(lake: Lake) -> HistoryTask:
    """What the tasks of the next batch need."""
    floors: dict[str, int] = {}
    for name in lake.names("history"):
        table = peek_table(lake, name)
        if table is not None:
            floors[name.partition("/")[2]] = table.floor
    row = manifest.newest(lake)
    entities = row.entities if row is not None else {}
    latest = {entity: state.schemas[-1] for entity, state in entities.items() if state.schemas}
    # Whoever archives keeps a schema before the first event that needs it.
    schemas = peek_table(lake, "schemas")
    return HistoryTask(lake, floors, latest, schemas.delta.version() if schemas is not None else -1)


class _File:
    """A history file in the making."""

    def __init__(self, lake: Lake, entity: str, floor: int) -> None:
        self._entity = entity
        self._floor = floor
        self._name = f"part-{uuid.uuid4()}.parquet"
        directory = lake.table(f"history/{entity}")
        os.makedirs(directory, exist_ok=True)
        self._path = os.path.join(directory, self._name)
        self._rows, self._first, self._last = 0, 0, 0
        self._writer = pq.ParquetWriter(
            self._path, HISTORY, compression="zstd", compression_level=1, use_dictionary=_DICTIONARY
        )

    def write(self, rows: Rows) -> None:
        """Add rows."""
        self._first = rows.first if not self._rows else min(self._first, rows.first)
        self._last = max(self._last, rows.last)
        self._rows += len(rows)
        self._writer.write_table(rows.render())

    def finish(self) -> dict[str, Any]:
        """Make the file whole and durable; what the driver must know of it."""
        self._writer.close()
        sync_file(self._path)
        return {
            "entity": self._entity,
            "path": self._name,
            "size_bytes": os.path.getsize(self._path),
            "rows": self._rows,
            "first": self._first,
            "last": self._last,
            "floor": self._floor,
        }

    def discard(self) -> None:
        """Take the file away, finished or not: no receipt will name it, and a full disk needs the room."""
        with suppress(OSError):
            self._writer.close()
        with suppress(OSError):
            os.unlink(self._path)


def split_marks(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[Span]]:
    """The events of a batch of the bronze source, and the spans of its marks."""
    is_mark = pc.is_null(batch.column("payload"))
    if not pc.any(is_mark).as_py():
        return batch, []
    marks = batch.filter(is_mark)
    ends = (marks.column(name).to_pylist() for name in ("mark_after", "replay_id"))
    spans = [Span(after, through) for after, through in zip(*ends, strict=True)]
    return batch.filter(pc.invert(is_mark)), spans


def parse_receipts(rows: Iterable[Mapping[str, Any]]) -> Receipts:
    """Sort the rows that tasks handed back. Raises LogCorrupt if their spans leave a hole."""
    files: list[HistoryFile] = []
    spans: list[Span] = []
    schemas: dict[str, dict[str, int]] = {}
    notes: list[Note] = []
    for row in rows:
        if row["path"] is not None:
            files.append(HistoryFile(*(row[name] for name in HistoryFile.__dataclass_fields__)))
        if row["span_through"] is not None:
            spans.append(Span(row["span_after"], row["span_through"]))
        for entity, used in orjson.loads(row["schemas"] or "{}").items():
            mine = schemas.setdefault(entity, {})
            for schema_id, last in used.items():
                mine[schema_id] = max(last, mine.get(schema_id, -1))
        notes += [
            Note(**{**note, "columns": tuple(note["columns"])}) for note in orjson.loads(row["notes"] or "[]")
        ]
    notes.sort(key=lambda note: note.replay_id)
    return Receipts(tuple(sorted(files, key=lambda f: f.first)), join_spans(spans), schemas, tuple(notes))
