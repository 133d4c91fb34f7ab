"""Tasks that come again when they are closed: the next one is made then, and not before.

RecurrenceRegeneratedType says from which day its due date counts, the last due date or the day of closing,
and RecurrenceInterval how many days later it is. A task that has had its successor says so.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidewire.crm.activity_rows import Row, copy_values
from tidewire.crm.derived_fields import DERIVED
from tidewire.crm.recurrence import MAX_INTERVAL
from tidewire.errors import FieldsInconsistent, NumberOutOfRange, RequiredFieldMissing
from tidewire.events import Value
from tidewire.records.numbers import take_record_id
from tidewire.schema.model import ObjectType
from tidewire.schema.values import DAY_MS
from tidewire.storage.store import Transaction

_TRIGGER = "RecurrenceRegeneratedType"
_AFTER_DUE_DATE = "RecurrenceRegenerateAfterDueDate"
_AFTER_TODAY = "RecurrenceRegenerateAfterToday"
_DONE: Row = {_TRIGGER: "RecurrenceRegenerated"}


def check_regeneration(task: Mapping[str, Value]) -> None:
    """Refuse a task that cannot come again as it says."""
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
    """What a checked task that is being closed gets for it, and its successor; None if it has none."""
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
