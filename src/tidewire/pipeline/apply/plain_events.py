"""Decode plain changes by columns: events of one record without special cases, which nearly all are.

Bronze has the header of such an event in columns, which become columns of history unchanged. The header's
length follows from them, so only the fields after it are read event by event. Other events (several records,
gaps, wildcards, text differences, foreign or damaged forms) are left to the decoder, which would decode plain
events to the same rows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from tidewire.errors import PlatformError
from tidewire.ids import EMPTY_ID
from tidewire.pipeline.apply.decode import CREATES, ENTITY, HEADER, ChangeSchema, Decoder, FieldBits
from tidewire.pipeline.lake.columns import Native, component_column
from tidewire.pipeline.lake.tables import HISTORY
from tidewire.pipeline.source.headers import try_symbols
from tidewire.schema.compiler import MISFITS, Reader, reject
from tidewire.schema.sparse_reader import FieldReader

_PLAIN_TYPES = ("CREATE", "UPDATE", "DELETE", "UNDELETE")
_BITMAPS = ("nulledFields", "diffFields", "changedFields")
_ID_BYTES, _KEY_BYTES, _SHORT = 18, 36, 64
_WIDEST = 10  # bytes of a number of 64 bits
_NO_ID = pa.scalar([None], pa.list_(pa.string()))
_NO_BITS = b"\0\0\0"
_SIMPLE = frozenset({"string", "boolean", "int", "long", "float", "double"})
_LONG = 0x81  # set in the first byte of a length that is negative or has more bytes
_SET = 2  # how Avro writes that the second branch follows, which is not null
_NULLS = re.compile(rb"\0*").match
_TAKEN = {
    "replay_id": "replay_id",
    "sequence": "sequence",
    "change_type": "change_type",
    "transaction_key": "transaction_key",
    "commit_number": "commit_number",
    "commit_ms": "commit_ms",
    "user_id": "commit_user",
    "origin": "change_origin",
    "schema_id": "schema_id",
}
"""Columns of history, and the columns of bronze that they are copied from."""
_Numbers = np.ndarray[tuple[int], np.dtype[np.int64]]
_Flags = np.ndarray[tuple[int], np.dtype[np.bool_]]
_Fields = tuple[tuple[str, Reader, "_Fields | None", bool], ...]
"""Column, reader, components of a compound field, and whether it is a text."""


class PlainReader:
    """Reads the fields after the headers of plain events of one schema."""

    def __init__(self, schema: ChangeSchema, fields: _Fields, symbols: tuple[str, ...]) -> None:
        self.symbols = symbols
        self._schema = schema
        self._fields = fields
        self._bits: tuple[bytes, FieldBits] = (_NO_BITS, FieldBits((), frozenset()))

    def read(self, payload: bytes, p: int) -> tuple[FieldBits, dict[str, Native]]:
        """Decode the bitmaps from `p` on, and the values after them by column.

        Raises MISFITS and PayloadInvalid.
        """
        raw, bits = self._bits
        # No array of bitmaps is a prefix of another.
        if not payload.startswith(raw, p):
            raw, bits = self._bits = self._read_bits(payload, p)
        values: dict[str, Native] = {}
        if _read_fields(payload, p + len(raw), self._fields, values) != len(payload):
            reject("it is longer or shorter")
        return bits, values

    def _read_bits(self, payload: bytes, p: int) -> tuple[bytes, FieldBits]:
        if payload.startswith(_NO_BITS, p):
            return _NO_BITS, FieldBits((), frozenset())
        begin = p
        header: dict[str, list[str]] = {}
        for name in _BITMAPS:
            header[name], p = _read_texts(payload, p)
        return payload[begin:p], self._schema.bits(header)


@lru_cache(maxsize=256)
def try_reader(schema: ChangeSchema) -> PlainReader | None:
    """Return a reader for a schema with the usual header and nullable fields; None for any other."""
    raw = json.loads(schema.event.json)
    if not schema.is_change or raw["fields"][0]["name"] != HEADER:
        return None
    header = raw["fields"][0]["type"]
    symbols = try_symbols(header)
    texts = {"type": "array", "items": "string"}
    tail = [(each["name"], each["type"]) for each in header["fields"][-len(_BITMAPS) :]] if symbols else []
    if tail != [(name, texts) for name in _BITMAPS] or len(symbols) > _SHORT:
        return None
    fields = _flat_fields(schema.event.field_readers[1:])
    return None if fields is None else PlainReader(schema, fields, symbols)


def _flat_fields(readers: Sequence[FieldReader], parent: str = "") -> _Fields | None:
    found: list[tuple[str, Reader, _Fields | None, bool]] = []
    for field in readers:
        spelled = json.loads(field.spelled)
        if not isinstance(spelled, list) or spelled[:1] != ["null"] or spelled.count("null") != 1:
            return None
        parts = _flat_fields(field.parts, field.name) if field.parts else None
        is_known = parts is not None if field.parts else len(spelled) == 2 and _is_simple(spelled[1], parent)
        if not is_known:
            return None
        column = component_column(parent, field.name) if parent else field.name
        found.append((column, field.read, parts, spelled[1] == "string"))
    return tuple(found)


def _is_simple(avro_type: Any, parent: str) -> bool:
    """Return whether a type is text, number or boolean; for a whole field also a list of texts."""
    if isinstance(avro_type, str):
        return avro_type in _SIMPLE
    return not parent and avro_type == {"type": "array", "items": "string"}


def _read_fields(payload: bytes, p: int, fields: _Fields, values: dict[str, Native]) -> int:
    """Read nullable fields and return where they end, which may be beyond the end of the payload."""
    place, count = 0, len(fields)
    while place < count:
        if not payload[p]:
            end = _NULLS(payload, p).end()  # type: ignore[union-attr] # it matches nothing, too
            place += end - p
            # Zeros after the last component of a compound field belong to the fields after it.
            p = end if place <= count else end - place + count
            continue
        column, read, parts, is_text = fields[place]
        place += 1
        size = payload[p + 1] if is_text else _LONG
        if not size & _LONG and payload[p] == _SET:
            begin = p + 2
            p = begin + (size >> 1)
            values[column] = payload[begin:p].decode()
        elif parts is None:
            value: Any
            value, p = read(payload, p)
            values[column] = ";".join(value) if isinstance(value, list) else value
        elif payload[p] == _SET:
            p = _read_fields(payload, p + 1, parts, values)
        else:
            reject("a compound field of an unusual form")
    return p


def _read_texts(payload: bytes, p: int) -> tuple[list[str], int]:
    """Read a short array of short texts in one block. Raises for any other, which the decoder reads."""
    count = payload[p]
    texts: list[str] = []
    p += 1
    if not count:
        return texts, p
    if count & _LONG:
        reject("a long array")
    for _ in range(count >> 1):
        size = payload[p]
        if size & _LONG:
            reject("a long text")
        end = p + 1 + (size >> 1)
        texts.append(payload[p + 1 : end].decode())
        p = end
    if payload[p]:
        reject("an array of several blocks")
    return texts, p + 1


class PlainEvents:
    """Decodes plain events of batches of bronze rows and passes the others to a decoder."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._readers: dict[str, PlainReader | None] = {}
        self._last = -1

    def add(self, batch: pa.RecordBatch) -> None:
        """Decode a batch of bronze rows that are events, in log order."""
        if not batch.num_rows:
            return
        is_plain = self._find_plain(batch)
        self._last = batch.column("replay_id")[-1].as_py()
        left = np.flatnonzero(~is_plain).tolist()
        for schema_id in pc.unique(batch.column("schema_id")).to_pylist() if is_plain.any() else ():
            has_schema = pc.equal(batch.column("schema_id"), schema_id).to_numpy(zero_copy_only=False)
            left += self._add_plain(batch, np.flatnonzero(is_plain & has_schema), schema_id)
        if left:
            self._decoder.add(batch.take(pa.array(sorted(left), pa.int64())))

    def _find_plain(self, batch: pa.RecordBatch) -> _Flags:
        """Return which events look plain by their header columns."""
        none = np.zeros(batch.num_rows, dtype=bool)
        ids = batch.column("record_ids")
        positions = batch.column("replay_id").to_numpy()
        steps = np.diff(positions, prepend=self._last)
        all_ids = pc.list_flatten(ids)
        # A wildcard event depends on the previous schema of its object: then decode everything in order.
        if (steps < 0).any() or pc.any(pc.ends_with(all_ids, "*")).as_py():
            return none
        first = pc.list_element(pc.if_else(pc.equal(pc.list_value_length(ids), 1), ids, _NO_ID), 0)
        known = [each for each in pc.unique(batch.column("schema_id")).to_pylist() if self._reader(each)]
        tests = [
            pc.is_in(batch.column("schema_id"), pa.array(known, pa.string())),
            pc.is_in(batch.column("change_type"), pa.array(_PLAIN_TYPES)),
            pc.not_equal(first, EMPTY_ID),
            pc.equal(pc.binary_length(first), _ID_BYTES),
            pc.equal(pc.binary_length(batch.column("commit_user")), _ID_BYTES),
            pc.equal(pc.binary_length(batch.column("transaction_key")), _KEY_BYTES),
            pc.less(pc.binary_length(batch.column("change_origin")), _SHORT),
            pc.less(pc.binary_length(batch.column("entity")), _SHORT),
            pc.match_substring_regex(batch.column("entity"), rf"\A{ENTITY.pattern}\z"),
            *(pc.is_valid(batch.column(name)) for name in ("sequence", "commit_ms", "commit_number")),
        ]
        found = ~none
        for test in tests:
            found &= pc.fill_null(test, False).to_numpy(zero_copy_only=False)
        # Events that share a position are decoded together; the last one's neighbour may be in the next batch.
        shares = steps == 0
        found &= ~shares & ~np.append(shares[1:], True)
        return found

    def _reader(self, schema_id: str | None) -> PlainReader | None:
        if schema_id is None:
            return None
        if schema_id not in self._readers:
            try:
                schema = self._decoder.try_schema(schema_id)
                self._readers[schema_id] = None if schema is None else try_reader(schema)
            except PlatformError:
                self._readers[schema_id] = None
        return self._readers[schema_id]

    def _add_plain(self, batch: pa.RecordBatch, rows: _Numbers, schema_id: str) -> list[int]:
        """Decode rows of one schema and return those that were not plain after all."""
        reader = self._reader(schema_id)
        if reader is None or not len(rows):
            return rows.tolist()
        events = batch.take(pa.array(rows))
        starts, fits = _find_starts(events, reader.symbols)
        changed: list[tuple[str, ...]] = []
        texts: list[bytes] = []
        enriched: list[bytes | None] = []
        good: list[int] = []
        left: list[int] = rows[~fits].tolist()
        payloads, types = events.column("payload").to_pylist(), events.column("change_type").to_pylist()
        for i in np.flatnonzero(fits).tolist():
            try:
                bits, present = reader.read(payloads[i], starts[i])
            except (PlatformError, *MISFITS):
                left.append(int(rows[i]))
                continue
            kind, others = types[i], None
            values: dict[str, Native] = {}
            if kind in CREATES:
                values = present
            elif kind == "UPDATE":
                if bits.differing:
                    left.append(int(rows[i]))
                    continue
                values = {name: present.pop(name, None) for name in bits.changed}
                others = present
            else:
                others = present
            good.append(i)
            changed.append(bits.changed)
            texts.append(orjson.dumps(values))
            enriched.append(orjson.dumps(others) if others else None)
        if good:
            found = _render(events.take(pa.array(good, pa.int64())), changed, texts, enriched)
            for entity, table in found:
                self._decoder.add_rows(entity, schema_id, table)
        return left


