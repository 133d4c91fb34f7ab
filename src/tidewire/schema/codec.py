"""Encodes and decodes event payloads: Avro binary without framing, by the schema that the event's schema id names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Any

from fastavro.schema import SchemaParseException, UnknownType, parse_schema

from tidewire.errors import PayloadInvalid
from tidewire.schema.avro import schema_id
from tidewire.schema.compiler import MISFITS, Checker, compile_checker, compile_reader
from tidewire.schema.fast_check import FastCheck, try_compile_fast_check
from tidewire.schema.sparse_reader import FieldReader, SparseReader
from tidewire.schema.sparse_writer import SparseWriter

# Checks by generated code before the fast check is compiled, which takes as long as some ten thousand checks.
_CHECKS_BEFORE_FAST = 4096


class EventSchema:
    """One Avro record schema, ready to decode and encode. Making one compiles code: keep it.

    `json` is the schema's text as it is served, `name` the record's name without its namespace, and
    `field_names` the top-level fields in order; a change event's header is at 0.
    """

    def __init__(self, schema_json: str) -> None:
        named: dict[str, Any] = {}
        try:
            raw = json.loads(schema_json)
            parsed = parse_schema(raw, named_schemas=named)
            if not isinstance(parsed, dict) or parsed["type"] != "record":
                raise PayloadInvalid("The event schema is not a record.")
            self.schema_id = schema_id(raw)
            self.name: str = raw["name"].rpartition(".")[2]
            self.field_names: tuple[str, ...] = tuple(f["name"] for f in raw["fields"])
            self._components = _components(parsed, named)
            self._read = compile_reader(parsed, named)
            self._parts = parsed, named
            self._checks = 0
            self._fast_check: FastCheck | None = None
        # SyntaxError: Python refuses code as deeply nested as some schemas may be.
        except (SchemaParseException, UnknownType, SyntaxError, *MISFITS) as e:
            raise PayloadInvalid("The event schema is not an Avro schema that this server reads.") from e
        self.json = schema_json

    def __repr__(self) -> str:
        return f"EventSchema({self.name}, {self.schema_id})"

    def __reduce__(self) -> tuple[type[EventSchema], tuple[str]]:
        return EventSchema, (self.json,)

    def component_names(self, field: str) -> tuple[str, ...]:
        """Return the parts of a compound field in order; empty for a plain or unknown field."""
        return self._components.get(field, ())

    def decode(self, payload: bytes) -> dict[str, Any]:
        """Return all fields of the payload. Raises PayloadInvalid unless every byte fits the schema."""
        try:
            value, end = self._read(payload, 0)
        except MISFITS as e:
            raise PayloadInvalid(f"The event's bytes do not fit schema {self.name} {self.schema_id}.") from e
        if end != len(payload):
            raise PayloadInvalid(f"The event is longer or shorter than schema {self.name} {self.schema_id}.")
        fields: dict[str, Any] = value
        return fields

    def decode_non_null(self, payload: bytes) -> dict[str, Any]:
        """Return the fields of the payload that are not null. Raises PayloadInvalid as `decode` does."""
        try:
            return self._sparse_reader.read(payload)
        except MISFITS as e:
            raise PayloadInvalid(f"The event's bytes do not fit schema {self.name} {self.schema_id}.") from e

    def check(self, payload: bytes) -> None:
        """Raise PayloadInvalid unless `decode` accepts the payload. Quicker, since nothing is decoded."""
        if self._fast_check is not None and self._fast_check(payload) is not None:
            return
        self._checks += 1
        if self._checks == _CHECKS_BEFORE_FAST:
            self._fast_check = try_compile_fast_check(self._parts[0])
        try:
            end = self._check(payload, 0)
        except MISFITS as e:
            raise PayloadInvalid(f"The event's bytes do not fit schema {self.name} {self.schema_id}.") from e
        if end != len(payload):
            raise PayloadInvalid(f"The event is longer or shorter than schema {self.name} {self.schema_id}.")

    def encode(self, value: Mapping[str, Any]) -> bytes:
        """Return the payload of these fields; absent ones take their default or null.

        Raises PayloadInvalid for a value that its field cannot hold.
        """
        try:
            return self._writer.write(value)
        except MISFITS as e:
            raise PayloadInvalid(f"The event's values do not fit schema {self.name} {self.schema_id}.") from e

    def encode_field(self, name: str, value: object) -> bytes:
        """Return the bytes of one top-level field. Raises PayloadInvalid as `encode` does."""
        try:
            return self._writer.write_field(name, value)
        except MISFITS as e:
            raise PayloadInvalid(f"The value does not fit {name} of {self.name} {self.schema_id}.") from e

    @property
    def field_readers(self) -> tuple[FieldReader, ...]:
        """The top-level fields in order, each with its reader."""
        return self._sparse_reader.fields

    @cached_property
    def _sparse_reader(self) -> SparseReader:
        return SparseReader(*self._parts)

    @cached_property
    def _check(self) -> Checker:
        return compile_checker(*self._parts)

    @cached_property
    def _writer(self) -> SparseWriter:
        # Made when first needed: most schemas are only used for reading.
        return SparseWriter(*self._parts)


@lru_cache(maxsize=2048)
def compiled_schema(schema_json: str) -> EventSchema:
    """Return the compiled schema of a text. Cached: orgs share most schemas, and a new catalog changes few."""
    return EventSchema(schema_json)


def _components(record: Any, named: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    found = {}
    for field in record["fields"]:
        branches = field["type"] if isinstance(field["type"], list) else [field["type"]]
        for branch in branches:
            definition = named.get(branch) if isinstance(branch, str) else branch
            if isinstance(definition, dict) and definition["type"] == "record":
                found[field["name"]] = tuple(part["name"] for part in definition["fields"])
    return found
