"""Expands a series to the rows of its occurrences.

An occurrence is a copy of its series at its own time: linked by ParentEventId if the series has a pattern, by
RecurrenceActivityId if it has the classic fields. A task can instead be created again each time it is closed:
RecurrenceRegeneratedType is the day from which its new due date counts, RecurrenceInterval the number of days.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tidewire.crm.activity_rows import SERIES, Row, copy_values
from tidewire.crm.derived_fields import DERIVED
from tidewire.crm.event_times import align_times
from tidewire.crm.patterns import classic_rule, parse_rule
from tidewire.crm.recurrence import MAX_INTERVAL, PATTERN, expand_moments, find_zone
from tidewire.errors import FieldsInconsistent, NumberOutOfRange, RequiredFieldMissing
from tidewire.events import Value
from tidewire.records.numbers import take_record_id
from tidewire.schema.model import ObjectType
from tidewire.schema.values import DAY_MS
from tidewire.storage.store import Transaction

SERIES_PREFIX = "828"
_TRIGGER = "RecurrenceRegeneratedType"
_AFTER_DUE_DATE = "RecurrenceRegenerateAfterDueDate"
_AFTER_TODAY = "RecurrenceRegenerateAfterToday"
_DONE: Row = {_TRIGGER: "RecurrenceRegenerated"}
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


def expand_series(
    tx: Transaction, obj: ObjectType, row: Row, *, after_ms: int | None = None, taken: Collection[Value] = ()
) -> tuple[Row, list[Row]]:
    """Return the values of a record as a series, and its occurrences.

    Occurrences before `after_ms` or at a time in `taken` are left out.
    """
    if row.get(PATTERN) is None:
        values, shared, moments = _expand_classic(obj, row)
    else:
        values, shared, moments = _expand_pattern(tx, obj, row)
    wanted = [m for m in moments if (after_ms is None or m >= after_ms) and m not in taken]
    return values, [_at_moment(tx, obj, shared, moment) for moment in wanted]


def _expand_pattern(tx: Transaction, obj: ObjectType, row: Row) -> tuple[Row, Row, list[int]]:
    if row.get("IsRecurrence"):
        raise FieldsInconsistent(
            "an event recurs by a pattern or by the classic fields", fields=["IsRecurrence", PATTERN]
        )
    rule = parse_rule(str(row[PATTERN]))
    start = _start_of(row, "StartDateTime")
    zone_name = row.get("Recurrence2PatternTimeZone") or "GMT"
    zone = find_zone(zone_name, "Recurrence2PatternTimeZone")
    if row.get("IsAllDayEvent"):
        zone = find_zone("GMT", "Recurrence2PatternTimeZone")  # days are kept as their midnight there
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
    return values, shared, expand_moments(rule, start, zone)


def _expand_classic(obj: ObjectType, row: Row) -> tuple[Row, Row, list[int]]:
    is_event = obj.name == "Event"
    start_field = "RecurrenceStartDateTime" if is_event else "RecurrenceStartDateOnly"
    own_start = row.get("StartDateTime") if is_event else row.get("ActivityDate")
    start = _start_of({start_field: own_start} | {k: v for k, v in row.items() if v is not None}, start_field)
    is_timed = is_event and not row.get("IsAllDayEvent")
    zone = find_zone(row.get("RecurrenceTimeZoneSidKey") if is_timed else None, "RecurrenceTimeZoneSidKey")
    moments = expand_moments(classic_rule(row), start, zone)
    values: Row = {start_field: start, "RecurrenceActivityId": row["Id"]}
    shared = copy_values(obj, row | values) | dict.fromkeys(CLASSIC_FIELDS) | {"IsRecurrence": False}
    return values, {name: value for name, value in shared.items() if name.lower() in obj.by_name}, moments


def _start_of(row: Mapping[str, Value], name: str) -> int:
    start = row.get(name)
    if not isinstance(start, int):
        raise RequiredFieldMissing(f"Required fields are missing: [{name}]", fields=[name])
    return start


def _at_moment(tx: Transaction, obj: ObjectType, shared: Row, moment: int) -> Row:
    row = shared | {"Id": take_record_id(tx, obj.key_prefix)}
    if obj.name == "Task":
        return row | {"ActivityDate": moment}
    start, reminder = shared.get("StartDateTime"), shared.get("ReminderDateTime")
    if isinstance(reminder, int) and isinstance(start, int):
        row["ReminderDateTime"] = reminder + moment - start
    return row | align_times(row | {"StartDateTime": moment}, ["StartDateTime"])


def check_regeneration(task: Mapping[str, Value]) -> None:
    """Reject a task with an invalid regeneration."""
    if task.get(_TRIGGER) not in (_AFTER_DUE_DATE, _AFTER_TODAY):
        return
    if task.get("IsRecurrence"):
        raise FieldsInconsistent(
            "a task recurs by a schedule or when it is closed", fields=["IsRecurrence", _TRIGGER]
        )
    days = task.get("RecurrenceInterval")
    if days is None:
        raise RequiredFieldMissing(
            "Required fields are missing: [RecurrenceInterval]", fields=["RecurrenceInterval"]
        )
    if not 1 <= int(str(days)) <= MAX_INTERVAL:
        raise NumberOutOfRange(
            f"RecurrenceInterval must be from 1 to {MAX_INTERVAL}", fields=["RecurrenceInterval"]
        )


def regenerate(
    tx: Transaction, obj: ObjectType, before: Row, after: Row, now_ms: int
) -> tuple[Row, Row] | None:
    """Return the new values of a checked task that is being closed, and its successor; None if it has none."""
    trigger = after.get(_TRIGGER)
    is_closed = DERIVED[obj.name](obj, after, before, now_ms)["IsClosed"]
    if trigger not in (_AFTER_DUE_DATE, _AFTER_TODAY) or before.get("IsClosed") or not is_closed:
        return None
    due, reminder = after.get("ActivityDate"), after.get("ReminderDateTime")
    today = now_ms - now_ms % DAY_MS
    base = due if trigger == _AFTER_DUE_DATE and isinstance(due, int) else today
    next_due = base + int(str(after["RecurrenceInterval"])) * DAY_MS
    successor = copy_values(obj, after) | {
        "Id": take_record_id(tx, obj.key_prefix),
        "Status": obj.by_name["status"].default,
        "ActivityDate": next_due,
        "CompletedDateTime": None,
        "IsArchived": False,
        "CallDurationInSeconds": None,
        "CallDisposition": None,
        "CallObject": None,
    }
    if isinstance(reminder, int) and isinstance(due, int):
        successor["ReminderDateTime"] = reminder + next_due - due
    return dict(_DONE), successor
