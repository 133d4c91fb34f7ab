"""When events are, and what a series expands to: rows of occurrences that are yet to be written.

An event's six time fields say one thing and are made to agree. An occurrence is a copy of its series at its own
time: linked by ParentEventId if the series has a pattern, by RecurrenceActivityId if it has the classic fields.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tidewire.errors import RequiredFieldMissing, ValueMalformed
from tidewire.events import Value
from tidewire.records.numbers import take_record_id
from tidewire.records.recurrence import PATTERN, classic_rule, expand_moments, find_zone, parse_rule
from tidewire.schema.model import ObjectType
from tidewire.schema.values import DAY_MS
from tidewire.storage.store import Transaction

SERIES_PREFIX = "828"
SERIES = "3"
"""GroupEventType of a series; 1 is an event with invitees, 0 one without."""

EVENT_TIMES = (
    "StartDateTime",
    "ActivityDateTime",
    "ActivityDate",
    "DurationInMinutes",
    "EndDateTime",
    "EndDate",
)
CLASSIC_FIELDS = (
    "IsRecurrence",
    "RecurrenceStartDateOnly",
    "RecurrenceStartDateTime",
    "RecurrenceEndDateOnly",
    "RecurrenceTimeZoneSidKey",
    "RecurrenceType",
    "RecurrenceInterval",
    "RecurrenceDayOfWeekMask",
    "RecurrenceDayOfMonth",
    "RecurrenceInstance",
    "RecurrenceMonthOfYear",
)

Row = dict[str, Value]

_MINUTE_MS = 60_000


def align_times(row: Mapping[str, Value], changed: Collection[str]) -> Row:
    """The six fields that say when an event is, made to agree; those in `changed` decide. Empty without a start.

    An all-day event ends on its last day, not after it.
    """
    named = [name for name in ("StartDateTime", "ActivityDateTime") if name in changed]
    if not named and row.get("IsAllDayEvent") and "ActivityDate" in changed:
        named = ["ActivityDate"]
    start = row.get(named[0] if named else "StartDateTime")
    if not isinstance(start, int):
        return {}
    end, duration = row.get("EndDateTime"), row.get("DurationInMinutes")
    tail_ms = 0
    if row.get("IsAllDayEvent"):
        start -= start % DAY_MS
        tail_ms = DAY_MS
        if not isinstance(end, int) and not isinstance(duration, int):
            duration = DAY_MS // _MINUTE_MS
    is_end_given = isinstance(end, int) and ("EndDateTime" in changed or not isinstance(duration, int))
    if is_end_given and isinstance(end, int):
        end = end - end % DAY_MS if tail_ms else end
        duration = (end + tail_ms - start) // _MINUTE_MS
    elif isinstance(duration, int):
        end = start + max(duration * _MINUTE_MS - tail_ms, 0) if duration >= 0 else start - 1
    if isinstance(end, int) and end < start:
        raise ValueMalformed("an event cannot end before it starts", fields=["EndDateTime"])
    return {
        "StartDateTime": start,
        "ActivityDateTime": start,
        "ActivityDate": start - start % DAY_MS,
        "DurationInMinutes": duration,
        "EndDateTime": end,
        "EndDate": end - end % DAY_MS if isinstance(end, int) else None,
    }


def expand_series(tx: Transaction, obj: ObjectType, row: Row) -> tuple[Row, list[Row]]:
    """What a record gets for being a series, and its occurrences."""
    if row.get(PATTERN) is None:
        return _expand_classic(tx, obj, row)
    if row.get("IsRecurrence"):
        raise ValueMalformed("an event recurs by a pattern or by the classic fields", fields=["IsRecurrence"])
    rule = parse_rule(str(row[PATTERN]))
    start = _start_of(row, "StartDateTime")
    zone_name = row.get("Recurrence2PatternTimeZone") or "GMT"
    zone = find_zone(zone_name, "Recurrence2PatternTimeZone")
    if row.get("IsAllDayEvent"):
        zone = find_zone("GMT", "Recurrence2PatternTimeZone")  # days are kept as their midnight there
    moments = expand_moments(rule, start, zone)
    values: Row = {
        "GroupEventType": SERIES,
        "IsRecurrence2": True,
        "Recurrence2PatternVersion": row.get("Recurrence2PatternVersion") or "1",
        "Recurrence2PatternStartDate": start,
        "Recurrence2PatternTimeZone": zone_name,
        "ActivityRecurrence2Id": take_record_id(tx, SERIES_PREFIX),
    }
    shared = copy_values(obj, row | values) | {
        "GroupEventType": "1" if row.get("IsGroupEvent") else "0",
        "ParentEventId": row["Id"],
    }
    return values, [_at_moment(tx, obj, shared, moment) for moment in moments]


def _expand_classic(tx: Transaction, obj: ObjectType, row: Row) -> tuple[Row, list[Row]]:
    is_event = obj.name == "Event"
    start_field = "RecurrenceStartDateTime" if is_event else "RecurrenceStartDateOnly"
    own_start = row.get("StartDateTime") if is_event else row.get("ActivityDate")
    start = _start_of({start_field: own_start} | {k: v for k, v in row.items() if v is not None}, start_field)
    is_timed = is_event and not row.get("IsAllDayEvent")
    zone = find_zone(row.get("RecurrenceTimeZoneSidKey") if is_timed else None, "RecurrenceTimeZoneSidKey")
    moments = expand_moments(classic_rule(row), start, zone)
    values: Row = {start_field: start, "RecurrenceActivityId": row["Id"]}
    shared = copy_values(obj, row | values) | dict.fromkeys(CLASSIC_FIELDS) | {"IsRecurrence": False}
    shared = {name: value for name, value in shared.items() if name.lower() in obj.by_name}
    return values, [_at_moment(tx, obj, shared, moment) for moment in moments]


def _start_of(row: Mapping[str, Value], name: str) -> int:
    start = row.get(name)
    if not isinstance(start, int):
        raise RequiredFieldMissing(f"Required fields are missing: [{name}]", fields=[name])
    return start


def copy_values(obj: ObjectType, row: Mapping[str, Value]) -> Row:
    """A record's values as another's: without what only one record can have."""
    return {f.name: None if f.unique else row.get(f.name) for f in obj.stored_fields}


def _at_moment(tx: Transaction, obj: ObjectType, shared: Row, moment: int) -> Row:
    row = shared | {"Id": take_record_id(tx, obj.key_prefix)}
    if obj.name == "Task":
        return row | {"ActivityDate": moment}
    start, reminder = shared.get("StartDateTime"), shared.get("ReminderDateTime")
    if isinstance(reminder, int) and isinstance(start, int):
        row["ReminderDateTime"] = reminder + moment - start
    return row | align_times(row | {"StartDateTime": moment}, ["StartDateTime"])
