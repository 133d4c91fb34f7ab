"""Publishing platform events: validate what a client sends, check the quota, append to the log.

Events have no records: they can be created and nothing else. An event that cannot be published fails alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tidewire.access.grants import Grants
from tidewire.access.principal import Principal
from tidewire.clock import Clock
from tidewire.errors import (
    AccessDenied,
    FieldUnknown,
    LimitExceeded,
    OperationUnsupported,
    PayloadInvalid,
    PlatformError,
    RequiredFieldMissing,
    SchemaUnknown,
    TopicUnknown,
)
from tidewire.eventlog.log import EventLog
from tidewire.events import EventDraft, Family, Value
from tidewire.gate.publish_quota import Reservation
from tidewire.gate.requests import Call, OnResults
from tidewire.ids import make_id, random_uuid
from tidewire.names import change_event_name, entity_of_change_event
from tidewire.records.service import Records
from tidewire.records.types import Types
from tidewire.records.work import UnitOfWork
from tidewire.schema.catalog import Catalog
from tidewire.schema.channels import can_capture
from tidewire.schema.codec import EventSchema, compiled_schema
from tidewire.schema.field_types import FieldType
from tidewire.schema.model import EventType, Field, ObjectType
from tidewire.schema.schema_resolution import SchemaResolution
from tidewire.schema.values import parse_value
from tidewire.storage.store import Transaction

EVENT_LIMIT_BYTES = 1 << 20
_AVRO_QUOTA_TEXT = "LIMIT_EXCEEDED: the org's hourly allocation of published platform events is used up"
MONITORING_PERMISSION = "ViewRealTimeEventMonitoringData"


Submitted = tuple[str, bytes, str]
"""One event from a Pub/Sub client: schema id, payload, and UUID or an empty text."""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The outcome of a publish call. `event_uuids` name all events, in order.

    `rejected` says, by index, why some were not published. The first of the others is at position `first`, the rest
    right behind it.
    """

    event_uuids: tuple[str, ...]
    first: int
    rejected: dict[int, PlatformError]


@dataclass(frozen=True, slots=True)
class Published:
    """A published event. `event_id` has the form of a record id, because clients expect one."""

    event_id: str
    event_uuid: str
    is_immediate: bool = False