def _find_starts(events: pa.RecordBatch, symbols: tuple[str, ...]) -> tuple[list[int], _Flags]:
    """Return where the header's bitmaps begin, and whether the bytes before them match the header columns."""
    entity, origin, user = (events.column(name) for name in ("entity", "change_origin", "commit_user"))
    entity_bytes, origin_bytes = (
        pc.binary_length(column).to_numpy().astype(np.int64) for column in (entity, origin)
    )
    key = 1 + entity_bytes + 2 + _ID_BYTES + 1 + 1 + 1 + origin_bytes
    widths = [_number_bytes(events.column(name)) for name in ("sequence", "commit_ms", "commit_number")]
    ends = key + 1 + _KEY_BYTES + sum(widths) + 1 + _ID_BYTES
    data, begins, sizes = _bytes_of(events.column("payload"))
    fits: _Flags = ends < sizes
    for width in widths:
        fits &= width < _WIDEST  # one as wide may have been written with more bits than it has here
    at = np.where(fits, begins, 0)
    if not fits.all():
        key, ends, entity_bytes = (np.where(fits, places, 0) for places in (key, ends, entity_bytes))
    types = pc.index_in(events.column("change_type"), pa.array(symbols)).fill_null(-1).to_numpy()
    ids = at + 1 + entity_bytes
    for places, expected in (
        (at, entity_bytes * 2),
        (ids, 2),
        (ids + 1, _ID_BYTES * 2),
        (ids + 2 + _ID_BYTES, 0),
        (ids + 3 + _ID_BYTES, types * 2),
        (ids + 4 + _ID_BYTES, origin_bytes * 2),
        (at + key, _KEY_BYTES * 2),
        (at + ends - 1 - _ID_BYTES, _ID_BYTES * 2),
    ):
        fits &= data[np.minimum(places, len(data) - 1)] == expected
    users, user_begins, _ = _bytes_of(user.cast(pa.binary()))
    for i in range(_ID_BYTES):
        fits &= data[np.minimum(at + ends - _ID_BYTES + i, len(data) - 1)] == users[user_begins + i]
    return ends.tolist(), fits


