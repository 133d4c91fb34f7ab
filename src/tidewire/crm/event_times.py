"""The six fields with the time of an event, made to agree or rejected. Pure.

An event starts at StartDateTime, which ActivityDateTime repeats and of which ActivityDate is the day; it ends
at EndDateTime or after DurationInMinutes. An all-day event starts at midnight and ends on its last day, not
after it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tidewire.errors import FieldsInconsistent, RequiredFieldMissing
from tidewire.events import Value
from tidewire.schema.values import DAY_MS

EVENT_TIMES = (
    "StartDateTime",
    "ActivityDateTime",
    "ActivityDate",
    "DurationInMinutes",
    "EndDateTime",
    "EndDate",
)
_MINUTE_MS = 60_000
_DAY_MINUTES = 24 * 60
MAX_DURATION_MINUTES = 14 * _DAY_MINUTES


def align_times(row: Mapping[str, Value], changed: Collection[str]) -> dict[str, Value]:
    """Return the six fields of an event, made to agree; those in `changed` decide over the others.

    Raises RequiredFieldMissing without a start or an end, FieldsInconsistent if the submitted ones contradict
    each other, the end is before the start or the event is longer than two weeks.
    """
    is_all_day = bool(row.get("IsAllDayEvent"))
    start = _start(row, changed, is_all_day=is_all_day)
    end, duration = row.get("EndDateTime"), row.get("DurationInMinutes")
    tail_ms = DAY_MS if is_all_day else 0
    if is_all_day and not isinstance(end, int) and not isinstance(duration, int):
        duration = _DAY_MINUTES
    if isinstance(end, int) and ("EndDateTime" in changed or not isinstance(duration, int)):
        end = end - end % DAY_MS if is_all_day else end
        lasts = (end + tail_ms - start) // _MINUTE_MS
        if "DurationInMinutes" in changed and isinstance(duration, int) and duration != lasts:
            raise _inconsistent(
                "DurationInMinutes and EndDateTime disagree", "DurationInMinutes", "EndDateTime"
            )
        duration = lasts
    elif isinstance(duration, int):
        if is_all_day and duration >= 0:
            duration = max(-(-duration // _DAY_MINUTES), 1) * _DAY_MINUTES
        end = start + duration * _MINUTE_MS - tail_ms
    else:
        raise _missing("DurationInMinutes")
    if end < start or duration < 0:
        raise _inconsistent("an event cannot end before it starts", "EndDateTime")
    if duration > MAX_DURATION_MINUTES:
        raise _inconsistent("an event cannot last longer than 14 days", "DurationInMinutes")
    return {
        "StartDateTime": start,
        "ActivityDateTime": start,
        "ActivityDate": start - start % DAY_MS,
        "DurationInMinutes": duration,
        "EndDateTime": end,
        "EndDate": end - end % DAY_MS,
    }


def _start(row: Mapping[str, Value], changed: Collection[str], *, is_all_day: bool) -> int:
    named = [name for name in ("StartDateTime", "ActivityDateTime") if name in changed]
    submitted = [start for name in named if isinstance(start := row.get(name), int)]
    if len(set(submitted)) > 1:
        raise _inconsistent("StartDateTime and ActivityDateTime differ", *named)
    start = submitted[0] if submitted else None if named else row.get("StartDateTime")
    day = row.get("ActivityDate") if "ActivityDate" in changed else None
    if isinstance(day, int) and submitted:
        # The day is that of somebody's zone, which may be the one before or after UTC's; all-day ones have none.
        off_ms = abs(day - (submitted[0] - submitted[0] % DAY_MS))
        if off_ms > (0 if is_all_day else DAY_MS):
            raise _inconsistent("ActivityDate is not the day of StartDateTime", "ActivityDate", *named)
    elif isinstance(day, int) and (is_all_day or isinstance(start, int)):
        start = day if is_all_day or not isinstance(start, int) else day + start % DAY_MS
    if not isinstance(start, int):
        raise _missing("ActivityDate" if is_all_day else "ActivityDateTime")
    return start - start % DAY_MS if is_all_day else start


def _missing(name: str) -> RequiredFieldMissing:
    return RequiredFieldMissing(f"Required fields are missing: [{name}]", fields=[name])


def _inconsistent(message: str, *names: str) -> FieldsInconsistent:
    return FieldsInconsistent(message, fields=list(names))