class Publisher:
    """Publishes events with a user's permissions, through an org's records or a shared transaction."""

    def __init__(
        self,
        records: Records,
        log: EventLog,
        clock: Clock,
        grants: Callable[[Principal], Awaitable[Grants]],
        new_reservation: Callable[[], Reservation],
    ) -> None:
        self._records = records
        self._log = log
        self._clock = clock
        self._grants = grants
        self._new_reservation = new_reservation
        self.shared_reservation: Reservation | None = None
        """Set inside a shared transaction, which gives its events back if it is rolled back."""

    async def publish(self, call: Call, event: str, values: Mapping[str, object]) -> Published:
        """Publish one event from JSON-decoded values; returns once it is durable.

        If its type publishes immediately, it stays published even if the shared transaction is rolled back.
        """
        types = self._records.types
        event_type = publishable_event(types, await self._grants(call.principal), event)
        now_ms = self._clock.now_ms()
        schema, survives = types.schemas[event_type.name], event_type.publishes_immediately
        draft = draft_from_values(event_type, schema, values, call.principal.user_id, now_ms)
        with self._reservation() as reserved:
            if event_type.is_high_volume and not reserved.reserve(1, survives_rollback=survives):
                raise _over_quota()
            await self._records.write_plain(
                lambda tx: self._append(tx, [draft], now_ms), survives_rollback=survives
            )
        return Published(event_id_of(event_type), draft.event_uuid, survives)

    async def publish_together(
        self, call: Call, event: str, rows: Sequence[Mapping[str, object]], on_results: OnResults[str]
    ) -> None:
        """Publish several events from JSON-decoded values in one transaction.

        Inside it `on_results` gets the id of each event, or why it was rejected.
        """
        event_type = publishable_event(self._records.types, await self._grants(call.principal), event)
        now_ms = self._clock.now_ms()
        drafts: list[EventDraft] = []
        results: list[str | PlatformError] = []
        schema, event_id = self._records.types.schemas[event_type.name], event_id_of(event_type)
        for values in rows:
            try:
                drafts.append(draft_from_values(event_type, schema, values, call.principal.user_id, now_ms))
            except PlatformError as error:
                results.append(error)
            else:
                results.append(event_id)

        def work(unit: UnitOfWork) -> None:
            self._append(unit.tx, drafts, now_ms)
            on_results(unit, results)

        with self._reservation() as reserved:
            granted = reserved.reserve(len(drafts)) if event_type.is_high_volume else len(drafts)
            if granted < len(drafts):
                valid = [place for place, result in enumerate(results) if result is event_id]
                for place in valid[granted:]:
                    results[place] = _over_quota()
                del drafts[granted:]
            await self._records.write(work, user_id=call.principal.user_id, origin=call.origin)

    async def publish_avro(
        self, principal: Principal, event: str, submitted: Sequence[Submitted]
    ) -> Outcomes:
        """Publish Avro events in one transaction; returns once they are durable."""
        types = self._records.types
        event_type = publishable_event(types, await self._grants(principal), event)
        if not event_type.is_high_volume:
            error = _unsupported(event_type)
            return Outcomes(_uuids(submitted), 0, dict.fromkeys(range(len(submitted)), error))
        now_ms = self._clock.now_ms()
        latest = types.schemas[event_type.name]
        with self._reservation() as reserved:

            def work(tx: Transaction) -> Outcomes:
                reserved.release()  # the writer runs this again if the group had to be rolled back
                return append_submitted(
                    tx, self._log, event_type, submitted, latest, now_ms, reserved.reserve
                )

            return await self._records.write_plain(work)

    @contextmanager
    def _reservation(self) -> Iterator[Reservation]:
        """Reserve for this call alone or, inside a shared transaction, until that ends."""
        if self.shared_reservation is not None:
            yield self.shared_reservation
            return
        with self._new_reservation() as own:
            yield own

    def _append(self, tx: Transaction, drafts: Sequence[EventDraft], now_ms: int) -> None:
        if drafts:
            self._log.append(tx, drafts, now_ms)


def event_id_of(event: EventType) -> str:
    """Return the placeholder id for an event in answers."""
    return make_id(event.key_prefix, 1)


def event_object(event: EventType) -> ObjectType:
    """Return an object with the event's fields, for code that parses values field by field."""
    return ObjectType(
        name=event.name,
        label=event.label,
        label_plural=event.label_plural,
        key_prefix=event.key_prefix,
        fields=event.fields,
    )


def _over_quota() -> LimitExceeded:
    return LimitExceeded(
        "The org's hourly allocation of published platform events is used up",
        limit="published_events",
        status_code="LIMIT_EXCEEDED",
    )


def can_see_event(grants: Grants, event: EventType) -> bool:
    """Return whether the user may subscribe: by a grant or, for the server's own events, by a permission."""
    return grants.can_read(event.name) if event.custom else grants.has(MONITORING_PERMISSION)


def knows_event(grants: Grants, event: EventType) -> bool:
    """Return whether the event exists for the user, who may subscribe to it or publish it."""
    return can_see_event(grants, event) or (event.custom and grants.on(event.name).can_create)


def reject_event(catalog: Catalog, grants: Grants, name: str, operation: str) -> None:
    """Raise OperationUnsupported if this is the name of an event; call it before operations on records."""
    event = catalog.try_any_event(name)
    known = event.name if event is not None and knows_event(grants, event) else None
    entity = entity_of_change_event(name) or ""
    obj = catalog.try_object(entity) if entity else None
    if obj is not None and can_capture(obj) and grants.can_read(obj.name):
        known = change_event_name(obj.name)
    if known is not None:
        raise OperationUnsupported(f"entity type {known} does not support {operation}", entity=known)


