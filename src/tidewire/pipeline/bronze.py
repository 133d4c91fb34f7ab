"""Writing bronze files on executors: rows of the bus source in, one Parquet file and a receipt out.

Only the event's header is decoded, by the event's own schema, which a task fetches once if the lake does
not have it. A file that no commit names is invisible, so a task may die, run twice or race its own copy:
exactly the receipts that reach the driver count.
"""

from __future__ import annotations

import io
import json
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from tidewire.client.login import Login
from tidewire.clock import SystemClock
from tidewire.errors import PayloadInvalid
from tidewire.pipeline.bus import Bus, BusSettings
from tidewire.pipeline.tables import BRONZE

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
are those it fetched.
"""
RECEIPT_DDL = (
    "path STRING, size_bytes LONG, rows LONG, first LONG, last LONG, "
    "span_after LONG, span_through LONG, schemas STRING"
)
_HEADER = "ChangeEventHeader"
_EMPTY_HEADER: dict[str, Any] = dict.fromkeys(
    (
        "entity",
        "change_type",
        "record_ids",
        "change_origin",
        "transaction_key",
        "sequence",
        "commit_ms",
        "commit_number",
        "commit_user",
        "header_error",
    )
)


class HeaderReader:
    """Reads the header of change events of one schema. The header is field 0, so the rest of the payload is
    not looked at.
    """

    def __init__(self, schema_json: str) -> None:
        schema = json.loads(schema_json)
        self._prefix: Any = None
        if schema["fields"] and schema["fields"][0]["name"] == _HEADER:
            self._prefix = fastavro.parse_schema({**schema, "fields": schema["fields"][:1]})

    def read(self, payload: bytes) -> dict[str, Any]:
        """The header columns of bronze: nulls if events of this schema have no header. Raises
        PayloadInvalid.
        """
        if self._prefix is None:
            return _EMPTY_HEADER
        try:
            event: Any = fastavro.schemaless_reader(io.BytesIO(payload), self._prefix, None)
        except (ValueError, EOFError, IndexError, KeyError, TypeError, OverflowError, MemoryError) as error:
            raise PayloadInvalid("the header does not decode by the event's schema") from error
        header = event[_HEADER]
        return {
            "entity": header["entityName"],
            "change_type": header["changeType"],
            "record_ids": header["recordIds"],
            "change_origin": header["changeOrigin"],
            "transaction_key": header["transactionKey"],
            "sequence": header["sequenceNumber"],
            "commit_ms": header["commitTimestamp"],
            "commit_number": header["commitNumber"],
            "commit_user": header["commitUser"],
            "header_error": None,
        }


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

    def writer(self) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        """The function for `mapInArrow`."""
        return self._write

    def _write(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        headers = HeaderCache(self.schemas, self.bus_settings, self.session)
        receipts: list[dict[str, Any]] = []
        name = f"part-{uuid.uuid4()}.parquet"
        path = os.path.join(self.directory, name)
        file: pq.ParquetWriter | None = None
        rows, first, last = 0, 0, 0
        try:
            for batch in batches:
                found, marks = split_marks(batch)
                receipts += [{"span_after": after, "span_through": through} for after, through in marks]
                bronze = render_bronze(found, self.floor, headers)
                if not bronze.num_rows:
                    continue
                positions = bronze.column("replay_id").to_pylist()
                first = min(positions) if not rows else min(first, *positions)
                last = max(last, *positions)
                rows += bronze.num_rows
                if file is None:
                    file = pq.ParquetWriter(path, BRONZE, compression="zstd")
                file.write_batch(bronze)
        finally:
            if file is not None:
                file.close()
        if rows:
            _sync(path)
            receipts.append(
                {
                    "path": name,
                    "size_bytes": os.path.getsize(path),
                    "rows": rows,
                    "first": first,
                    "last": last,
                }
            )
        if headers.fetched:
            receipts.append({"schemas": json.dumps(headers.fetched)})
        yield pa.RecordBatch.from_pylist(receipts, schema=RECEIPT)


class HeaderCache:
    """Header readers by schema id. Schemas that the lake does not have yet are fetched from the bus."""

    def __init__(self, schemas: Mapping[str, str], settings: BusSettings, session: Login | None) -> None:
        self.fetched: dict[str, str] = {}
        self._schemas = schemas
        self._settings = settings
        self._session = session
        self._bus: Bus | None = None
        self._readers: dict[str, HeaderReader] = {}

    def reader(self, schema_id: str) -> HeaderReader:
        """The reader for events of a schema."""
        found = self._readers.get(schema_id)
        if found is None:
            found = self._readers[schema_id] = HeaderReader(self._load(schema_id))
        return found

    def _load(self, schema_id: str) -> str:
        if schema_id in self._schemas:
            return self._schemas[schema_id]
        if self._bus is None:
            self._bus = Bus(self._settings, SystemClock(), self._session)
        self.fetched[schema_id] = self._bus.schema_json(schema_id)
        return self.fetched[schema_id]


def split_marks(batch: pa.RecordBatch) -> tuple[list[dict[str, Any]], list[tuple[int, int]]]:
    """The events of a batch of the bus source, and the (after, through) of its marks."""
    events: list[dict[str, Any]] = []
    marks: list[tuple[int, int]] = []
    for row in batch.to_pylist():
        if row["payload"] is None:
            marks.append((row["transaction_last"], row["replay_id"]))
        else:
            events.append(row)
    return events, marks


def render_bronze(events: Iterable[Mapping[str, Any]], floor: int, headers: HeaderCache) -> pa.RecordBatch:
    """Events above the floor as rows of bronze."""
    rows: list[dict[str, Any]] = []
    for event in events:
        if event["replay_id"] <= floor:
            continue
        try:
            header = headers.reader(event["schema_id"]).read(event["payload"])
        except PayloadInvalid as error:
            header = {**_EMPTY_HEADER, "header_error": error.message}
        rows.append({**event, **header})
    return pa.RecordBatch.from_pylist(rows, schema=BRONZE)


def _sync(path: str) -> None:
    """A commit must never name a file that a power cut can take back."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
