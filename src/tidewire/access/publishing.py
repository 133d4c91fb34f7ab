"""Publishing platform events: from what a client sends to drafts that fit their schema."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidewire.access.grants import Grants
from tidewire.errors import (
    AccessDenied,
    FieldUnknown,
    PayloadInvalid,
    PlatformError,
    RequiredFieldMissing,
    SchemaUnknown,
    TopicUnknown,
)
from tidewire.eventlog.log import EventLog
from tidewire.events import EventDraft, Family, Value
from tidewire.records.types import Types
from tidewire.schema.codec import EventSchema
from tidewire.schema.model import EventType
from tidewire.schema.values import parse_value
from tidewire.storage.store import Transaction

EVENT_LIMIT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Submitted:
    """One event as a Pub/Sub client sends it; `event_uuid` may be empty."""

    schema_id: str
    payload: bytes
    event_uuid: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one event: its position, or why it was refused."""

    event_uuid: str
    position: int
    error: PlatformError | None = None


def publishable_event(types: Types, grants: Grants, name: str) -> EventType:
    """The event type, if it exists and the user may publish it."""
    event = types.catalog.try_event(name)
    if event is None or not (grants.on(event.name).can_create or grants.can_read(event.name)):
        raise TopicUnknown(f"There is no event type {name}", topic=name)
    if not grants.on(event.name).can_create:
        raise AccessDenied(f"insufficient access rights to publish {event.name}", topic=event.name)
    return event


def draft_from_values(
    event: EventType, schema: EventSchema, values: Mapping[str, object], user_id: str, now_ms: int
) -> EventDraft:
    """A draft from JSON-decoded field values, as REST sends them."""
    known = {f.name.lower(): f for f in event.fields}
    body: dict[str, Value] = {"CreatedDate": now_ms, "CreatedById": user_id}
    for name, raw in values.items():
        field = known.get(name.lower())
        if field is None:
            raise FieldUnknown(
                f"No such column '{name}' on sobject of type {event.name}", field=name, entity=event.name
            )
        body[field.name] = parse_value(field, raw)
    missing = [f.name for f in event.fields if f.required and body.get(f.name) is None]
    if missing:
        raise RequiredFieldMissing(f"Required fields are missing: [{', '.join(missing)}]", fields=missing)
    return EventDraft(
        event.name, Family.PLATFORM, schema.encode(body), now_ms, schema.schema_id, str(uuid.uuid4())
    )


def append_submitted(
    tx: Transaction, log: EventLog, event: EventType, submitted: Sequence[Submitted], now_ms: int
) -> list[Outcome]:
    """Append the events that fit their schema, in order; the others fail alone."""
    schemas: dict[str, EventSchema | None] = {}
    checked: list[EventDraft | Outcome] = []
    for item in submitted:
        event_uuid = item.event_uuid or str(uuid.uuid4())
        try:
            _check(tx, log, event.name, item, schemas)
        except PlatformError as error:
            checked.append(Outcome(event_uuid, 0, error))
            continue
        checked.append(
            EventDraft(event.name, Family.PLATFORM, item.payload, now_ms, item.schema_id, event_uuid)
        )
    drafts = [c for c in checked if isinstance(c, EventDraft)]
    stored = iter(log.append(tx, drafts, now_ms) if drafts else [])
    return [c if isinstance(c, Outcome) else Outcome(c.event_uuid, next(stored).position) for c in checked]


def _check(
    tx: Transaction, log: EventLog, topic: str, item: Submitted, schemas: dict[str, EventSchema | None]
) -> None:
    if len(item.payload) > EVENT_LIMIT_BYTES:
        raise PayloadInvalid(f"The event is larger than {EVENT_LIMIT_BYTES} bytes")
    if item.schema_id not in schemas:
        rows = tx.execute("SELECT topic FROM event_schemas WHERE schema_id = ?", (item.schema_id,))
        is_own = bool(rows) and rows[0][0] == topic
        schemas[item.schema_id] = EventSchema(log.read_schema(tx, item.schema_id)) if is_own else None
    schema = schemas[item.schema_id]
    if schema is None:
        raise SchemaUnknown(
            f"{topic} never had schema id {item.schema_id[:64]}", schema_id=item.schema_id[:64]
        )
    schema.decode(item.payload)