def publishable_event(types: Types, grants: Grants, name: str) -> EventType:
    """Return the event type if it exists and the user may publish it."""
    event = types.catalog.try_any_event(name)
    if event is None or not knows_event(grants, event):
        raise TopicUnknown(f"There is no event type {name}", topic=name)
    if not event.custom:
        raise OperationUnsupported(f"entity type {event.name} does not support create", entity=event.name)
    if not grants.on(event.name).can_create:
        raise AccessDenied(f"insufficient access rights to publish {event.name}", topic=event.name)
    return event


def draft_from_values(
    event: EventType, schema: EventSchema, values: Mapping[str, object], user_id: str, now_ms: int
) -> EventDraft:
    """Return a draft from JSON-decoded field values. Missing fields get their defaults."""
    known = {f.name.lower(): f for f in event.fields}
    body: dict[str, Value] = {"CreatedDate": now_ms, "CreatedById": user_id}
    body |= {f.name: _default(f) for f in event.fields}
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
    payload = schema.encode(body)
    _check_size(payload)
    return EventDraft(event.name, Family.PLATFORM, payload, now_ms, schema.schema_id, random_uuid())


def _default(field: Field) -> Value:
    """Return the default of a field. A checkbox always has a value."""
    if field.default is None and field.type is FieldType.CHECKBOX:
        return False
    return field.default


def _unsupported(event: EventType) -> OperationUnsupported:
    # The protocol's text: clients look for it.
    text = (
        f"com.salesforce.eventbus.exceptions.PublishException: Unsupported topic [/event/{event.name}]. "
        "Standard Volume event type is not supported."
    )
    return OperationUnsupported(text, topic=event.name)


def _uuids(submitted: Sequence[Submitted]) -> tuple[str, ...]:
    """Return the UUIDs of events, with new ones for those without."""
    return tuple([event_uuid or random_uuid() for _, _, event_uuid in submitted])


def append_submitted(
    tx: Transaction,
    log: EventLog,
    event: EventType,
    submitted: Sequence[Submitted],
    latest: EventSchema,
    now_ms: int,
    reserve: Callable[[int], int],
) -> Outcomes:
    """Append the events that fit their schema and the quota, in order; the others fail alone.

    All are stored by the newest schema: what was written by an older one is resolved to it by Avro's rules.
    """
    schemas: dict[str, SchemaResolution | None] = {}
    event_uuids = _uuids(submitted)
    rejected: dict[int, PlatformError] = {}
    fitting: list[tuple[str, bytes]] = []
    for place, (schema_id, payload, _) in enumerate(submitted):
        try:
            _check_size(payload)
            if schema_id == latest.schema_id:
                latest.check(payload)
                stored = payload
            else:
                stored = _resolved(tx, log, event.name, schema_id, payload, latest, schemas)
        except PlatformError as error:
            rejected[place] = error
            continue
        fitting.append((event_uuids[place], stored))
    first = 0
    if fitting and (granted := reserve(len(fitting))) < len(fitting):
        valid = [place for place in range(len(submitted)) if place not in rejected]
        rejected |= dict.fromkeys(valid[granted:], LimitExceeded(_AVRO_QUOTA_TEXT))
        del fitting[granted:]
    if fitting:
        first = log.append_uniform(tx, event.name, Family.PLATFORM, latest.schema_id, fitting, now_ms)
    return Outcomes(event_uuids, first, rejected)


def _resolved(
    tx: Transaction,
    log: EventLog,
    topic: str,
    schema_id: str,
    payload: bytes,
    latest: EventSchema,
    schemas: dict[str, SchemaResolution | None],
) -> bytes:
    """Convert an event's bytes to the newest schema. Raises PayloadInvalid or SchemaUnknown."""
    if schema_id not in schemas:
        text = log.try_read_topic_schema(tx, schema_id, topic)
        schemas[schema_id] = None if text is None else SchemaResolution(compiled_schema(text), latest)
    resolution = schemas[schema_id]
    if resolution is None:
        raise SchemaUnknown(f"{topic} never had schema id {schema_id[:64]}", schema_id=schema_id[:64])
    return resolution.resolve(payload)


def _check_size(payload: bytes) -> None:
    if len(payload) > EVENT_LIMIT_BYTES:
        raise PayloadInvalid(f"The event is larger than {EVENT_LIMIT_BYTES} bytes")
