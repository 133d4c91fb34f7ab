"""Change events: the changes of one transaction as the Avro events that `/data/...` channels carry.

Records that changed alike, one after the other, share a merged event. An event that is too large, or that cannot
be made at all, becomes a gap event, and so does a change below the API; gaps of one kind share an event. What
follows the first 100,000 changes of a transaction is told by one overflow event for each entity. The full event is
stored; what a subscriber may not see is cut at delivery.
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
"""How many changes of a transaction are told one by one; a field of an update counts as one."""
MAX_EVENT_BYTES = 1_048_576
MAX_MERGED_IDS = 5_000
"""How many records one event may name: enough for what people do, and far below the size of an event."""
_MOST_HELD = 1_000  # events that wait for more records of their gaps
_CROWD = 1_000  # from so many changes on, records that followed others share events too
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
    """The change events of one transaction, in order, for the objects that are selected. Asides come last.

    Memory holds some of them at a time.
    """
    captured = catalog.captured
    events = _Events(context, schemas, is_crowd=len(changes) > _CROWD)
    twins = changed_twins(catalog, changes, AUDIT_STAMPS)
    counted = 0
    untold = 0  # changes so far that have no event and no number of their own
    overflowed: dict[str, None] = {}
    for change in changes:
        if events.is_full:
            yield from events.take()
        if change.entity not in captured:
            continue
        obj = catalog.object(change.entity)
        if is_silent(change, obj) and change.record_id not in twins:
            untold += 1
            continue
        if overflowed:
            overflowed[change.entity] = None
            continue
        try:
            body = body_of(change, obj)
        except Exception:  # whatever it was, the write stands and subscribers are told to read the record
            log.exception("capture.event_failed", extra={"entity": change.entity})
            events.add_gap(change.entity, change.type, [change.record_id])
            continue
        counted += count_changes(change, body)
        if counted > max_changes:
            overflowed[change.entity] = None
        elif not events.try_merge(change, body):
            events.open(change, body, change.sequence - untold)
            continue
        untold += 1
    events.close()
    if overflowed:
        for number, entity in enumerate(overflowed, events.sequence + 1):
            events.add(entity, overflow_header(context, entity, number))
    for untracked in untracked_changes:
        if untracked.entity in captured:
            events.add_untracked(untracked, catalog.object(untracked.entity).key_prefix)
    yield from events.take()


_Made = tuple[str, str, bytes]  # topic, schema id and payload


@dataclass(frozen=True, slots=True)
class _Gap:
    """A gap event at its place, which more records may join until the end."""

    entity: str
    change_type: str
    transaction_key: str
    record_ids: list[str] = field(default_factory=list)


class _Events:
    """The events of one transaction as they are made. One may be open: what follows may yet join it."""

    def __init__(self, context: CommitContext, schemas: Mapping[str, EventSchema], *, is_crowd: bool) -> None:
        self._context = context
        self._is_crowd = is_crowd
        self._schemas = schemas
        self._made: list[_Made | _Gap] = []
        self._gaps: dict[tuple[str, str, str], _Gap] = {}
        self._first: Change | None = None
        self._body = NO_BODY
        self._ids: list[str] = []
        self._size_bytes = 0
        self.sequence = 0

    @property
    def is_full(self) -> bool:
        """Whether it is time to take what is made."""
        return len(self._made) >= _MOST_HELD or self._size_bytes >= MAX_EVENT_BYTES

    def try_merge(self, change: Change, body: Body) -> bool:
        """Let the change join the open event if that tells just the same of the same kind of record."""
        first = self._first
        if (
            first is None
            or change.type is not first.type
            or change.entity != first.entity
            or ((change.never_merge or first.never_merge) and not self._is_crowd)
            or change.type not in _MERGEABLE
            or body != self._body
            or len(self._ids) >= MAX_MERGED_IDS
        ):
            return False
        self._ids.append(change.record_id)
        return True

    def open(self, change: Change, body: Body, sequence: int) -> None:
        """Begin an event."""
        self.close()
        self._first, self._body, self._ids = change, body, [change.record_id]
        self.sequence = sequence

    def close(self) -> None:
        """Make the open event, or a gap event in its place."""
        first, body = self._first, self._body
        if first is None:
            return
        self._first = None
        header = change_header(self._context, first.entity, self._ids, first.type.value, self.sequence)
        try:
            schema = self._schemas[change_event_name(first.entity)]
            if body.changed:
                header["changedFields"] = bitmap_of(schema, body.changed)
                header["nulledFields"] = bitmap_of(schema, body.nulled)
                header["diffFields"] = bitmap_of(schema, body.different)
            payload = schema.encode({HEADER: header, **body.values})
        except Exception:  # whatever it was, the write stands and subscribers are told to read the record
            log.exception("capture.event_failed", extra={"entity": first.entity})
            self.add_gap(first.entity, first.type, self._ids)
            return
        if len(payload) > MAX_EVENT_BYTES:
            self.add_gap(first.entity, first.type, self._ids)
        else:
            self._made.append((schema.name, schema.schema_id, payload))
            self._size_bytes += len(payload)

    def add(self, entity: str, header: dict[str, Any]) -> None:
        """Make an event that is only a header."""
        self._made.append(self._header_event(entity, header))

    def add_gap(
        self, entity: str, change_type: ChangeType, record_ids: Sequence[str], transaction_key: str = ""
    ) -> None:
        """Tell of records only that they changed, in the gap event for changes of this kind."""
        self.close()
        kind = (entity, change_type.value, transaction_key)
        for record_id in record_ids:
            gap = self._gaps.get(kind)
            if gap is None or len(gap.record_ids) >= MAX_MERGED_IDS:
                gap = self._gaps[kind] = _Gap(entity, change_type.value, transaction_key)
                self._made.append(gap)
            gap.record_ids.append(record_id)

    def add_untracked(self, untracked: UntrackedChange, key_prefix: str) -> None:
        """Tell what was done beside the changes."""
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
        """The events that were made since the last time, in order. No more records join their gaps."""
        created_ms = self._context.commit_ms
        made = [self._gap_event(each) if isinstance(each, _Gap) else each for each in self._made]
        self._made.clear()
        self._gaps.clear()
        self._size_bytes = 0
        return [
            EventDraft(topic, Family.CHANGE, payload, created_ms, schema_id, random_uuid())
            for topic, schema_id, payload in made
        ]

    def _gap_event(self, gap: _Gap) -> _Made:
        header = gap_header(self._context, gap.entity, gap.record_ids, gap.change_type, gap.transaction_key)
        return self._header_event(gap.entity, header)

    def _header_event(self, entity: str, header: dict[str, Any]) -> _Made:
        schema = self._schemas[change_event_name(entity)]
        return schema.name, schema.schema_id, schema.encode({HEADER: header})
