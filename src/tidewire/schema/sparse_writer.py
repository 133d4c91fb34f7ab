"""Writes Avro records of which most fields are null, such as change events.

The bytes of a record without any value are made once, a piece per field; a value's bytes then replace its
field's piece. So a record costs what its set fields cost, however many others the schema has.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from typing import Any

from tidewire.errors import PayloadInvalid
from tidewire.schema.compiler import MISFITS, Writer, compile_writer, int_bytes, long_bytes, reject

FieldWriter = Callable[[Any], bytes]

_DOUBLE = struct.Struct("<d")
# Branch and length of a short text that may be null, in one piece.
_SOME_LENGTH = tuple(b"\2" + long_bytes(n) for n in range(1024))


class SparseWriter:
    """Writes records of one schema whose names are all full. Making one compiles code: keep it.

    A compound, such as an address, is a record that may be null and has mostly nulls in turn, so it has a sparse
    writer of its own. With `is_inner` it is one of those, and its own records are written whole: a record may
    hold itself, and sparse writers inside each other would never end.
    """

    def __init__(self, record: Mapping[str, Any], named: dict[str, Any], *, is_inner: bool = False) -> None:
        # By the type's JSON: hundreds of fields share a handful of types, and each type is compiled once.
        writers: dict[str, FieldWriter] = dict(_COMMON)
        self._empty: list[bytes | None] = []
        self._places: dict[str, tuple[int, FieldWriter]] = {}
        for place, field in enumerate(record["fields"]):
            type_json = json.dumps(field["type"])
            if type_json not in writers:
                compound = None if is_inner else try_compound(field["type"], named)
                if compound is None:
                    writers[type_json] = _whole(compile_writer(field["type"], named))
                else:
                    writers[type_json] = _optional(SparseWriter(compound, named, is_inner=True))
            self._places[field["name"]] = place, writers[type_json]
            # None for a field that cannot be null and has no default: such a record must name it.
            self._empty.append(_try_write(writers[type_json], field.get("default")))

    def write(self, value: Mapping[str, Any]) -> bytes:
        """Return the record's bytes; an absent field takes its default or null. Raises what generated code does."""
        parts = self._empty.copy()
        places = self._places
        for name, given in value.items():
            found = places.get(name)
            if found is not None:  # like fastavro, ignore what the schema does not name
                parts[found[0]] = found[1](given)
        # A field that was not given and cannot be null is still None here: join raises TypeError, one of MISFITS.
        return b"".join(parts)  # type: ignore[arg-type]

    def write_field(self, name: str, value: object) -> bytes:
        """Return the bytes of one field. Raises what generated code does."""
        return self._places[name][1](value)


def _try_write(writer: FieldWriter, default: object) -> bytes | None:
    try:
        return writer(default)
    except (PayloadInvalid, *MISFITS):
        return None


def try_compound(schema: Any, named: dict[str, Any]) -> Mapping[str, Any] | None:
    """Return the record of a union of null and a record, or None for any other type."""
    if not isinstance(schema, list) or len(schema) != 2 or schema[0] != "null":
        return None
    # The second address of an object only names the record that the first one defines.
    definition = named.get(schema[1]) if isinstance(schema[1], str) else schema[1]
    return definition if isinstance(definition, dict) and definition["type"] == "record" else None


def _optional(writer: SparseWriter) -> FieldWriter:
    def write(value: Mapping[str, Any] | None) -> bytes:
        return b"\0" if value is None else b"\2" + writer.write(value)

    return write


def _whole(writer: Writer) -> FieldWriter:
    def write(value: Any) -> bytes:
        parts: list[bytes] = []
        writer(value, parts.append)
        return b"".join(parts)

    return write


def _optional_text(value: str | None) -> bytes:
    if value is None:
        return b"\0"
    text = value.encode()
    size = len(text)
    return (_SOME_LENGTH[size] if size < 1024 else b"\2" + long_bytes(size)) + text


def _optional_long(value: int | None) -> bytes:
    return b"\0" if value is None else b"\2" + long_bytes(value)


def _optional_int(value: int | None) -> bytes:
    return b"\0" if value is None else b"\2" + int_bytes(value)


def _optional_double(value: float | None) -> bytes:
    return b"\0" if value is None else b"\2" + _DOUBLE.pack(value)


def _optional_boolean(value: object) -> bytes:
    if value is None:
        return b"\0"
    return b"\2\1" if value is True else b"\2\0" if value is False else reject("not a boolean")


# Nearly all fields of change events have one of these types; the others are compiled. Written by hand because
# a function per type, shared by all schemas, starts quicker than generated code and is as fast.
_COMMON: dict[str, FieldWriter] = {
    '["null", "string"]': _optional_text,
    '["null", "long"]': _optional_long,
    '["null", "int"]': _optional_int,
    '["null", "double"]': _optional_double,
    '["null", "boolean"]': _optional_boolean,
}
