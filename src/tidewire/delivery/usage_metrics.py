"""PlatformEventUsageMetric: how many events were published and delivered.

The rows are computed from the org's hourly counts and updated once an hour: one per metric for the 24 hours
up to the last full hour, and one for each full UTC day. There is no row for a metric without use. Days are
kept for 45 days.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidewire.events import Family, Value
from tidewire.records.numbers import take_record_id
from tidewire.records.table import delete_row, insert_row, read_all_rows, update_row
from tidewire.schema.model import ObjectType
from tidewire.storage.store import Reader, Transaction

NAME = "PlatformEventUsageMetric"
PUBLISHED_EVENTS = -1
PUBLISHED_CHANGES = -2
"""Used in place of a family in the counts, in the database too."""

_METRICS = {
    int(Family.CHANGE): "CHANGE_EVENTS_DELIVERED",
    PUBLISHED_CHANGES: "CHANGE_EVENTS_PUBLISHED",
    int(Family.PLATFORM): "PLATFORM_EVENTS_DELIVERED",
    PUBLISHED_EVENTS: "PLATFORM_EVENTS_PUBLISHED",
}
_HOUR_MS = 3_600_000
_DAY_HOURS = 24
_DAYS_KEPT = 45

Period = tuple[str, int, int]
"""A metric, its first hour and the hour after its last, counted from the epoch."""


@dataclass(frozen=True, slots=True)
class HourlyUse:
    """The value of a metric in one hour."""

    hour_ms: int
    name: str
    value: int


@dataclass(frozen=True, slots=True)
class MetricChanges:
    """The changes that bring the stored rows up to date."""

    made: Mapping[Period, int]
    updated: Mapping[str, int]
    gone: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        """Whether the stored rows are up to date."""
        return not (self.made or self.updated or self.gone)


def sum_metrics(counts: Iterable[tuple[int, int, int]], hour: int, first_hour: int) -> dict[Period, int]:
    """Return the use of each complete period in the current `hour`, from counts by hour and kind.

    Counts before `first_hour` may be incomplete.
    """
    values: Counter[Period] = Counter()
    for counted_hour, kind, count in counts:
        name = _METRICS.get(kind)
        if name is None or counted_hour >= hour:
            continue
        periods = set[Period]()
        if counted_hour >= hour - _DAY_HOURS:
            periods.add((name, hour - _DAY_HOURS, hour))
        day = counted_hour - counted_hour % _DAY_HOURS
        if first_hour <= day and day + _DAY_HOURS <= hour:
            periods.add((name, day, day + _DAY_HOURS))
        for period in periods:
            values[period] += count
    return {period: value for period, value in values.items() if value}


def sum_hours(counts: Iterable[tuple[int, int, int]], hour: int) -> list[HourlyUse]:
    """Return the use of each full hour before the current `hour`, from counts by hour and kind."""
    values: Counter[tuple[int, str]] = Counter()
    for counted_hour, kind, count in counts:
        name = _METRICS.get(kind)
        if name is not None and counted_hour < hour:
            values[counted_hour, name] += count
    return [HourlyUse(at * _HOUR_MS, name, value) for (at, name), value in sorted(values.items()) if value]


def plan_metrics(reader: Reader, obj: ObjectType, wanted: Mapping[Period, int], hour: int) -> MetricChanges:
    """Compare the stored rows with the wanted ones. Past days stay, although they are no longer counted."""
    updated: dict[str, int] = {}
    gone: list[str] = []
    missing = dict(wanted)
    for row in read_all_rows(reader, obj):
        start, end = int(row["StartDate"] or 0) // _HOUR_MS, int(row["EndDate"] or 0) // _HOUR_MS
        value = missing.pop((str(row["Name"]), start, end), None)
        if value is None:
            if start % _DAY_HOURS or end <= hour - _DAYS_KEPT * _DAY_HOURS:
                gone.append(str(row["Id"]))
        elif value != row["Value"]:
            updated[str(row["Id"])] = value
    return MetricChanges(missing, updated, tuple(gone))


def store_metrics(tx: Transaction, obj: ObjectType, changes: MetricChanges) -> None:
    """Apply the changes. They raise no events, because the rows are not records that users change."""
    for record_id in changes.gone:
        delete_row(tx, obj, record_id)
    for record_id, value in changes.updated.items():
        update_row(tx, obj, record_id, {"Value": value})
    for (name, start, end), value in sorted(changes.made.items()):
        row: dict[str, Value] = dict.fromkeys(f.name for f in obj.fields)
        row |= {
            "Id": take_record_id(tx, obj.key_prefix),
            "Name": name,
            "StartDate": start * _HOUR_MS,
            "EndDate": end * _HOUR_MS,
            "Value": value,
        }
        insert_row(tx, obj, row)
