"""From an archived event to the changes it tells of: one per record.

Runs on executors. Every event is decoded by its own schema, found by its schema id, so events of several
schema versions may stand in one batch. An event that cannot be understood still yields a row, with a
`problem`, so that it is counted, kept and shown rather than lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa

from tidewire.errors import PlatformError
from tidewire.ids import EMPTY_ID
from tidewire.pipeline.columns import Native, component_column, parse_columns
from tidewire.schema.bitmap import decode_bitmap
from tidewire.schema.codec import EventSchema

FULL_ROWS = frozenset({"CREATE", "UNDELETE"})
DELETES = frozenset({"DELETE", "GAP_DELETE"})
"""A gap delete says all there is to say: the record is gone."""
GAPS = frozenset({"GAP_CREATE", "GAP_UPDATE", "GAP_UNDELETE"})
UNDECODABLE = frozenset({"schema_unknown", "payload_invalid"})
"""Problems of events whose content is not known at all."""

CHANGES = pa.schema(
    [
        ("entity", pa.string()),
        ("record_id", pa.string()),
        ("replay_id", pa.int64()),
        ("sequence", pa.int64()),
        ("change_type", pa.string()),
        ("transaction_key", pa.string()),
        ("commit_number", pa.int64()),
        ("commit_ms", pa.int64()),
        ("user_id", pa.string()),
        ("origin", pa.string()),
        ("schema_id", pa.string()),
        ("changed", pa.list_(pa.string())),
        ("values_json", pa.string()),
        ("problem", pa.string()),
        ("detail", pa.string()),
        ("mark_after", pa.int64()),
    ]
)
"""Decoded changes on their way to the driver. A row with `mark_after` is a mark: it covers (mark_after,
replay_id].
"""


@dataclass(frozen=True, slots=True)
class RecordChange:
    """One change of one record.

    `values` are the fields the event sets, by column; for a create or undelete every other field is null,
    for an update every other field is untouched. `problem` is a short stable word if the change cannot be
    applied, and `detail` explains it.
    """

    entity: str
    record_id: str
    replay_id: int
    change_type: str
    sequence: int = 0
    transaction_key: str = ""
    commit_number: int = 0
    commit_ms: int = 0
    user_id: str = ""
    origin: str = ""
    schema_id: str = ""
    changed: tuple[str, ...] = ()
    values: Mapping[str, Native] = field(default_factory=dict)
    problem: str | None = None
    detail: str | None = None


class ChangeSchema:
    """An Avro schema of change events, with the replica columns its fields become."""

    def __init__(self, schema_json: str) -> None:
        self.event = EventSchema(schema_json)
        self._schema_json = schema_json

    @cached_property
    def columns(self) -> dict[str, tuple[str, ...]]:
        """The columns of each field."""
        return parse_columns(self._schema_json)

    def columns_of(self, names: Iterable[str]) -> list[str]:
        """The columns that names such as `Phone`, `BillingAddress.City` or a whole `Name` stand for."""
        found: dict[str, None] = {}
        for name in names:
            parent, _, component = name.partition(".")
            for column in (
                [component_column(parent, component)] if component else self.columns.get(parent, ())
            ):
                found[column] = None
        return list(found)

    def flatten(self, event: Mapping[str, Any]) -> dict[str, Native]:
        """All non-null field values by column."""
        flat: dict[str, Native] = {}
        for name in self.columns:
            value = event.get(name)
            if isinstance(value, Mapping):
                for component, part in value.items():
                    if part is not None:
                        flat[component_column(name, component)] = part
            elif isinstance(value, list):  # the flags of a user that are set
                flat[name] = ";".join(value)
            elif value is not None:
                flat[name] = value
        return flat


def decode_event(replay_id: int, schema: ChangeSchema, payload: bytes) -> list[RecordChange]:
    """The changes of one event. Raises PayloadInvalid if the bytes do not fit the schema."""
    event = schema.event.decode(payload)
    header = event["ChangeEventHeader"]
    change_type = header["changeType"]
    nulled = schema.columns_of(decode_bitmap(schema.event, header["nulledFields"]))
    changed = schema.columns_of(decode_bitmap(schema.event, header["changedFields"]))
    changed += [name for name in nulled if name not in changed]
    differing = schema.columns_of(decode_bitmap(schema.event, header["diffFields"]))
    present = schema.flatten(event)
    if change_type in FULL_ROWS:
        values: dict[str, Native] = present
    elif change_type == "UPDATE":
        values = {name: present.get(name) for name in changed if name not in differing}
    else:
        values = {}
    problem, detail = _problem_of(change_type, header)
    return [
        RecordChange(
            entity=header["entityName"],
            record_id=record_id,
            replay_id=replay_id,
            change_type=change_type,
            sequence=header["sequenceNumber"],
            transaction_key=header["transactionKey"],
            commit_number=header["commitNumber"],
            commit_ms=header["commitTimestamp"],
            user_id=header["commitUser"],
            origin=header["changeOrigin"],
            schema_id=schema.event.schema_id,
            changed=tuple(changed),
            values=values,
            problem=problem,
            detail=detail,
        )
        for record_id in header["recordIds"]
    ]


def _problem_of(change_type: str, header: Mapping[str, Any]) -> tuple[str | None, str | None]:
    ids = header["recordIds"]
    if change_type == "GAP_OVERFLOW" or EMPTY_ID in ids:
        return (
            "overflow",
            "the transaction has more changes than the log records; the object must be read again",
        )
    if any("*" in record_id for record_id in ids):
        return "wildcard", "the event speaks of every record of the object"
    if change_type in GAPS:
        return "gap", "the event tells that the record changed, not how; the record must be read again"
    if header["diffFields"]:
        return "text_difference", "the event carries the difference of a long text instead of the text"
    if change_type not in FULL_ROWS and change_type not in DELETES and change_type != "UPDATE":
        return "change_type_unknown", f"change type {change_type} has no meaning for a replica"
    return None, None


def decode_batches(
    schemas: Mapping[str, str],
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow` that turns rows of the bronze source into rows of CHANGES.

    Per batch: called on an executor, once per task, with every schema that bronze may name.
    """

    def decode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        known: dict[str, ChangeSchema] = {}
        for batch in batches:
            rows: list[dict[str, Any]] = []
            for row in batch.to_pylist():
                rows.extend(_decode_row(row, schemas, known))
            yield pa.RecordBatch.from_pylist(rows, schema=CHANGES)

    return decode


