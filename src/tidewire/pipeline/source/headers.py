"""Decode the headers of change events without the rest of the payload.

The header is the first field of every change event, so its bytes begin the payload. Nearly all headers name
one record; those are decoded by hand, all others by the Avro schema. Both ways give the same result.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa

from tidewire.errors import PayloadInvalid

_HEADER = "ChangeEventHeader"
_USUAL = (
    ("entityName", "string"),
    ("recordIds", "array"),
    ("changeType", "enum"),
    ("changeOrigin", "string"),
    ("transactionKey", "string"),
    ("sequenceNumber", "int"),
    ("commitTimestamp", "long"),
    ("commitNumber", "long"),
    ("commitUser", "string"),
)
_ONE_ID = b"\x02\x24"  # a block of one string of eighteen bytes
_NUMBER = rb"([\x80-\xff]{0,8}[\x00-\x7f])"  # longer ones may be more than a number can hold
_REST = re.compile(rb"\x48(.{36})" + _NUMBER * 3 + rb"\x24(.{18})", re.DOTALL).match
MISFITS = (ValueError, EOFError, IndexError, KeyError, TypeError, OverflowError, MemoryError)


Header = tuple[
    str | None,
    str | None,
    list[str] | None,
    str | None,
    str | None,
    bytes,
    bytes,
    bytes,
    str | None,
    str | None,
]
"""The fields of a header, as a plain tuple because one is made for every event.

Entity, change type, record ids, origin, transaction key, three numbers as undecoded Avro bytes (empty for
none), user, and the error if the header cannot be read.
"""
NO_HEADER: Header = (None, None, None, None, None, b"", b"", b"", None, None)
_NUMBERS = (5, 6, 7)


class HeaderReader:
    """Reads the headers of events of one schema."""

    def __init__(self, schema_json: str) -> None:
        schema = json.loads(schema_json)
        self._prefix: Any = None
        self._symbols: tuple[str, ...] = ()
        self._entity = b""
        self._entity_name = ""
        if schema["fields"] and schema["fields"][0]["name"] == _HEADER:
            header = schema["fields"][0]
            self._symbols = try_symbols(header["type"])
            if self._symbols:
                # The bitmaps after these are not needed here.
                header = {
                    **header,
                    "type": {**header["type"], "fields": header["type"]["fields"][: len(_USUAL)]},
                }
            self._prefix = fastavro.parse_schema({**schema, "fields": [header]})

    def read(self, payload: bytes) -> Header:
        """Return the header; NO_HEADER if events of this schema have none. Raises PayloadInvalid."""
        if self._entity and payload.startswith(self._entity):
            found = self._try_read(payload, len(self._entity))
            if found is not None:
                return found
        if self._prefix is None:
            return NO_HEADER
        try:
            event: Any = fastavro.schemaless_reader(io.BytesIO(payload), self._prefix, None)
        except MISFITS as error:
            raise PayloadInvalid("the header does not decode by the event's schema") from error
        header = event[_HEADER]
        self._note_entity(header["entityName"])
        return (
            header["entityName"],
            header["changeType"],
            header["recordIds"],
            header["changeOrigin"],
            header["transactionKey"],
            _write_number(header["sequenceNumber"]),
            _write_number(header["commitTimestamp"]),
            _write_number(header["commitNumber"]),
            header["commitUser"],
            None,
        )

    def _note_entity(self, name: str) -> None:
        """Remember the entity name that all headers of the schema begin with."""
        raw = name.encode()
        if self._symbols and len(raw) < 64:
            self._entity_name = name
            self._entity = bytes([len(raw) * 2]) + raw

    def _try_read(self, payload: bytes, place: int) -> Header | None:
        """Decode a header with one record, after its entity name; None for any other form."""
        try:
            if payload[place : place + 2] != _ONE_ID or payload[place + 20]:
                return None
            kind, size = payload[place + 21], payload[place + 22]
            if kind & 1 or size & 0x81:
                return None
            origin_end = place + 23 + (size >> 1)
            rest = _REST(payload, origin_end)
            if rest is None:
                return None
            key, sequence, commit_ms, commit_number, user = rest.groups()
            return (
                self._entity_name,
                self._symbols[kind >> 1],
                [payload[place + 2 : place + 20].decode()],
                _text(payload[place + 23 : origin_end]),
                key.decode(),
                sequence,
                commit_ms,
                commit_number,
                _text(user),
                None,
            )
        except (IndexError, ValueError):
            return None


def try_symbols(header: Any) -> tuple[str, ...]:
    """Return the names of change types if the header has the usual fields; otherwise nothing."""
    try:
        fields = header["fields"]
        kinds = [f["type"] if isinstance(f["type"], str) else f["type"]["type"] for f in fields]
        names = [field["name"] for field in fields]
        if tuple(zip(names, kinds, strict=True))[: len(_USUAL)] != _USUAL:
            return ()
        if fields[1]["type"]["items"] != "string":
            return ()
        return tuple(fields[2]["type"]["symbols"])
    except (KeyError, TypeError, IndexError):
        return ()


@lru_cache(maxsize=4096)
def _text(raw: bytes) -> str:
    """Decode a text. Cached: events of one transaction repeat theirs."""
    return raw.decode()


def unreadable(reason: str) -> Header:
    """Return the placeholder for a header that cannot be read."""
    return (*NO_HEADER[:-1], reason)


def render_headers(headers: Sequence[Header]) -> list[pa.Array]:
    """Return the header columns of bronze, in its order."""
    columns = list(zip(*headers, strict=True)) or [()] * len(NO_HEADER)
    return [
        _render_numbers(values)
        if place in _NUMBERS
        else pa.array(values, pa.list_(pa.string()) if place == 2 else pa.string())
        for place, values in enumerate(columns)
    ]


def _render_numbers(raws: Sequence[bytes]) -> pa.Array:
    """Decode numbers from their bytes, all at once; null where there are none."""
    sizes = np.fromiter(map(len, raws), np.int64, len(raws))
    digits = np.frombuffer(b"".join(raws), np.uint8).astype(np.uint64) & np.uint64(0x7F)
    starts = np.cumsum(sizes) - sizes
    values = np.zeros(len(raws), np.uint64)
    for place in range(int(sizes.max(initial=0))):
        has = sizes > place
        values[has] |= digits[starts[has] + place] << np.uint64(7 * place)
    signed = (values >> np.uint64(1)).astype(np.int64) ^ -(values & np.uint64(1)).astype(np.int64)
    return pa.array(signed, pa.int64(), mask=sizes == 0)


def _write_number(number: int) -> bytes:
    """Encode a number as Avro does."""
    value = (number << 1) ^ (number >> 63)
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)
