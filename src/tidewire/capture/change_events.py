"""Change events: the changes of one transaction as the Avro events of `/data/...` channels.

Consecutive records with equal changes share a merged event. An event that is too large or cannot be encoded becomes a
gap event, and so does a change below the API; gaps of one kind share an event. Changes after the first 100,000 of a
transaction become one overflow event per entity. The full event is stored; delivery removes hidden fields.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidewire.capture.event_bodies import AUDIT_STAMPS, NO_BODY, Body, body_of, count_changes, is_silent
from tidewire.capture.event_headers import HEADER, bitmap_of, change_header, gap_header, overflow_header
from tidewire.crm.persons import changed_twins
from tidewire.events import Change, ChangeType, CommitContext, EventDraft, Family, UntrackedChange
from tidewire.ids import random_uuid
from tidewire.names import change_event_name
from tidewire.schema.catalog import Catalog
from tidewire.schema.codec import EventSchema

log = logging.getLogger(__name__)

MAX_CHANGES = 100_000
"""Changes of a transaction that get events of their own; each field of an update counts as one."""
MAX_EVENT_BYTES = 1_048_576
MAX_MERGED_IDS = 5_000
"""Record ids in one event: enough in practice, and their size is far below the limit of an event."""
_MAX_HELD = 1_000  # events held back so that later gaps can join them
# In a transaction of more changes than this, records changed by cascades share events too, to keep the log small.
_MERGE_ALL_OVER = 1_000
# Creates and undeletes carry all values of one record, so each has an event of its own.
_MERGEABLE = frozenset({ChangeType.UPDATE, ChangeType.DELETE})


def iter_change_events(
    changes: Sequence[Change],
    context: CommitContext,
    catalog: Catalog,
    schemas: Mapping[str, EventSchema],
    untracked_changes: Iterable[UntrackedChange] = (),
    *,
    max_changes: int = MAX_CHANGES,
) -> Iterator[EventDraft]:
    """Yield the change events of one transaction for the captured objects, in order, untracked changes last.

    Holds a limited number of events in memory.
    """
    captured = catalog.captured
    events = _Events(context, schemas, merge_all=len(changes) > _MERGE_ALL_OVER)
    # An update of one half of a person account has an event for the other half too, even if only its stamps changed.
    twins = changed_twins(catalog, changes, AUDIT_STAMPS)
    counted = 0
    # Sequence numbers count events' first changes without gaps: changes without an event of their own are subtracted.
    # Changes of objects that are not captured keep their numbers, as on the original platform.
    skipped = 0
    overflowed: dict[str, None] = {}  # an ordered set of entities
    for change in changes:
        if events.is_full:
            yield from events.take()
        if change.entity not in captured:
            continue
        obj = catalog.object(change.entity)
        if is_silent(change, obj) and change.record_id not in twins:
            skipped += 1
            continue
        # Once over the limit, every change is overflow, of whatever entity.
        if overflowed:
            overflowed[change.entity] = None
            continue
        try:
            body = body_of(change, obj)
        except Exception:  # the write must not fail; the gap event tells subscribers to read the record
            log.exception("capture.event_failed", extra={"entity": change.entity})
            events.add_gap(change.entity, change.type, [change.record_id])
            continue
        counted += count_changes(change, body)
        if counted > max_changes:
            overflowed[change.entity] = None
        elif not events.try_merge(change, body):
            events.open(change, body, change.sequence - skipped)
            continue
        skipped += 1  # merged or overflowed
    events.close()  # before the overflow events, whose numbers follow the last event's
    if overflowed:
        for number, entity in enumerate(overflowed, events.sequence + 1):
            events.add(entity, overflow_header(context, entity, number))
    for untracked in untracked_changes:
        if untracked.entity in captured:
            events.add_untracked(untracked, catalog.object(untracked.entity).key_prefix)
    yield from events.take()


_Encoded = tuple[str, str, bytes]  # topic, schema id and payload


@dataclass(frozen=True, slots=True)
class _Gap:
    """A gap event at its place in the order. More records may join it until it is taken."""

    entity: str
    change_type: str
    transaction_key: str
    record_ids: list[str] = field(default_factory=list)


class _Events:
    """The events of one transaction. One may be open: the next change may still merge into it."""

    def __init__(
        self, context: CommitContext, schemas: Mapping[str, EventSchema], *, merge_all: bool
    ) -> None:
        self._context = context
        self._merge_all = merge_all
        self._schemas = schemas
        self._encoded: list[_Encoded | _Gap] = []
        self._gaps: dict[tuple[str, str, str], _Gap] = {}
        self._first: Change | None = None
        self._body = NO_BODY
        self._ids: list[str] = []
        self._size_bytes = 0
        self.sequence = 0

    @property
    def is_full(self) -> bool:
        """Whether `take` must be called to bound memory."""
        return len(self._encoded) >= _MAX_HELD or self._size_bytes >= MAX_EVENT_BYTES

    def try_merge(self, change: Change, body: Body) -> bool:
        """Merge a change into the open event if it is equal but for the record. Returns whether it did."""
        first = self._first
        # Cheap tests first: this runs for every change. Bodies are equal only if the stamps are, and those have whole
        # seconds, so changes merge only within a second.
        if (
            first is None
            or change.type is not first.type
            or change.entity != first.entity
            or ((change.never_merge or first.never_merge) and not self._merge_all)
            or change.type not in _MERGEABLE
            or body != self._body
            or len(self._ids) >= MAX_MERGED_IDS
        ):
            return False
        self._ids.append(change.record_id)
        return True

    def open(self, change: Change, body: Body, sequence: int) -> None:
        """Begin an event with a change."""
        self.close()
        self._first, self._body, self._ids = change, body, [change.record_id]
        self.sequence = sequence

    def close(self) -> None:
        """Encode the open event, or make a gap event in its place."""
        first, body = self._first, self._body
        if first is None:
            return
        self._first = None  # first of all: add_gap below calls close again
        header = change_header(self._context, first.entity, self._ids, first.type.value, self.sequence)
        try:
            schema = self._schemas[change_event_name(first.entity)]
            if body.changed:
                header["changedFields"] = bitmap_of(schema, body.changed)
                header["nulledFields"] = bitmap_of(schema, body.nulled)
                header["diffFields"] = bitmap_of(schema, body.different)
            payload = schema.encode({HEADER: header, **body.values})
        except Exception:  # the write must not fail; the gap event tells subscribers to read the record
            log.exception("capture.event_failed", extra={"entity": first.entity})
            self.add_gap(first.entity, first.type, self._ids)
            return
        if len(payload) > MAX_EVENT_BYTES:
            self.add_gap(first.entity, first.type, self._ids)
        else:
            self._encoded.append((schema.name, schema.schema_id, payload))
            self._size_bytes += len(payload)

    def add(self, entity: str, header: dict[str, Any]) -> None:
        """Add an event that consists of a header only."""
        self._encoded.append(self._header_event(entity, header))

    def add_gap(
        self, entity: str, change_type: ChangeType, record_ids: Sequence[str], transaction_key: str = ""
    ) -> None:
        """Add records to the gap event of their kind."""
        self.close()  # the open event comes before the gap, and later changes must not merge across it
        kind = (entity, change_type.value, transaction_key)
        for record_id in record_ids:
            gap = self._gaps.get(kind)
            if gap is None or len(gap.record_ids) >= MAX_MERGED_IDS:
                gap = self._gaps[kind] = _Gap(entity, change_type.value, transaction_key)
                self._encoded.append(gap)
            gap.record_ids.append(record_id)

    def add_untracked(self, untracked: UntrackedChange, key_prefix: str) -> None:
        """Add an untracked change: a gap event, or one wildcard event for a field that lost its values."""
        if not untracked.lost_field:
            self.add_gap(untracked.entity, untracked.type, untracked.record_ids, untracked.transaction_key)
            return
        self.sequence += 1
        every = [key_prefix + "*"]
        header = change_header(self._context, untracked.entity, every, untracked.type.value, self.sequence)
        schema = self._schemas[change_event_name(untracked.entity)]
        header["changedFields"] = header["nulledFields"] = bitmap_of(schema, (untracked.lost_field,))
        self.add(untracked.entity, header)

    def take(self) -> list[EventDraft]:
        """Return the events made since the last call, in order. Later records no longer join their gaps."""
        created_ms = self._context.commit_ms
        made = [self._gap_event(each) if isinstance(each, _Gap) else each for each in self._encoded]
        self._encoded.clear()
        self._gaps.clear()
        self._size_bytes = 0
        return [
            EventDraft(topic, Family.CHANGE, payload, created_ms, schema_id, random_uuid())
            for topic, schema_id, payload in made
        ]

    def _gap_event(self, gap: _Gap) -> _Encoded:
        header = gap_header(self._context, gap.entity, gap.record_ids, gap.change_type, gap.transaction_key)
        return self._header_event(gap.entity, header)

    def _header_event(self, entity: str, header: dict[str, Any]) -> _Encoded:
        schema = self._schemas[change_event_name(entity)]
        return schema.name, schema.schema_id, schema.encode({HEADER: header})
