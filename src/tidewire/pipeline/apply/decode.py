"""Decode archived events to rows of history: one row per record that an event names.

Runs on executors, column by column: values become Arrow only when a whole file is rendered. Every event is
decoded by its own schema, so one batch may mix schema versions. An event that cannot be decoded still leaves
a note, and a row with its `problem` if its header is known. So it is counted and shown, not lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from tidewire.errors import PayloadInvalid, PlatformError
from tidewire.ids import EMPTY_ID
from tidewire.names import entity_of_change_event
from tidewire.pipeline.lake.columns import (
    Kind,
    Native,
    component_column,
    loses_values,
    parse_columns,
    parse_kinds,
)
from tidewire.pipeline.lake.tables import HISTORY
from tidewire.pipeline.replicas.fold import (
    DELETES,
    DIFFERENCE,
    PAYLOAD_INVALID,
    SCHEMA_UNKNOWN,
    TYPE_UNKNOWN,
    WILDCARD,
)
from tidewire.schema.bitmap import decode_bitmap
from tidewire.schema.codec import EventSchema

HEADER = "ChangeEventHeader"
GAPS = frozenset({"GAP_CREATE", "GAP_UPDATE", "GAP_UNDELETE"})
GAP, OVERFLOW, WILDCARD_UNKNOWN = "gap", "overflow", "wildcard_unknown"
DIFFERING = "difference"
ENTITY = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,79}")
_MAX_PLANS = 4096
CREATES = frozenset({"CREATE", "UNDELETE"})


@dataclass(frozen=True, slots=True)
class Note:
    """An event that the driver must act on.

    `reason` is a problem, or `difference` for an event with text differences; `columns` are those that a
    wildcard event sets to null.
    """

    entity: str
    record_id: str
    replay_id: int
    reason: str
    change_type: str = ""
    schema_id: str = ""
    detail: str = ""
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Envelope:
    """The properties of an event apart from its payload."""

    replay_id: int
    schema_id: str
    entity: str
    change_type: str
    record_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FieldBits:
    """The decoded bitmaps of a header: the changed columns, and those sent as a text difference."""

    changed: tuple[str, ...]
    differing: frozenset[str]


class ChangeSchema:
    """An Avro schema of change events, with the replica columns of its fields."""

    def __init__(self, schema_json: str) -> None:
        self.event = EventSchema(schema_json)
        self._schema_json = schema_json
        self._bits: dict[tuple[tuple[str, ...], ...], FieldBits] = {}
        self._parts: dict[tuple[str, str], str] = {}

    @cached_property
    def columns(self) -> dict[str, tuple[str, ...]]:
        """Return the columns of each field."""
        return parse_columns(self._schema_json)

    @cached_property
    def kinds(self) -> dict[str, Kind]:
        """Return the type of each column."""
        return parse_kinds(self._schema_json)

    @property
    def is_change(self) -> bool:
        """Return whether events of this schema are changes of records."""
        return HEADER in self.event.field_names

    def columns_of(self, names: Iterable[str]) -> list[str]:
        """Return the columns for names such as `Phone`, `BillingAddress.City` or a whole `Name`."""
        found: dict[str, None] = {}
        for name in names:
            parent, _, component = name.partition(".")
            for column in (
                [component_column(parent, component)] if component else self.columns.get(parent, ())
            ):
                found[column] = None
        return list(found)

    def flatten(self, event: Mapping[str, Any]) -> dict[str, Native]:
        """Return all non-null values by column, without the header."""
        flat: dict[str, Native] = {}
        parts = self._parts
        for name, value in event.items():
            if isinstance(value, dict):
                if name == HEADER:
                    continue
                for component, part in value.items():
                    if part is not None:
                        column = parts.get((name, component))
                        if column is None:
                            column = parts[name, component] = component_column(name, component)
                        flat[column] = part
            elif isinstance(value, list):  # the flags of a user that are set
                flat[name] = ";".join(value)
            elif value is not None:
                flat[name] = value
        return flat

    def bits(self, header: Mapping[str, Any]) -> FieldBits:
        """Decode the bitmaps of a header. Raises PayloadInvalid."""
        key = (tuple(header["changedFields"]), tuple(header["nulledFields"]), tuple(header["diffFields"]))
        found = self._bits.get(key)
        if found is None:
            changed, nulled, differing = (self.columns_of(decode_bitmap(self.event, part)) for part in key)
            changed += [name for name in nulled if name not in changed]
            found = FieldBits(tuple(changed), frozenset(differing))
            # Updates of one object mostly set the same few fields; more combinations than this are an attack.
            if len(self._bits) < _MAX_PLANS:
                self._bits[key] = found
        return found


_compile = lru_cache(maxsize=256)(ChangeSchema)
"""Returns a schema ready for use. Cached across batches, since a worker process outlives its tasks."""


class Rows:
    """Rows of one history table under construction: a list per column, and finished tables."""

    def __init__(self) -> None:
        self.columns: tuple[list[Any], ...] = tuple([] for _ in HISTORY.names)
        self.tables: list[pa.Table] = []
        self.first = 0
        self.last = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, record_id: str, replay_id: int, rest: tuple[Any, ...]) -> None:
        """Add one row; `rest` are the values of all columns but the first two."""
        columns = self.columns
        self._note(replay_id, replay_id, 1)
        columns[0].append(record_id)
        columns[1].append(replay_id)
        for column, value in zip(columns[2:], rest, strict=True):
            column.append(value)

    def add_table(self, rows: pa.Table) -> None:
        """Add rows that are already columns."""
        if rows.num_rows:
            ends = pc.min_max(rows["replay_id"])
            self._note(ends["min"].as_py(), ends["max"].as_py(), rows.num_rows)
            self.tables.append(rows)

    def render(self) -> pa.Table:
        """Return the rows as Arrow."""
        arrays = [pa.array(column, f.type) for column, f in zip(self.columns, HISTORY, strict=True)]
        return pa.concat_tables([*self.tables, pa.Table.from_arrays(arrays, schema=HISTORY)])

    def _note(self, first: int, last: int, count: int) -> None:
        self.first = min(self.first, first) if self._count else first
        self.last = max(self.last, last)
        self._count += count


@dataclass
class Decoded:
    """The result of decoding: rows by entity, the last position of each schema by entity, and notes."""

    rows: dict[str, Rows] = field(default_factory=dict)
    schemas: dict[str, dict[str, int]] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)


class Decoder:
    """Decodes events in log order to rows above each table's floor.

    `latest` is the schema that each entity last had before.
    """

    def __init__(
        self,
        schemas: Mapping[str, str],
        floors: Mapping[str, int] | None = None,
        latest: Mapping[str, str] | None = None,
    ) -> None:
        self.decoded = Decoded()
        self._schemas = schemas
        self._floors = floors or {}
        self._latest = latest or {}
        self._known: dict[str, ChangeSchema] = {}
        self._entities: set[str] = set()
        self._at = -1
        self._seen: set[tuple[str, str]] = set()

    def add(self, batch: pa.RecordBatch) -> None:
        """Decode a batch of bronze rows that are events."""
        columns = (batch.column(name).to_pylist() for name in ("replay_id", "schema_id", "payload"))
        for i, (replay_id, schema_id, payload) in enumerate(zip(*columns, strict=True)):
            if schema_id not in self._schemas:
                detail = f"no schema with id {schema_id} was archived"
                self._add_undecoded(read_envelope(batch, i), SCHEMA_UNKNOWN, detail)
                continue
            try:
                schema = self._schema(schema_id)
                if schema.is_change:  # a platform event is archived, but no change of a record
                    self._add_event(replay_id, schema_id, schema, schema.event.decode_non_null(payload))
            except PlatformError as error:
                envelope = self._with_entity(read_envelope(batch, i))
                self._add_undecoded(envelope, PAYLOAD_INVALID, error.message)

    def add_rows(self, entity: str, schema_id: str, rows: pa.Table) -> None:
        """Add rows of history that were decoded elsewhere and need no note.

        Raises PayloadInvalid if the object's name is invalid.
        """
        self._check_entity(entity)
        present = self.decoded.rows.setdefault(entity, Rows())
        self._note_schema(entity, schema_id, pc.max(rows["replay_id"]).as_py())
        floor = self._floors.get(entity, -1)
        present.add_table(rows.filter(pc.greater(rows["replay_id"], floor)) if floor >= 0 else rows)

    def try_schema(self, schema_id: str) -> ChangeSchema | None:
        """Return a schema; None if it is unknown. Raises PayloadInvalid if it cannot be parsed."""
        return self._schema(schema_id) if schema_id in self._schemas else None

    def _schema(self, schema_id: str) -> ChangeSchema:
        schema = self._known.get(schema_id)
        if schema is None:
            schema = self._known[schema_id] = _compile(self._schemas[schema_id])
        return schema

    def _add_event(
        self, replay_id: int, schema_id: str, schema: ChangeSchema, event: Mapping[str, Any]
    ) -> None:
        header = event[HEADER]
        entity, ids, change_type = header["entityName"], header["recordIds"], header["changeType"]
        self._check_entity(entity)
        if not ids:
            raise PayloadInvalid("the event names no record")
        bits = schema.bits(header)
        changed, differing = bits.changed, bits.differing
        present = schema.flatten(event)
        values: dict[str, Any] = {}
        enriched: dict[str, Native] | None = None
        if change_type in CREATES:
            values = present
        elif change_type == "UPDATE":
            for name in changed:
                value = present.pop(name, None)
                values[name] = {DIFFERENCE: value} if name in differing and value is not None else value
            enriched = present
        else:
            enriched = present
        problem, detail = _problem_of(change_type, ids)
        if problem == WILDCARD and not changed:
            changed = self._retyped(entity, schema)
            problem = WILDCARD if changed else WILDCARD_UNKNOWN
        rest = (
            header["sequenceNumber"],
            change_type,
            header["transactionKey"],
            header["commitNumber"],
            header["commitTimestamp"],
            header["commitUser"],
            header["changeOrigin"],
            schema_id,
            changed,
            orjson.dumps(values).decode(),
            orjson.dumps(enriched).decode() if enriched else None,
            problem,
        )
        fresh = self._put(entity, (EMPTY_ID,) if problem == OVERFLOW else ids, replay_id, rest)
        self._note_schema(entity, schema_id, replay_id)
        reason = problem or (DIFFERING if differing and change_type == "UPDATE" else None)
        if reason is not None:
            columns = tuple(changed) if problem == WILDCARD else ()
            self.decoded.notes += [
                Note(entity, record_id, replay_id, reason, change_type, schema_id, detail, columns)
                for record_id in fresh
            ]

    def _check_entity(self, entity: str) -> None:
        """Raise PayloadInvalid unless the name is valid for an object: it becomes a directory name."""
        if entity not in self._entities:
            if ENTITY.fullmatch(entity) is None:
                raise PayloadInvalid(f"not the name of an object: {entity[:80]!r}")
            self._entities.add(entity)

    def _note_schema(self, entity: str, schema_id: str, replay_id: int) -> None:
        used = self.decoded.schemas.setdefault(entity, {})
        used[schema_id] = max(replay_id, used.get(schema_id, -1))

    def _retyped(self, entity: str, schema: ChangeSchema) -> tuple[str, ...]:
        """Return the column that lost its values by a change of type; nothing unless exactly one did."""
        used = self.decoded.schemas.get(entity)
        before = max(used, key=used.__getitem__) if used else self._latest.get(entity)
        if before is None or before not in self._schemas:
            return ()
        kinds = self._schema(before).kinds
        found = [name for name, kind in schema.kinds.items() if loses_values(kinds.get(name, kind), kind)]
        return tuple(found) if len(found) == 1 else ()

    def _put(self, entity: str, ids: Iterable[str], replay_id: int, rest: tuple[Any, ...]) -> list[str]:
        """Add a row per record and return those records. An event that is archived twice is added once."""
        if replay_id != self._at:
            self._at = replay_id
            self._seen.clear()
        rows = self.decoded.rows.get(entity)
        if rows is None:
            rows = self.decoded.rows[entity] = Rows()
        is_new = replay_id > self._floors.get(entity, -1)
        fresh: list[str] = []
        for record_id in ids:
            if (entity, record_id) in self._seen:
                continue
            self._seen.add((entity, record_id))
            fresh.append(record_id)
            if is_new:
                rows.add(record_id, replay_id, rest)
        return fresh

    def _with_entity(self, envelope: Envelope) -> Envelope:
        """Return an envelope with the schema's entity, for an event whose header cannot be read."""
        schema = self._known.get(envelope.schema_id)
        if schema is None or not schema.is_change or envelope.entity or envelope.record_ids:
            return envelope
        entity = entity_of_change_event(schema.event.name) or ""
        return replace(envelope, entity=entity, record_ids=(EMPTY_ID,))

    def _add_undecoded(self, envelope: Envelope, reason: str, detail: str) -> None:
        ids: Sequence[str] = envelope.record_ids
        entity = envelope.entity if ENTITY.fullmatch(envelope.entity) else ""
        replay_id, change_type, schema_id = envelope.replay_id, envelope.change_type, envelope.schema_id
        if entity and ids:
            nothing = (0, change_type, None, None, None, None, None, schema_id, (), None, None)
            ids = self._put(entity, ids, replay_id, (*nothing, reason))
        self.decoded.notes += [
            Note(entity, record_id, replay_id, reason, change_type, schema_id, detail)
            for record_id in ids or [""]
        ]


def read_envelope(batch: pa.RecordBatch, i: int) -> Envelope:
    """Return the envelope of an event from bronze's header columns."""
    entity, change_type, ids = (
        batch.column(name)[i].as_py() for name in ("entity", "change_type", "record_ids")
    )
    replay_id, schema_id = batch.column("replay_id")[i].as_py(), batch.column("schema_id")[i].as_py()
    return Envelope(replay_id, schema_id or "", entity or "", change_type or "", tuple(ids or ()))


def _problem_of(change_type: str, ids: Iterable[str]) -> tuple[str | None, str]:
    if change_type == "GAP_OVERFLOW" or EMPTY_ID in ids:
        return OVERFLOW, "the transaction has more changes than the log records"
    if any(record_id.endswith("*") for record_id in ids):
        return WILDCARD, "the event is about every record of the object"
    if change_type in GAPS:
        return GAP, "the event reports that the record changed, but not how"
    if change_type not in CREATES and change_type not in DELETES and change_type != "UPDATE":
        return TYPE_UNKNOWN, f"change type {change_type} has no meaning for a replica"
    return None, ""
