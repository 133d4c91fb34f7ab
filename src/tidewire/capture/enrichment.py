"""Enrichment: fields that a channel adds to updates and deletes, though they did not change.

They are not stored with the event. Whenever a page of events is about to be delivered, live or replayed, they are read
from the records as those are by then; what the event itself says of a field is never touched. Since the values differ
from record to record, a merged event becomes one for each of its records, all at its own position. Those are delivered
together; where they would be more than 512 kB, the merged event is, once any of its records passes the filter, without
added fields. Gap events, and events on records that are gone for good, are left as they are.

A channel's filters are held against the same values; what they look at is added to the events too. Gap events pass
every filter, for they tell a replica that it has to read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidewire.access.event_filters import event_values
from tidewire.errors import PayloadInvalid
from tidewire.events import Event, Family, Value
from tidewire.names import entity_of_change_event
from tidewire.records.table import read_rows
from tidewire.schema.bitmap import decode_bitmap
from tidewire.schema.catalog import Catalog
from tidewire.schema.codec import EventSchema
from tidewire.schema.model import ObjectType
from tidewire.soql.compile_predicate import Predicate
from tidewire.storage.store import Reader

Row = Mapping[str, Value]

_HEADER = "ChangeEventHeader"
_BITMAPS = ("changedFields", "nulledFields", "diffFields")
_ENRICHED = frozenset({"UPDATE", "DELETE"})
_GAP = "GAP_"
_ALL_RECORDS = "*"  # at the end of what stands in place of an id
_IDS_AT_A_TIME = 500
_MAX_BYTES = 512 * 1024  # of what stands for one merged event: it is never parted, and clients refuse 4 MB


@dataclass(frozen=True, slots=True)
class _Opened:
    """An event that fields are added to, decoded."""

    event: Event
    schema: EventSchema
    obj: ObjectType
    fields: tuple[str, ...]
    value: dict[str, Any]
    keeps: Predicate | None

    @property
    def record_ids(self) -> list[str]:
        ids: list[str] = self.value[_HEADER]["recordIds"]
        return ids


def enrich_events(
    reader: Reader,
    catalog: Catalog,
    schema_of: Callable[[str], EventSchema],
    enriched: Mapping[str, Sequence[str]],
    filters: Mapping[str, Predicate],
    events: Iterable[Event],
) -> tuple[Event, ...]:
    """The events that pass the filter of their topic, if it has one, with the latest values of the fields of their
    topic; `schema_of` gives a schema by its id.
    """
    opened = [_try_open(event, catalog, schema_of, enriched, filters) for event in events]
    wanted: dict[ObjectType, dict[str, None]] = {}
    for each in opened:
        if isinstance(each, _Opened):
            wanted.setdefault(each.obj, {}).update(dict.fromkeys(each.record_ids))
    rows = {obj.name: _read(reader, obj, list(ids)) for obj, ids in wanted.items()}
    out: list[Event] = []
    for each in opened:
        if isinstance(each, Event):
            out.append(each)
        elif each is not None:
            out += _completed(each, rows[each.obj.name])
    return tuple(out)


def _try_open(
    event: Event,
    catalog: Catalog,
    schema_of: Callable[[str], EventSchema],
    enriched: Mapping[str, Sequence[str]],
    filters: Mapping[str, Predicate],
) -> _Opened | Event | None:
    """The event decoded, or as it is if nothing is added to it, or None if it does not pass."""
    names, keeps = enriched.get(event.topic), filters.get(event.topic)
    if names is None:
        return event
    schema = schema_of(event.schema_id)
    value = schema.decode(event.payload)
    if event.family is not Family.CHANGE:
        return event if _passes(keeps, value) else None
    obj = catalog.try_object(entity_of_change_event(event.topic) or "")
    header = value[_HEADER]
    if obj is None or header["changeType"].startswith(_GAP):
        return event
    if header["changeType"] not in _ENRICHED or any(i.endswith(_ALL_RECORDS) for i in header["recordIds"]):
        return event if _passes(keeps, value) else None
    # An event of the past may be older than a field.
    fields = tuple(name for name in names if name in schema.field_names)
    return _Opened(event, schema, obj, fields, value, keeps)


def _read(reader: Reader, obj: ObjectType, record_ids: Sequence[str]) -> dict[str, Row]:
    """The records of these ids, those in the recycle bin too."""
    found: dict[str, Row] = {}
    for start in range(0, len(record_ids), _IDS_AT_A_TIME):
        some = record_ids[start : start + _IDS_AT_A_TIME]
        found |= {str(row["Id"]): row for row in read_rows(reader, obj, "Id", some, with_deleted=True)}
    return found


def _passes(keeps: Predicate | None, value: Mapping[str, Any]) -> bool:
    """Whether a filter, if there is one, is true of an event. It is not if a field was of another type then."""
    try:
        return keeps is None or keeps(event_values(value))
    except (TypeError, AttributeError, ValueError):
        return False


def _completed(opened: _Opened, rows: Mapping[str, Row]) -> list[Event]:
    """One event for each record that passes; the event as it is stored if those would be too large together."""
    schema, header = opened.schema, opened.value[_HEADER]
    told = {name for bitmap in _BITMAPS for name in decode_bitmap(schema, header[bitmap])}
    out: list[Event] = []
    size_bytes = 0
    for record_id in opened.record_ids:
        plain = opened.value | {_HEADER: header | {"recordIds": [record_id]}}
        value, row = dict(plain), rows.get(record_id)
        for name in opened.fields if row is not None else ():
            if name not in told:
                value[name] = _latest(opened.obj, name, row or {}, value[name], told)
        if not _passes(opened.keeps, value):
            continue
        try:
            payload = schema.encode(value)
        except PayloadInvalid:  # the field was of another type then
            payload = schema.encode(plain)
        size_bytes += len(payload)
        if out and size_bytes > _MAX_BYTES:
            return [opened.event]
        out.append(opened.event._replace(payload=payload))
    return out


def _latest(obj: ObjectType, name: str, row: Row, own: Any, told: set[str]) -> Any:
    """A field's latest value; of a compound, the parts that the event tells stay as they are."""
    f = obj.try_field(name)
    if f is None:
        return own
    if not f.is_compound:
        return row.get(f.name)
    parts = dict(own or {})
    for part in obj.components(f.name):
        if f"{name}.{part.component}" not in told:
            parts[part.component] = row.get(part.name)
    return parts if any(part is not None for part in parts.values()) else own