def _bytes_of(column: pa.Array) -> tuple[np.ndarray[tuple[int], np.dtype[np.uint8]], _Numbers, _Numbers]:
    """Return the bytes of all values, and the start and length of each."""
    _, offsets, data = column.buffers()
    places = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1].astype(
        np.int64
    )
    return np.frombuffer(data, np.uint8), places[:-1], np.diff(places)


def _number_bytes(column: pa.Array) -> _Numbers:
    """Return how many bytes Avro needs for each number."""
    numbers = column.to_numpy()
    written = ((numbers << 1) ^ (numbers >> 63)).astype(np.uint64)
    found: _Numbers = np.ones(len(numbers), np.int64)
    for place in range(1, _WIDEST):
        found += written >= np.uint64(1 << (7 * place))
    return found


def _render(
    events: pa.RecordBatch,
    changed: Sequence[tuple[str, ...]],
    texts: Sequence[bytes],
    enriched: Sequence[bytes | None],
) -> list[tuple[str, pa.Table]]:
    """Yield rows of history by object."""
    distinct = {names: place for place, names in enumerate(dict.fromkeys(changed))}
    places = pa.array([distinct[names] for names in changed], pa.int32())
    columns: dict[str, pa.Array] = {name: events.column(source) for name, source in _TAKEN.items()}
    columns["record_id"] = pc.list_flatten(events.column("record_ids"))
    columns["changed"] = pa.array(list(distinct), pa.list_(pa.string())).take(places)
    columns["values_json"] = pa.array(texts, pa.binary()).cast(pa.string())
    columns["enriched_json"] = pa.array(enriched, pa.binary()).cast(pa.string())
    columns["problem"] = pa.nulls(len(texts), pa.string())
    rows = pa.Table.from_arrays([columns[field.name] for field in HISTORY], schema=HISTORY)
    entities = events.column("entity")
    names: list[str] = pc.unique(entities).to_pylist()
    if len(names) == 1:
        return [(names[0], rows)]
    return [(name, rows.filter(pc.equal(entities, name))) for name in names]
