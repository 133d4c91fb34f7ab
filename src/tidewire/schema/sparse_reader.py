"""Reads Avro records of which most fields are null, such as change events.

A null is one zero byte before a field that may be null, so a run of zero bytes is as many fields to skip at
once. Reading costs what the set fields cost, however many others the schema has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from tidewire.schema.compiler import Reader, compile_reader, reject
from tidewire.schema.sparse_writer import try_compound

# Finds the length of a run of zeros in C; a loop over bytes would take longer than reading the fields.
_NULLS = re.compile(rb"\0*").match


class FieldReader(NamedTuple):
    """One field of a record: `spelled` is its Avro type as JSON, `doc` is the field's doc in the schema.

    `parts` are the fields of a compound that may be null.
    """

    name: str
    spelled: str
    doc: str
    read: Reader
    parts: tuple[FieldReader, ...] = ()


class SparseReader:
    """Reads records of one schema whose names are all full. Making one compiles code: keep it."""

    def __init__(self, record: Mapping[str, Any], named: dict[str, Any]) -> None:
        self.fields = _field_readers(record, named, {}, with_parts=True)
        # From this field on all may be null, with null as the first branch. Before it (the header) a zero byte may
        # be a number or an empty text, so nothing is skipped.
        self._first_optional = max(
            (n for n, field in enumerate(record["fields"], 1) if not _is_optional(field["type"])), default=0
        )

    def read(self, payload: bytes) -> dict[str, Any]:
        """Return the fields that are not null. Raises what generated code does, and PayloadInvalid."""
        fields, nulls = self.fields, _NULLS
        values: dict[str, Any] = {}
        place = p = 0
        count = len(fields)
        while True:
            if place >= self._first_optional:
                match = nulls(payload, p)
                if match is not None:
                    place += match.end() - p
                    p = match.end()
            if place >= count:
                break
            name, _, _, reader, _ = fields[place]
            value, p = reader(payload, p)
            if value is not None:
                values[name] = value
            place += 1
        # More zeros than fields, bytes after the last field, or a text that reaches past the end.
        if place != count or p != len(payload):
            reject("it is longer or shorter")
        return values


def _field_readers(
    record: Mapping[str, Any], named: dict[str, Any], readers: dict[str, Reader], *, with_parts: bool
) -> tuple[FieldReader, ...]:
    """Return a reader per field; fields of one type share theirs, so each type is compiled once."""
    fields: list[FieldReader] = []
    for field in record["fields"]:
        spelled = json.dumps(field["type"])
        if spelled not in readers:
            readers[spelled] = compile_reader(field["type"], named)
        compound = try_compound(field["type"], named) if with_parts else None
        # A part's own parts are left to its reader: a record may hold itself.
        parts = () if compound is None else _field_readers(compound, named, readers, with_parts=False)
        fields.append(FieldReader(field["name"], spelled, str(field.get("doc", "")), readers[spelled], parts))
    return tuple(fields)


def _is_optional(schema: Any) -> bool:
    return isinstance(schema, list) and bool(schema) and schema[0] == "null"
