"""Writing bronze files on executors: rows of the bus source in, one Parquet file and a receipt out.

Only the event's header is decoded, by the event's own schema, which a task fetches once if the lake does
not have it; what came in columns is written as it came. If the server does not give the schema, the event is
kept all the same, with its header as all change events have it. A file that no commit names is invisible, so a task
may die, run twice or race its own copy: exactly the receipts that reach the driver count.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidewire.client.login import Login
from tidewire.clock import SystemClock
from tidewire.errors import DiskFull, PayloadInvalid, SchemaUnknown
from tidewire.ids import try_normalise_id
from tidewire.names import is_api_name
from tidewire.pipeline.lake.tables import BRONZE, Lake, load_schemas, sync_file
from tidewire.pipeline.source.bus import Bus, BusSettings
from tidewire.pipeline.source.headers import Header, HeaderReader, render_headers, unreadable
from tidewire.schema.avro import header_type

_log = logging.getLogger(__name__)

RECEIPT = pa.schema(
    [
        ("path", pa.string()),
        ("size_bytes", pa.int64()),
        ("rows", pa.int64()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("span_after", pa.int64()),
        ("span_through", pa.int64()),
        ("schemas", pa.string()),
    ]
)
"""What a task hands back: `path` is null if it had no rows to write; the span is its mark; `schemas` (JSON)
are those it fetched, each as its text and the first replay id that needs it.
"""
RECEIPT_DDL = (
    "path STRING, size_bytes LONG, rows LONG, first LONG, last LONG, "
    "span_after LONG, span_through LONG, schemas STRING"
)
_GROUP_ROWS = 20_000
_GROUP_BYTES = 16 << 20
_OWN_COLUMNS = BRONZE.names[:6]
"""What came with the event; the others come from its header."""
# What repeats from row to row; a dictionary of the rest would cost more than it saves.
_REPEATED = ["topic", "schema_id", "entity", "change_type", "change_origin", "commit_user"]
_ANY_CHANGE = json.dumps(
    {
        "type": "record",
        "name": "AnyChangeEvent",
        "fields": [{"name": "ChangeEventHeader", "type": header_type()}],
    }
)


@dataclass(frozen=True, slots=True)
class BronzeTask:
    """What a task needs: where to write, what is there already, and how to ask for a schema it does not
    know.
    """

    directory: str
    floor: int
    schemas: Mapping[str, str]
    bus_settings: BusSettings
    session: Login | None

    def write(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows of the bus source, and give one batch of receipts. Raises DiskFull."""
        headers = HeaderCache(self.schemas, self.bus_settings, self.session)
        receipts: list[dict[str, Any]] = []
        file = _BronzeFile(self.directory)
        try:
            for batch in batches:
                events, marks = split_marks(batch)
                receipts += [{"span_after": after, "span_through": through} for after, through in marks]
                file.append(render_bronze(events, self.floor, headers))
            receipts += file.finish()
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise DiskFull(f"no space is left for bronze in {self.directory}") from error
        finally:
            file.discard()
        if headers.fetched:
            receipts.append({"schemas": json.dumps(headers.fetched)})
        yield pa.RecordBatch.from_pylist(receipts, schema=RECEIPT)


class _BronzeFile:
    """A file of bronze while it is written: made with its first row, and gone again unless it is finished."""

    def __init__(self, directory: str) -> None:
        self._name = f"part-{uuid.uuid4()}.parquet"
        self._path = os.path.join(directory, self._name)
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self._waiting_bytes = 0
        self._rows = 0
        self._first, self._last = 1 << 62, 0

    def append(self, bronze: pa.RecordBatch) -> None:
        if not bronze.num_rows:
            return
        ends = pc.min_max(bronze["replay_id"])
        self._first = min(self._first, ends["min"].as_py())
        self._last = max(self._last, ends["max"].as_py())
        self._rows += bronze.num_rows
        self._waiting.append(bronze)
        self._waiting_rows += bronze.num_rows
        self._waiting_bytes += bronze.nbytes
        if self._waiting_rows >= _GROUP_ROWS or self._waiting_bytes >= _GROUP_BYTES:
            self._flush()

    def finish(self) -> list[dict[str, Any]]:
        """Make the file whole and durable; its receipt, or none if there were no rows."""
        self._flush()
        if self._writer is None:
            return []
        self._writer.close()
        self._writer = None
        sync_file(self._path)
        size_bytes = os.path.getsize(self._path)
        return [
            {
                "path": self._name,
                "size_bytes": size_bytes,
                "rows": self._rows,
                "first": self._first,
                "last": self._last,
            }
        ]

    def discard(self) -> None:
        """Take away what was not finished."""
        if self._writer is not None:
            with suppress(OSError):
                self._writer.close()
            with suppress(OSError):
                os.unlink(self._path)

    def _flush(self) -> None:
        if not self._waiting:
            return
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._path, BRONZE, compression="zstd", compression_level=1, use_dictionary=_REPEATED
            )
        self._writer.write_table(pa.Table.from_batches(self._waiting), row_group_size=self._waiting_rows)
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0


