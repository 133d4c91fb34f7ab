"""Write bronze files on executors: rows of the bus source in, one Parquet file and its receipts out.

Only the event header is decoded, by the event's own schema, which a task fetches once if the lake does not
have it. If the server does not return the schema, the event is archived anyway: all change events begin with
the same header, so it is decoded by a generic one.
"""

from __future__ import annotations

import errno
import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from tidewire.client.login import Login
from tidewire.clock import SystemClock
from tidewire.errors import DiskFull, PayloadInvalid, SchemaUnknown
from tidewire.ids import try_normalise_id
from tidewire.names import is_api_name
from tidewire.pipeline.lake.files import FileWriter
from tidewire.pipeline.lake.receipts import render_receipts
from tidewire.pipeline.lake.spans import Span
from tidewire.pipeline.lake.tables import BRONZE
from tidewire.pipeline.lake.watermarks import split_watermarks
from tidewire.pipeline.source.bus import Bus, BusSettings
from tidewire.pipeline.source.headers import Header, HeaderReader, render_headers, unreadable
from tidewire.schema.avro import header_type

_log = logging.getLogger(__name__)

_OWN_COLUMNS = BRONZE.names[:6]
"""The columns that come with the event; the others come from its header."""
# Columns that repeat values; a dictionary of the others would cost more than it saves.
_REPEATED = ["topic", "schema_id", "entity", "change_type", "change_origin", "commit_user"]
_ANY_CHANGE = json.dumps(
    {
        "type": "record",
        "name": "AnyChangeEvent",
        "fields": [{"name": "ChangeEventHeader", "type": header_type()}],
    }
)


_header_reader = lru_cache(maxsize=1024)(HeaderReader)


@dataclass(frozen=True, slots=True)
class BronzeTask:
    """What a task needs: the directory, the position that bronze already holds, and access to schemas."""

    directory: str
    floor: int
    schemas: Mapping[str, str]
    bus_settings: BusSettings
    session: Login | None

    def write(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write rows of the bus source and yield one batch of receipts. Raises DiskFull."""
        headers = HeaderCache(self.schemas, self.bus_settings, self.session)
        spans: list[Span] = []
        file = FileWriter(self.directory, BRONZE, _REPEATED)
        try:
            for batch in batches:
                events, read = split_watermarks(batch, "transaction_last")
                spans += read
                file.append(pa.Table.from_batches([render_bronze(events, self.floor, headers)]))
            written = file.finish()
        except BaseException as error:
            file.discard()
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                raise DiskFull(f"no space is left for bronze in {self.directory}") from error
            raise
        yield render_receipts([written], spans, {"schemas": headers.fetched})


class HeaderCache:
    """Header readers by schema id.

    Schemas that the lake lacks are fetched from the bus. `fetched` holds their text, and the replay id of the
    first event that needed each.
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
        """Return the reader for events of a schema; `replay_id` is the first that needs it.

        Raises SchemaUnknown.
        """
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
        """Decode the header of an event whose schema is unavailable; None if the bytes name no valid records."""
        try:
            found = self._any_change.read(payload)
        except PayloadInvalid:
            return None
        entity, _, ids, *_ = found
        if not entity or not ids or not is_api_name(entity):
            return None
        return found if all(each.endswith("*") or try_normalise_id(each) == each for each in ids) else None


def render_bronze(events: pa.RecordBatch, floor: int, headers: HeaderCache) -> pa.RecordBatch:
    """Return the events above the floor as rows of bronze."""
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
