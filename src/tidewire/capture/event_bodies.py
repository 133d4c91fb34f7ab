"""The body of a change event: which fields it carries, under which names, and which became empty.

CREATE and UNDELETE carry every value; UPDATE carries what changed, with LastModifiedDate always among it; DELETE
carries none. The parts of a compound are named one by one, as in `BillingAddress.City`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from tidewire.capture.text_differences import MIN_LENGTH, try_difference
from tidewire.crm.leads import is_conversion
from tidewire.crm.persons import IS_PERSON, account_event_paths
from tidewire.events import Change, ChangeType, Value
from tidewire.schema.field_types import LONG_TEXT_TYPES, FieldType
from tidewire.schema.model import ObjectType
from tidewire.schema.standard.accounts import ACCOUNT
from tidewire.schema.standard.flag_lists import flag_lists

AUDIT_STAMPS = frozenset({"LastModifiedDate", "LastModifiedById", "SystemModstamp"})
"""Fields that every save sets. An update of these alone has no event."""


class Body(NamedTuple):
    """The record's part of an event. `changed`, `nulled` and `different` are field names for the header's bitmaps.

    The value of a field in `different` is a text difference. A tuple because one is made for every change.
    """

    values: Mapping[str, Any]
    changed: tuple[str, ...] = ()
    nulled: tuple[str, ...] = ()
    different: tuple[str, ...] = ()


NO_BODY = Body({})


@lru_cache(maxsize=1024)
def event_paths(obj: ObjectType, is_person: bool = False) -> dict[str, tuple[str, str]]:
    """Map each stored field to its place in the object's change events: top-level name and compound component.

    A person account has the parts of its name instead of Name; a business account has no Person fields.
    """
    paths = {
        f.name: (f.compound, f.component) if f.compound else (f.name, "")
        for f in obj.stored_fields
        if f.in_change_events and not f.is_compound  # a stored Name only repeats its parts
    }
    return account_event_paths(paths, is_person) if obj.name == ACCOUNT.name else paths


def is_silent(change: Change, obj: ObjectType) -> bool:
    """Return whether an update has no event: only audit stamps and fields that events do not carry changed."""
    if change.type is not ChangeType.UPDATE:
        return False
    paths = event_paths(obj, _is_person(change.after))
    if any(name in paths and name not in AUDIT_STAMPS for name in change.changed):
        return False
    return not any(box.name in change.changed for boxes in flag_lists(obj).values() for box in boxes)


def count_changes(change: Change, body: Body) -> int:
    """Return how much an event counts against the limit of a transaction: an update counts once per field."""
    if change.type is not ChangeType.UPDATE:
        return 1
    return max(1, sum(name not in AUDIT_STAMPS for name in body.changed))


def body_of(change: Change, obj: ObjectType) -> Body:
    """Return the body of a change's event."""
    if change.type is ChangeType.DELETE or change.after is None:
        return NO_BODY
    row = change.after
    paths = event_paths(obj, _is_person(row))
    if change.type is ChangeType.UPDATE:
        return _updated(change, obj, row, paths)
    values = _nested([name for name, value in row.items() if value is not None and name in paths], row, paths)
    for name in flag_lists(obj):
        values[name] = _set_flags(obj, name, row)
    return Body(values)


def _is_person(row: Mapping[str, Value] | None) -> bool:
    return row is not None and bool(row.get(IS_PERSON))


def _updated(
    change: Change, obj: ObjectType, row: Mapping[str, Value], paths: Mapping[str, tuple[str, str]]
) -> Body:
    names = [n for n in change.changed if n in paths and n != "LastModifiedDate"]
    if obj.custom:
        names = _with_whole_places(obj, names)
    # The event of a lead conversion is the only update without LastModifiedDate.
    if "LastModifiedDate" in paths and not is_conversion(change):
        names.append("LastModifiedDate")
    values = _nested(names, row, paths)
    changed: list[str] = []
    nulled: list[str] = []
    for name in names:
        top, part = paths[name]
        path = f"{top}.{part}" if part else top
        changed.append(path)
        if row[name] is None:
            nulled.append(path)
    for name, boxes in flag_lists(obj).items():
        if any(box.name in change.changed for box in boxes):
            changed.append(name)
            values[name] = _set_flags(obj, name, row)
    different: list[str] = []
    for name in _long_texts(obj):
        new = values.get(name)
        if isinstance(new, str) and len(new) >= MIN_LENGTH:
            old = (change.before or {}).get(name)
            difference = try_difference(old, new) if isinstance(old, str) else None
            if difference is not None:
                values[name] = difference
                different.append(name)
    return Body(values, tuple(changed), tuple(nulled), tuple(different))


def _nested(
    names: Iterable[str], row: Mapping[str, Value], paths: Mapping[str, tuple[str, str]]
) -> dict[str, Any]:
    """Return the values of these fields, with those of each compound in a nested mapping."""
    values: dict[str, Any] = {}
    for name in names:
        top, part = paths[name]
        if part:
            values.setdefault(top, {})[part] = row[name]
        else:
            values[top] = row[name]
    return values


def _with_whole_places(obj: ObjectType, names: list[str]) -> list[str]:
    """Add the other parts of each geolocation that changed in part."""
    places = _places(obj)
    if not places or places.keys().isdisjoint(names):
        return names
    whole = dict.fromkeys(name for changed in names for name in places.get(changed, (changed,)))
    return list(whole)


@lru_cache(maxsize=1024)
def _places(obj: ObjectType) -> dict[str, tuple[str, ...]]:
    """Map each part of a geolocation to all its parts."""
    found: dict[str, tuple[str, ...]] = {}
    for place in obj.fields:
        if place.type is FieldType.LOCATION:
            parts = tuple(f.name for f in obj.components(place.name))
            found |= dict.fromkeys(parts, parts)
    return found


@lru_cache(maxsize=1024)
def _long_texts(obj: ObjectType) -> tuple[str, ...]:
    return tuple(f.name for f in obj.stored_fields if f.type in LONG_TEXT_TYPES and f.in_change_events)


def _set_flags(obj: ObjectType, name: str, row: Mapping[str, Value]) -> list[str]:
    return [box.name.removeprefix(name) for box in flag_lists(obj)[name] if row.get(box.name)]