class HeaderCache:
    """Header readers by schema id. Schemas that the lake does not have yet are fetched from the bus;
    `fetched` has the text of each, and the replay id of the first event that needed it.
    """

    def __init__(self, schemas: Mapping[str, str], settings: BusSettings, session: Login | None) -> None:
        self.fetched: dict[str, tuple[str, int]] = {}
        self._schemas = schemas
        self._settings = settings
        self._session = session
        self._bus: Bus | None = None
        self._readers: dict[str, HeaderReader] = {}
        self._refused: dict[str, str] = {}
        self._any_change = HeaderReader(_ANY_CHANGE)

    def reader(self, schema_id: str, replay_id: int) -> HeaderReader:
        """The reader for events of a schema, of which one is at this position. Raises SchemaUnknown."""
        found = self._readers.get(schema_id)
        if found is None:
            found = self._readers[schema_id] = _header_reader(self._load(schema_id, replay_id))
        return found

    def _load(self, schema_id: str, replay_id: int) -> str:
        if schema_id in self._schemas:
            return self._schemas[schema_id]
        if schema_id in self._refused:
            raise SchemaUnknown(self._refused[schema_id], schema_id=schema_id)
        if self._bus is None:
            self._bus = Bus(self._settings, SystemClock(), self._session)
        try:
            text = self._bus.schema_json(schema_id)
        except SchemaUnknown as error:
            _log.warning("pipeline.schema_refused", extra={"schema_id": schema_id, "reason": error.message})
            self._refused[schema_id] = error.message
            raise
        self.fetched[schema_id] = (text, replay_id)
        return text

    def guess(self, payload: bytes) -> Header | None:
        """The header of an event whose schema is not to be had: change events have it in common. None if the bytes
        do not tell of records.
        """
        try:
            found = self._any_change.read(payload)
        except PayloadInvalid:
            return None
        entity, _, ids, *_ = found
        if not entity or not ids or not is_api_name(entity):
            return None
        return found if all(each.endswith("*") or try_normalise_id(each) == each for each in ids) else None


class LakeSchemas(Mapping[str, str]):
    """The schemas of a lake, read when one is asked for that is not known yet; tasks of one process share
    them.
    """

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._known = _known_schemas.setdefault(lake.path, {})
        self._is_read = False

    def __getitem__(self, schema_id: str) -> str:
        if schema_id not in self._known and not self._is_read:
            self._is_read = True
            self._known |= load_schemas(self._lake)
        return self._known[schema_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


_known_schemas: dict[str, dict[str, str]] = {}


@lru_cache(maxsize=1024)
def _header_reader(schema_json: str) -> HeaderReader:
    return HeaderReader(schema_json)


def split_marks(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[tuple[int, int]]]:
    """The events of a batch of the bus source, and the (after, through) of its marks."""
    is_mark = pc.is_null(batch["payload"])
    if not pc.any(is_mark).as_py():
        return batch, []
    marks = batch.filter(is_mark)
    spans = zip(marks["transaction_last"].to_pylist(), marks["replay_id"].to_pylist(), strict=True)
    return batch.filter(pc.invert(is_mark)), list(spans)


def render_bronze(events: pa.RecordBatch, floor: int, headers: HeaderCache) -> pa.RecordBatch:
    """Events above the floor as rows of bronze."""
    fresh = events.filter(pc.greater(events["replay_id"], floor))
    found: list[Header] = []
    schema_id, reader = None, None
    for event_schema_id, payload, replay_id in zip(
        fresh["schema_id"].to_pylist(),
        fresh["payload"].to_pylist(),
        fresh["replay_id"].to_pylist(),
        strict=True,
    ):
        try:
            if event_schema_id != schema_id or reader is None:
                schema_id, reader = event_schema_id, headers.reader(event_schema_id, replay_id)
            found.append(reader.read(payload))
        except SchemaUnknown as error:
            found.append(headers.guess(payload) or unreadable(error.message))
        except PayloadInvalid as error:
            found.append(unreadable(error.message))
    arrays = [*(fresh[name] for name in _OWN_COLUMNS), *render_headers(found)]
    return pa.RecordBatch.from_arrays(arrays, schema=BRONZE)
