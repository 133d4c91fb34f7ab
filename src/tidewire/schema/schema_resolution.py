"""Avro schema resolution: re-encodes an event that was written by an older schema to the newest one."""

from __future__ import annotations

import io
import json
from typing import Any

from fastavro import schemaless_reader
from fastavro.read import SchemaResolutionError
from fastavro.schema import parse_schema

from tidewire.errors import PayloadInvalid
from tidewire.schema.codec import EventSchema


class SchemaResolution:
    """Resolves one schema of an event to another. Making one is cheap; keep it for a batch."""

    def __init__(self, writer: EventSchema, reader: EventSchema) -> None:
        self._writer = writer
        self._reader = reader
        self._written: Any = parse_schema(json.loads(writer.json))
        self._read: Any = parse_schema(json.loads(reader.json))

    def resolve(self, payload: bytes) -> bytes:
        """Return the same event by the reader's schema: new fields take their default, removed ones are dropped.

        Raises PayloadInvalid if the bytes do not fit the writer's schema, or the two cannot be resolved.
        """
        self._writer.decode(payload)
        try:
            value = schemaless_reader(io.BytesIO(payload), self._written, self._read)
        except (SchemaResolutionError, ValueError, TypeError, KeyError) as error:
            raise PayloadInvalid(
                f"Schema {self._writer.schema_id} cannot be resolved to the newest schema of {self._reader.name}"
            ) from error
        if not isinstance(value, dict):
            raise PayloadInvalid("The event is not a record")
        return self._reader.encode(value)
