"""Enrichment: fields that a channel adds to update and delete events although they did not change.

They are not stored with the event. Whenever a page of events is about to be delivered, live or replayed, they are read
from the records as they are then. A field that the event itself carries is never replaced. Because the values differ by
record, a merged event becomes one event per record, all at its position and delivered together. If they would be larger
than 512 kB, the merged event is delivered without added fields, provided that one of its records passes the filter. Gap
events and events of hard-deleted records stay as they are.

A channel's filters are tested against the same values, even if the receiver may not see them; the fields that a filter
uses are added to the events too. Gap events, and events on all records of an object, pass every filter, because a
replica needs them and no filter can judge them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidewire.capture.event_filters import HEADER, event_values
from tidewire.crm.persons import IS_PERSON, NAME_PARTS
from tidewire.errors import PayloadInvalid
from tidewire.events import Event, Family, Value
from tidewire.names import entity_of_change_event
from tidewire.records.table import read_columns
from tidewire.schema.bitmap import decode_bitmap
from tidewire.schema.catalog import Catalog
from tidewire.schema.codec import EventSchema
from tidewire.schema.model import Field, ObjectType
from tidewire.schema.standard.people import has_person_accounts
from tidewire.soql.compile_predicate import Predicate
from tidewire.storage.store import Reader

Row = Mapping[str, Value]

_BITMAPS = ("changedFields", "nulledFields", "diffFields")
_ENRICHED = frozenset({"UPDATE", "DELETE"})
_GAP = "GAP_"
_ALL_RECORDS = "*"  # ends a wildcard such as 001*, which stands for all records
_IDS_AT_A_TIME = 500
_MAX_BYTES = (
    512 * 1024
)  # of the events made from one merged event: delivered together, and clients reject 4 MB
_MAX_PAGE_BYTES = 2 * 1024 * 1024  # a page ends after this


@dataclass(frozen=True, slots=True)
class _Opened:
    """A decoded event to which fields are added."""

    event: Event
    schema: EventSchema
    obj: ObjectType
    fields: tuple[str, ...]
    value: dict[str, Any]
    keeps: Predicate | None

    @property
    def record_ids(self) -> list[str]:
        ids: list[str] = self.value[HEADER]["recordIds"]
        return ids


_Pair = tuple[Event, _Opened | Event | None]


def enrich_events(
    reader: Reader,
    catalog: Catalog,
    schema_of: Callable[[str], EventSchema],
    enriched: Mapping[str, Sequence[str]],
    filters: Mapping[str, Predicate],
    events: Iterable[Event],
) -> tuple[tuple[Event, ...], int | None]:
    """Return the events that pass their topic's filter, with the latest values of their topic's fields.

    If they grow too large together, the result ends early, and the position of the last processed event is returned
    too. `schema_of` returns a schema by id.
    """
    out: list[Event] = []
    size_bytes = through = 0
    for part in _parts((event, _try_open(event, catalog, schema_of, enriched, filters)) for event in events):
        rows = _read_latest(reader, [opened for _, opened in part if isinstance(opened, _Opened)])
        for event, opened in part:
            if size_bytes > _MAX_PAGE_BYTES:
                return tuple(out), through
            if isinstance(opened, _Opened):
                done = _completed(opened, rows[opened.obj.name])
            else:
                done = [] if opened is None else [opened]
            size_bytes += sum(len(each.payload) for each in done)
            out += done
            through = event.position
    return tuple(out), None


def _parts(pairs: Iterable[_Pair]) -> Iterator[list[_Pair]]:
    """Group the pairs so that each group has about as many records as one read takes."""
    part: list[_Pair] = []
    records = 0
    for event, opened in pairs:
        part.append((event, opened))
        records += len(opened.record_ids) if isinstance(opened, _Opened) else 0
        if records >= _IDS_AT_A_TIME:
            yield part
            part, records = [], 0
    if part:
        yield part


def _try_open(
    event: Event,
    catalog: Catalog,
    schema_of: Callable[[str], EventSchema],
    enriched: Mapping[str, Sequence[str]],
    filters: Mapping[str, Predicate],
) -> _Opened | Event | None:
    """Return the decoded event, the event itself if nothing is added to it, or None if it does not pass."""
    names, keeps = enriched.get(event.topic), filters.get(event.topic)
    if names is None:
        return event
    schema = schema_of(event.schema_id)
    value = schema.decode(event.payload)
    if event.family is not Family.CHANGE:
        return event if _passes(keeps, value) else None
    obj = catalog.try_object(entity_of_change_event(event.topic) or "")
    header = value[HEADER]
    is_of_all = any(i.endswith(_ALL_RECORDS) for i in header["recordIds"])
    if obj is None or header["changeType"].startswith(_GAP) or is_of_all:
        return event
    if header["changeType"] not in _ENRICHED:
        return event if _passes(keeps, value) else None
    # An old event's schema may lack a newer field.
    fields = tuple(name for name in names if name in schema.field_names)
    return _Opened(event, schema, obj, fields, value, keeps)


def _read_latest(reader: Reader, opened: Sequence[_Opened]) -> dict[str, dict[str, Row]]:
    """Read the values to add, by object and record, including records in the recycle bin."""
    wanted: dict[str, tuple[ObjectType, dict[str, None], dict[str, None]]] = {}
    for each in opened:
        _, names, ids = wanted.setdefault(each.obj.name, (each.obj, {"Id": None}, {}))
        ids |= dict.fromkeys(each.record_ids)
        for name in each.fields:
            f = each.obj.try_field(name)
            if f is not None:
                names |= dict.fromkeys(_stored_names(each.obj, f))
    return {name: _read(reader, obj, tuple(names), list(ids)) for name, (obj, names, ids) in wanted.items()}


def _read(reader: Reader, obj: ObjectType, names: tuple[str, ...], record_ids: list[str]) -> dict[str, Row]:
    found: dict[str, Row] = {}
    for start in range(0, len(record_ids), _IDS_AT_A_TIME):
        some = record_ids[start : start + _IDS_AT_A_TIME]
        for row in read_columns(reader, obj, names, obj.by_name["id"], some, with_deleted=True):
            found[str(row[0])] = dict(zip(names, row, strict=True))
    return found


def _passes(keeps: Predicate | None, value: Mapping[str, Any]) -> bool:
    """Return whether an event passes a filter. It does not if a field had another type when it was stored."""
    try:
        return keeps is None or keeps(event_values(value))
    except (TypeError, AttributeError, ValueError):
        return False


def _completed(opened: _Opened, rows: Mapping[str, Row]) -> list[Event]:
    """Return one event per record that passes, or the stored event if those would be too large together."""
    schema, header = opened.schema, opened.value[HEADER]
    carried = {name for bitmap in _BITMAPS for name in decode_bitmap(schema, header[bitmap])}
    out: list[Event] = []
    size_bytes = 0
    for record_id in opened.record_ids:
        plain = opened.value | {HEADER: header | {"recordIds": [record_id]}}
        value, row = dict(plain), rows.get(record_id)
        for name in opened.fields if row is not None else ():
            if name not in carried:
                value[name] = _latest(opened.obj, name, row or {}, value[name], carried)
        if not _passes(opened.keeps, value):
            continue
        try:
            payload = schema.encode(value)
        except PayloadInvalid:  # the field had another type when the event was stored
            payload = schema.encode(plain)
        size_bytes += len(payload)
        if out and size_bytes > _MAX_BYTES:
            return [opened.event]
        out.append(opened.event._replace(payload=payload))
    return out


def _stored_names(obj: ObjectType, f: Field) -> list[str]:
    """Return the stored fields from which a field of the events is made."""
    if f.is_compound:
        return [part.name for part in obj.components(f.name)]
    return [f.name, IS_PERSON, *NAME_PARTS] if _is_switchable(obj, f) else [f.name]


def _is_switchable(obj: ObjectType, f: Field) -> bool:
    """Return whether this is the Name of accounts in an org with person accounts."""
    return f.name == "Name" and has_person_accounts(obj)


def _latest(obj: ObjectType, name: str, row: Row, own: Any, carried: set[str]) -> Any:
    """Return a field's latest value. Parts of a compound that the event carries stay as they are."""
    f = obj.try_field(name)
    if f is None:
        return own
    if f.is_compound:
        latest = {part.component: row.get(part.name) for part in obj.components(f.name)}
    elif isinstance(own, Mapping) or (_is_switchable(obj, f) and row.get(IS_PERSON)):
        latest = {part: row.get(part) for part in NAME_PARTS}
    else:
        return row.get(f.name)
    parts = dict(own or {})
    parts |= {part: value for part, value in latest.items() if f"{name}.{part}" not in carried}
    return parts if any(part is not None for part in parts.values()) else own