def _decode_row(
    row: Mapping[str, Any], schemas: Mapping[str, str], known: dict[str, ChangeSchema]
) -> Iterator[dict[str, Any]]:
    if row["payload"] is None:
        yield {"replay_id": row["replay_id"], "mark_after": row["mark_after"]}
        return
    schema_id = row["schema_id"]
    try:
        schema = known.get(schema_id)
        if schema is None:
            schema = known[schema_id] = ChangeSchema(schemas[schema_id])
        if "ChangeEventHeader" not in schema.event.field_names:
            return  # a platform event: archived, but no change of a record
        changes = decode_event(row["replay_id"], schema, row["payload"])
    except KeyError:
        changes = _undecodable(row, "schema_unknown", f"no schema with id {schema_id} was archived")
    except PlatformError as error:
        changes = _undecodable(row, "payload_invalid", error.message)
    for change in changes:
        yield render_change(change)


def _undecodable(row: Mapping[str, Any], problem: str, detail: str) -> list[RecordChange]:
    """What is known of an event that does not decode: perhaps its header, from bronze."""
    return [
        RecordChange(
            entity=row["entity"] or "",
            record_id=record_id,
            replay_id=row["replay_id"],
            change_type=row["change_type"] or "",
            schema_id=row["schema_id"],
            problem=problem,
            detail=detail,
        )
        for record_id in row["record_ids"] or [""]
    ]


def render_change(change: RecordChange) -> dict[str, Any]:
    """A change as a row of CHANGES."""
    return {
        "entity": change.entity,
        "record_id": change.record_id,
        "replay_id": change.replay_id,
        "sequence": change.sequence,
        "change_type": change.change_type,
        "transaction_key": change.transaction_key,
        "commit_number": change.commit_number,
        "commit_ms": change.commit_ms,
        "user_id": change.user_id,
        "origin": change.origin,
        "schema_id": change.schema_id,
        "changed": list(change.changed),
        "values_json": json.dumps(change.values, ensure_ascii=False),
        "problem": change.problem,
        "detail": change.detail,
    }


def parse_changes(rows: pa.Table) -> list[RecordChange]:
    """Rows of CHANGES without marks, in log order; changes of one event keep the order of its record ids."""
    changes = [
        RecordChange(
            **{
                name: row[name]
                for name in CHANGES.names
                if name not in ("changed", "values_json", "mark_after")
            },
            changed=tuple(row["changed"]),
            values=json.loads(row["values_json"]),
        )
        for row in rows.to_pylist()
        if row["mark_after"] is None
    ]
    return sorted(changes, key=lambda change: change.replay_id)
